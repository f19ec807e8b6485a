"""Whether a run gets anywhere: failures come neither faster than it comes back from them, nor than it saves work."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from ....base.errors import UserError, fault
from ....base.units import format_long, format_seconds
from ...train_step.run import expected_s
from ..training.failures import Cause, effect_of

if TYPE_CHECKING:
    from ..resolve import ResolvedRun

_MOST_FAILURES = 8.0  # until work is safe that is saved at once, which takes e^8 tries: a run never ends
LONGEST_S = 10 * 365 * 86_400.0
"""The longest run that is simulated."""
_MOST_AWAY = 10.0  # seconds away for one at work


class Stop(NamedTuple):
    """A cause that stops work: until it is noticed and the restart is over, `back_s`; for a repair, `repair_s` more.

    `repair_s` is the mean over failures of what is waited: spare nodes cover some of them.
    """

    cause: Cause
    back_s: float
    repair_s: float = 0.0


@dataclass(frozen=True)
class Goal:
    """The work of a run: `all_s` of it, of which `work_s` are saved at once, and are safe `save_s` later.

    `key` says why that much is saved at once, or why saving takes so long, whichever is longer.
    """

    key: str
    work_s: float
    save_s: float = 0.0
    all_s: float = 0.0


def check_progress(resolved: "ResolvedRun", stops: Iterable[Stop], on: str, many: float, goal: Goal | None) -> None:
    """Refuse a run that never gets its work done, of causes that fail at random; without a goal it is to do any.

    It is done on one of `many` equal parts of the cluster, `on` in words. Repairs alone leave some time for work,
    however long they take: a run is refused if that is next to none.

    Raises:
        UserError: coming back takes longer than the time between failures, no work lasts until it is safe, or it is all
            safe after many years.
    """
    listed = [(resolved.parts[stop.cause.part] / stop.cause.mtbf / many, stop) for stop in stops]
    rate = sum(rate for rate, _ in listed)
    back = sum(rate * stop.back_s for rate, stop in listed)
    away = back + sum(rate * stop.repair_s for rate, stop in listed)
    if back > 1 or away > _MOST_AWAY:
        words = f"{_every(rate)} {on}, and it takes {format_seconds(away / rate)} to come back from one"
        raise UserError(
            fault(resolved.where, "failures", format_seconds(1 / rate), f"no work is ever done: a failure {words}")
        )
    if goal is not None:
        is_lost = resolved.saving is None  # also what a planned stop would save
        undone = sum(rate for rate, stop in listed if is_lost or effect_of(stop.cause, resolved.save_s) == "stop")
        _check_goal(resolved, goal, undone, back, f"a failure {_every(undone)} {on}")


def _check_goal(resolved: "ResolvedRun", goal: Goal, undone: float, back: float, words: str) -> None:
    """Refuse what failures at the rate `undone` never let end; `back`: the share of the time to come back."""
    failures, value = (goal.work_s + goal.save_s) * undone, format_seconds(max(goal.work_s, goal.save_s))
    if failures > _MOST_FAILURES:
        raise UserError(fault(resolved.where, goal.key, value, f"nothing is ever saved: {words}"))
    if not failures:
        return
    lasts_s = expected_s(goal.all_s, goal.work_s, goal.save_s, back / undone, 1 / undone)
    if lasts_s > LONGEST_S:
        ends = f"the run ends after {format_long(lasts_s)}, and at most ten years are simulated: {words}"
        raise UserError(fault(resolved.where, goal.key, value, ends))


def _every(rate: float) -> str:
    return f"every {format_seconds(1 / rate if rate else inf)}"
