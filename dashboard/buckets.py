"""How the time of a weight update depends on its bucket size: which sizes to try, how many fit, what each takes.

A curve is made a few points at a time, so that it can be drawn while it grows. It says of which question it is, the
bucket left out: another bucket is another place on the same curve.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ..simulator.base.errors import UserError
from ..simulator.predict import Prediction
from ..simulator.systems.weight_update.lower import TransferPlan, UpdatePlan
from ..simulator.systems.weight_update.resolve import Resolved
from ..simulator.systems.weight_update.served import ServedUpdate
from .answers import Answers
from .forms import fields
from .question import Question

KEY = "update.bucket"
POINTS = 10
_AT_A_TIME = 2
_MOST_BUCKETS = 2048  # of a curve's smallest size: more take longer to simulate than anyone waits
_LARGEST = 32 * 2**30


@dataclass(frozen=True)
class Curve:
    """Seconds of the update by size as far as known; None where a size is refused.

    Sizes are bytes; `least_bytes` and `most_bytes` are what is allowed, None where nothing limits.
    """

    of: str
    sizes: tuple[int, ...]
    least_bytes: int | None
    most_bytes: int | None
    update_s: tuple[float | None, ...] = ()

    @property
    def done(self) -> bool:
        """Whether every size was tried."""
        return len(self.update_s) == len(self.sizes)

    @property
    def known(self) -> list[tuple[int, float]]:
        """Sizes and seconds."""
        return [(size, s) for size, s in zip(self.sizes, self.update_s, strict=False) if s is not None]

    def to_json(self) -> dict[str, Any]:
        """The curve as plain values, and whether it is done."""
        return {**asdict(self), "done": self.done}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Curve":
        """The curve that was written.

        Raises:
            KeyError: it is none.
        """
        sizes, update_s = tuple(values["sizes"]), tuple(values["update_s"])
        return cls(values["of"], sizes, values["least_bytes"], values["most_bytes"], update_s)


def new_curve(question: Question, resolved: Resolved) -> Curve:
    """The curve of a question that was answered, before its first point; it is the same whatever the bucket.

    Sizes are evenly apart on a logarithmic scale, from the smallest to the largest that is allowed and makes sense.
    """
    plan = resolved.plan
    served = isinstance(plan, UpdatePlan)
    least = int(resolved.weights.aligned_bytes().max()) if served else None
    most = _most_bytes(resolved)
    low = max(least or 2**20, plan.total_bytes // _MOST_BUCKETS)
    high = max(min(most or _LARGEST, max(_LARGEST, low)), low)
    if not served:
        high = max(min(high, plan.total_bytes), low) if most is None or most >= low else most
    changes = {key: value for key, value in question.changes.items() if key != KEY}
    return Curve(Question(question.base, changes).query(), _between(low, high), least, most)


def _between(low: int, high: int) -> tuple[int, ...]:
    """Whole MiB where that is fine enough, and both ends."""
    inside = [round(size / 2**20) * 2**20 for size in np.geomspace(low, high, POINTS)[1:-1].tolist()]
    return tuple(sorted({low, *(size for size in inside if low < size < high), high}))


def _most_bytes(resolved: Resolved) -> int | None:
    """The largest bucket that fits in device memory; None where engines have no buffers."""
    plan, update = resolved.plan, resolved.scenario.update
    if isinstance(plan, TransferPlan):
        buffers = resolved.method.receive_buffers(plan)
        return round(resolved.free_bytes // buffers * plan.transport.gathered) if buffers else None
    whatever_fits = update.model_copy(update={"bucket": None, "max_bucket": 2**60})
    scenario = resolved.scenario.model_copy(update={"update": whatever_fits})
    return ServedUpdate(scenario, resolved.where, resolved.memo).bucket.bytes


def slider_ends(form: str, curve: Curve) -> list[Any]:
    """What limits the slider of buckets on a page to the sizes that are allowed."""
    return fields.slider_ends(form, KEY, curve.least_bytes, curve.most_bytes)


def grow(curve: Curve, question: Question, answers: Answers) -> Curve:
    """The curve with some more points."""
    first = len(curve.update_s)
    sizes = curve.sizes[first : first + _AT_A_TIME]
    return replace(curve, update_s=(*curve.update_s, *(_seconds(question, size, answers) for size in sizes)))


def _seconds(question: Question, bucket_bytes: int, answers: Answers) -> float | None:
    try:
        prediction = answers.predict(question.change({KEY: bucket_bytes}))
    except UserError:
        return None
    assert isinstance(prediction, Prediction)
    return prediction.report.update_time_s
