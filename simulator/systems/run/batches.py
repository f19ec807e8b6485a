"""The step at each batch size on the way to a target: predicted anew where the step is, else in proportion to it.

A step is no multiple of its batch: the optimizer, the exchange of gradients and the bubble of a pipeline stay.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from ...base.errors import UserError, fault
from ..train_step.resolve import ResolvedTrain
from ..train_step.system import predict as predict_step
from .target import Stage

if TYPE_CHECKING:
    from .resolve import ResolvedRun

_MOST_PREDICTED = 8
"""Steps of one run; a smooth warm-up may have hundreds of batch sizes. Between two of them a step is nearly a line."""
_ROUNDING = 1e-9  # of a batch in tokens


def stages_of(resolved: "ResolvedRun") -> tuple[Stage, ...]:
    """The batch sizes that a target states, one after the other; none if it states none.

    Raises:
        UserError: a step cannot have one of them.
    """
    target = resolved.scenario.target
    if target is None or not target.batch:
        return ()
    schedule, base = resolved.batch_schedule, resolved.update_samples
    shares = [one.batch / base for one in schedule]
    times = shares if resolved.resolved_step is None else _predict_times(resolved, resolved.resolved_step, shares)
    until = accumulate(one.steps for one in schedule)
    return tuple(map(Stage, until, shares, times))


def note_on(resolved: "ResolvedRun") -> str | None:
    """What is assumed of steps with other batches; None where there are none, or each is predicted."""
    sizes = len({one.batch for one in resolved.batch_stages})
    if sizes and resolved.resolved_step is None:
        return "target.batch: a step takes as many times longer as its batch is larger, as step.time says no more"
    if sizes > _MOST_PREDICTED:
        return f"target.batch: steps of {_MOST_PREDICTED} of its {sizes} sizes are predicted, others are interpolated"
    return None


def _predict_times(resolved: "ResolvedRun", step: ResolvedTrain, shares: Sequence[float]) -> list[float]:
    """The step at each of these shares of the batch over the usual one, some of them interpolated."""
    sizes = sorted({_sequences(resolved, step, share) for share in shares})
    at = np.unique(np.linspace(0, len(sizes) - 1, _MOST_PREDICTED).round().astype(int))
    some = [sizes[i] for i in at]
    times = np.interp(sizes, some, [_step_s(resolved, step, size) for size in some]) / resolved.step_s
    return [float(times[sizes.index(_sequences(resolved, step, share))]) for share in shares]


def _sequences(resolved: "ResolvedRun", step: ResolvedTrain, share: float) -> int:
    """The `batch.global` of a worker with this share of the usual batch."""
    batch = step.scenario.batch
    each = batch.micro * step.dims.dp
    count = share * batch.global_ / each
    if round(count) and abs(count - round(count)) <= _ROUNDING * count:
        return round(count) * each
    unit = resolved.update_samples * each / batch.global_
    near = " or ".join(f"{unit * many:,.10g}" for many in (int(count), int(count) + 1) if many)
    workers = f" x {resolved.workers} workers" if resolved.workers > 1 else ""
    parts = f"micro x dp = {batch.micro} x {step.dims.dp}{workers}"
    allowed = f"must be a multiple of {unit:,.10g} ({parts}), such as {near}"
    raise _refusal(resolved, share, allowed)


def _step_s(resolved: "ResolvedRun", step: ResolvedTrain, sequences: int) -> float:
    """A worker's step with another `batch.global`."""
    batch = step.scenario.batch.model_copy(update={"global_": sequences})
    if batch == step.scenario.batch:
        return resolved.step_s
    try:
        changed = step.scenario.model_copy(update={"batch": batch})
        return predict_step(ResolvedTrain(changed, resolved.where, resolved.memo)).report.step_time_s
    except UserError as error:
        why = error.faults[0].removeprefix(f"{resolved.where}: ")
        raise _refusal(resolved, sequences / step.scenario.batch.global_, f"a step cannot have it: {why}") from None


def _refusal(resolved: "ResolvedRun", share: float, why: str) -> UserError:
    assert resolved.scenario.target is not None
    batch = share * resolved.update_samples
    said = resolved.scenario.target.batch
    number = min(range(len(said)), key=lambda i: abs(said[i].batch - batch))
    value = said[number].batch
    return UserError(
        fault(resolved.where, f"target.batch.{number}.batch", int(value) if value.is_integer() else value, why)
    )
