"""Whether a run gets anywhere: failures come neither faster than it comes back from them, nor than it saves work."""

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from ....base.errors import UserError, fault
from ....base.units import format_seconds
from ..training.failures import Cause, effect_of

if TYPE_CHECKING:
    from ..resolve import ResolvedRun

_MOST_FAILURES = 8.0  # in the time of work that is saved at once, which takes e^8 tries: a run never ends
_MOST_AWAY = 10.0  # seconds away for one at work


class Stop(NamedTuple):
    """A cause that stops work: until it is noticed and the restart is over, `back_s`; for a repair, `repair_s` more.

    `repair_s` is the mean over failures of what is waited: spare nodes cover some of them.
    """

    cause: Cause
    back_s: float
    repair_s: float = 0.0


def check_progress(
    resolved: "ResolvedRun", stops: Iterable[Stop], on: str, many: float, work_s: float, key: str
) -> None:
    """Refuse a run that never gets its work done, of causes that fail at random.

    It is done on one of `many` equal parts of the cluster, `on` in words. `work_s` of work are saved at once, as `key`
    says. Repairs alone leave some time for work, however long they take: a run is refused if that is next to none.

    Raises:
        UserError: coming back takes longer than the time between failures, or no work lasts until it is saved.
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
    undone = sum(rate for rate, stop in listed if effect_of(stop.cause, resolved.save_s) == "stop")
    if work_s * undone > _MOST_FAILURES:
        words = f"nothing is ever saved: a failure {_every(undone)} {on}"
        raise UserError(fault(resolved.where, key, format_seconds(work_s), words))


def _every(rate: float) -> str:
    return f"every {format_seconds(1 / rate if rate else inf)}"
