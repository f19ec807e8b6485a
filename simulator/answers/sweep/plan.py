"""A sweep as a value: a base, a grid of changes to it and constraints; its points, what becomes of each, and the digest
by which a folder knows it again.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from ...base.errors import UserError
from ...base.memo import Memo
from ...base.named_files import find_files
from ...predict import simulate
from ...scenario import Changes, change, check_question, resolve
from ...systems.machines import content_hash, release
from ...systems.tables import FOR_PEOPLE
from .columns import BEYOND, ERRORS, flat_columns
from .constraints import Constraint, values_in_row, values_in_scenario
from .grid import Grid

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
    """The result of a point; `hash` names its scenario, `row` holds the flat columns of its report and its
    errors, if any."""

    number: int
    asked: str
    status: Status
    reason: str
    hash: str
    row: Mapping[str, Any] = field(default_factory=dict)
    spent_s: float = 0.0


@dataclass(frozen=True)
class Work:
    """What all points of a sweep share, for workers; `limits` are constraints on keys of the scenario."""

    base: Mapping[str, Any]
    where: str
    limits: tuple[Constraint, ...] = ()

    def __call__(self, point: Point, memo: Memo) -> Outcome:
        """Predict a point; what points share is made once and kept in the memo."""
        began = time.perf_counter()
        return replace(self._predict(point, memo), spent_s=time.perf_counter() - began)

    def table(self, changes: Sequence[Changes]) -> dict[str, Any]:
        """The base with the changes; a UserError if it cannot be changed so."""
        return change(self.base, changes, self.where)

    def digest(self, changes: Sequence[Changes]) -> str:
        """A hash of the base with the changes, without its name; if they cannot be applied, a hash of the changes."""
        try:
            said: Any = {key: value for key, value in self.table(changes).items() if key not in FOR_PEOPLE}
        except UserError:
            said = [self.base, [list(some.items()) for some in changes]]
        return content_hash(said)[:16]

    def _predict(self, point: Point, memo: Memo) -> Outcome:
        """Check and simulate a point. What goes wrong with it is its outcome: no point ends a sweep."""
        status: Status
        try:
            scenario = check_question(self.table(point.changes), self.where)
            for limit in self.limits:
                if not limit.holds(values := values_in_scenario(limit.names, scenario)):
                    return Outcome(point.number, point.asked, "constraint", limit.reason(values), point.asked)
            report = simulate(scenario, memo=memo, where=self.where).report
            said = report.to_json()
            row = flat_columns(said) | {ERRORS: said.get(ERRORS)}
            if report.not_in_interval:
                row[BEYOND] = "; ".join(report.not_in_interval)
            status = "memory" if report.shortage else "ok"
            return Outcome(point.number, point.asked, status, report.shortage, report.scenario_hash, row)
        except UserError as error:
            status, reason = "infeasible", "; ".join(error.reasons(self.where))
        except Exception as error:
            status, reason = "failed", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return Outcome(point.number, point.asked, status, reason, point.asked)


@dataclass(frozen=True)
class Sweep:
    """All that a sweep file says. `limits` are checked before a point is simulated, `demands` on its row.

    `table` names columns that are worth printing. `base` is the scenario's table and `base_where` the file that faults
    name and other files are beside; `where` is the sweep file; `slurm` are options of dask-jobqueue's SLURMCluster.
    """

    name: str
    where: str
    base: Mapping[str, Any]
    base_where: str
    grid: Grid
    limits: tuple[Constraint, ...] = ()
    demands: tuple[Constraint, ...] = ()
    table: tuple[str, ...] = ()
    slurm: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.grid)

    @property
    def kind(self) -> str:
        """The kind of the base."""
        return str(self.base.get("kind", "weight_update"))

    @cached_property
    def work(self) -> Work:
        """The work that is sent to workers."""
        return Work(self.base, self.base_where, self.limits)

    def point(self, number: int) -> Point:
        """A point by its number."""
        changes = self.grid.tables(number)
        return Point(number, self.work.digest(changes), changes)

    def judge(self, outcome: Outcome) -> Outcome:
        """The outcome under the demands on its row, which keeps its values."""
        for demand in self.demands if outcome.status == "ok" else ():
            if not demand.holds(values := values_in_row(demand.names, outcome.row, self.kind)):
                return replace(outcome, status="constraint", reason=demand.reason(values))
        return outcome

    @cached_property
    def digest(self) -> str:
        """Names the sweep: what its points are and what they rest on, with the version of runcast."""
        steps = [step for axis in self.grid.axes for step in axis.steps]
        try:  # what the base rests on beyond its own table: machines, models, profiles
            resolved = resolve(check_question(self.base, self.base_where), self.base_where).hash
        except UserError as error:
            refused = "; ".join(error.reasons(self.base_where))
            resolved = f"{refused} {find_files(self.base, self.base_where)}"
        return content_hash({
            "base": {key: value for key, value in self.base.items() if key not in FOR_PEOPLE},
            "resolved": resolved,
            "axes": [(axis.columns, [(step.shown, [*step.changes.items()]) for step in axis.steps])
                     for axis in self.grid.axes],
            "files": find_files([step.changes for step in steps], self.base_where),
            "constraints": [one.text for one in (*self.limits, *self.demands)],
            "version": release(),
        })[:16]  # fmt: skip
