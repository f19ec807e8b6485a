"""What would help: the shipped what-ifs that a scenario allows, and padding what is awkward in the shape of its model,
each simulated, and how much it gains per unit of work.

Training steps are compared by seconds per token, so that a step of twice the sequences is no loss.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ...base.errors import UserError
from ...models.awkward import PADDED
from ...scenario import Changes, WhatIf, what_ifs
from ...systems.machines import OnMachines
from ...systems.registry import SYSTEMS
from .case import Case
from .sensitivity import Progress


@dataclass(frozen=True)
class Tried:
    """A what-if that was simulated; `gain` is the share of the time per token, or per update, that it saves."""

    name: str
    subject: str
    about: str
    changes: Changes
    total_s: float
    gain: float
    memory_bytes: int
    device_memory_bytes: int

    @property
    def fits(self) -> bool:
        """Whether it fits the device."""
        return self.memory_bytes <= self.device_memory_bytes

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return vars(self) | {"changes": dict(self.changes), "fits": self.fits}


@dataclass(frozen=True)
class Refused:
    """A what-if that this scenario does not allow, and why, in one line."""

    name: str
    subject: str
    reason: str


def advice(case: Case, progress: Progress) -> tuple[list[Tried], list[Refused]]:
    """All what-ifs of the kind of a case: those simulated, the greatest gain first, and those refused."""
    tried, refused = list[Tried](), list[Refused]()
    shipped = [one for one in what_ifs().values() if one.subject in SYSTEMS[case.report.kind].what_ifs]
    asked = [*shipped, *_paddings(case.resolved)]
    for i, one in enumerate(asked, start=1):
        progress(f"{i} of {len(asked)} what-ifs: {one.name}")
        try:
            tried.append(_tried(case, one))
        except UserError as error:
            refused.append(Refused(one.name, one.subject, error.faults[0]))
    return sorted(tried, key=lambda one: -one.gain), refused


def _paddings(resolved: OnMachines) -> Iterator[WhatIf]:
    """For each awkward size of a model, the next one that kernels are made for."""
    model = "model.overrides" if resolved.scenario.model.preset else "model.config"
    for one in resolved.awkward:
        changes = {"parallel.pad_vocab": PADDED} if one.key == "vocab_size" else {f"{model}.{one.key}": one.value}
        yield WhatIf(one.text, "plan", "a size that kernels are made for", changes)


def best(tried: Iterable[Tried], *subjects: str, most: int = 3) -> list[Tried]:
    """Those that save most and fit; of several that come to the same, the first."""
    fitting = [one for one in tried if one.subject in subjects and one.fits and one.gain > 0]
    distinct = {(one.total_s, one.memory_bytes): one for one in reversed(fitting)}
    return [one for one in fitting if distinct[one.total_s, one.memory_bytes] is one][:most]


def _tried(case: Case, one: WhatIf) -> Tried:
    other = case.variant(one.changes)
    gain = 1 - other.report.per_unit_s / case.report.per_unit_s
    return Tried(one.name, one.subject, one.about, one.changes, other.total_s, gain, *other.prediction.memory)
