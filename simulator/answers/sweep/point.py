"""One point of a sweep: what a worker is given, what it does, and what it gives back."""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ...base.errors import UserError
from ...base.memo import Memo
from ...predict import simulate
from ...scenario import AnyScenario, Changes, changed, check_question
from ...systems.machines import canonical
from ...systems.tables import FOR_PEOPLE
from .columns import flat_columns
from .constraints import Constraint
from .keys import value_of

Status = Literal["ok", "infeasible", "memory", "constraint", "failed"]
"""`infeasible`: the scenario is refused; `memory`: it needs more than its devices have; `constraint`: one of the
sweep's does not hold; `failed`: our own fault.
"""


@dataclass(frozen=True)
class Point:
    """A point by its number, the changes that it makes to the base, one table after the other, and `asked`: the digest
    of the scenario that this makes.
    """

    number: int
    asked: str
    changes: Sequence[Changes]


@dataclass(frozen=True)
class Outcome:
    """What became of a point; `hash` names its scenario, `row` holds the flat columns of its report, if it has one."""

    number: int
    asked: str
    status: Status
    reason: str
    hash: str
    row: Mapping[str, Any] = field(default_factory=dict)
    spent_s: float = 0.0


@dataclass(frozen=True)
class Work:
    """What all points of a sweep share, as workers get it; `limits` are constraints on keys of the scenario."""

    base: Mapping[str, Any]
    where: str
    limits: tuple[Constraint, ...] = ()

    def __call__(self, points: Sequence[Point], memo: Memo) -> list[Outcome]:
        """Predict each of the points; what they share is made once and kept in the memo."""
        outcomes = []
        for point in points:
            began = time.perf_counter()
            outcomes.append(replace(evaluate(self, point, memo), spent_s=time.perf_counter() - began))
        return outcomes

    def table(self, changes: Sequence[Changes]) -> dict[str, Any]:
        """The base with the changes.

        Raises:
            UserError: it cannot be changed so.
        """
        return changed(self.base, changes, self.where)

    def asked(self, changes: Sequence[Changes]) -> str:
        """The digest of the base with the changes, less its name; of what cannot be changed so, of the changes."""
        try:
            said: Any = {key: value for key, value in self.table(changes).items() if key not in FOR_PEOPLE}
        except UserError:
            said = [self.base, [list(some.items()) for some in changes]]
        return hashlib.sha256(canonical(said).encode()).hexdigest()[:16]


Task = Callable[[Sequence[Point], Memo], list[Outcome]]
"""What engines run on a worker, with a memo that the engine makes for this sweep; a `Work` is one."""


def evaluate(work: Work, point: Point, memo: Memo) -> Outcome:
    """Check and simulate a point. What goes wrong with it is its outcome: no point ends a sweep."""
    try:
        scenario = check_question(work.table(point.changes), work.where)
        if reason := _refused(work.limits, scenario):
            return Outcome(point.number, point.asked, "constraint", reason, point.asked)
        report = simulate(scenario, memo=memo, where=work.where).report
        return Outcome(point.number, point.asked, "ok", "", report.scenario_hash, flat_columns(report.to_json()))
    except UserError as error:
        return Outcome(point.number, point.asked, "infeasible", refusal(error, work.where), point.asked)
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return Outcome(point.number, point.asked, "failed", reason, point.asked)


def refusal(error: UserError, where: str) -> str:
    """What is wrong, on one line, without the file: a folder of a sweep may be read elsewhere."""
    return "; ".join(fault.removeprefix(f"{where}: ") for fault in error.faults)


def _refused(limits: Sequence[Constraint], scenario: AnyScenario) -> str:
    """Why the first constraint that does not hold does not hold."""
    for limit in limits:
        values = {name: value_of(scenario, name) for name in limit.names}
        if not limit.holds(values):
            return limit.broken(values)
    return ""
