"""Whether a run gets anywhere: failures come neither faster than it comes back from them, nor than it saves work."""

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from ....base.errors import UserError, fault
from ....base.units import format_seconds
from ..training.failures import Cause, effect_of

if TYPE_CHECKING:
    from ..resolve import ResolvedRun

_MOST_FAILURES = 8.0  # in the time of work that is saved at once, which takes e^8 tries: a run never ends


def check_progress(
    resolved: "ResolvedRun", stops: Iterable[tuple[Cause, float]], on: str, many: float, work_s: float, key: str
) -> None:
    """Refuse a run that never gets its work done, of causes that fail at random.

    `stops` are causes that stop the work, with the seconds from a failure until it goes on. It is done on one of
    `many` equal parts of the cluster, `on` in words. `work_s` of work are saved at once, as `key` says.

    Raises:
        UserError: coming back takes longer than the time between failures, or no work lasts until it is saved.
    """
    listed = [(cause, resolved.parts[cause.part] / cause.mtbf / many, back_s) for cause, back_s in stops]
    rate, away = sum(rate for _, rate, _ in listed), sum(rate * back_s for _, rate, back_s in listed)
    if away > 1:
        words = f"{_every(rate)} {on}, and it takes {format_seconds(away / rate)} to come back from one"
        raise UserError(
            fault(resolved.where, "failures", format_seconds(1 / rate), f"no work is ever done: a failure {words}")
        )
    undone = sum(rate for cause, rate, _ in listed if effect_of(cause, resolved.save_s) == "stop")
    if work_s * undone > _MOST_FAILURES:
        words = f"nothing is ever saved: a failure {_every(undone)} {on}"
        raise UserError(fault(resolved.where, key, format_seconds(work_s), words))


def _every(rate: float) -> str:
    return f"every {format_seconds(1 / rate if rate else inf)}"
