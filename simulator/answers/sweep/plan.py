"""A sweep as a value: a base, a grid of changes to it, constraints, and the digest by which a folder knows it again."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from typing import Any

from ...base.errors import UserError
from ...base.units import format_bytes
from ...scenario import check_question, resolve
from ...systems.machines import canonical
from ...systems.tables import FOR_PEOPLE
from .axes import Grid, Step
from .columns import columns_of
from .constraints import Constraint, values_in_row
from .named import named_files
from .point import Outcome, Point, Work, refusal


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
        """What workers need to know."""
        return Work(self.base, self.base_where, self.limits)

    def point(self, number: int) -> Point:
        """A point by its number."""
        changes = self.grid.tables(number)
        return Point(number, self.work.asked(changes), changes)

    def judged(self, outcome: Outcome) -> Outcome:
        """The outcome under device memory and the demands on its row, which keeps its values."""
        if outcome.status == "ok" and outcome.row.get("fits") is False:
            return replace(outcome, status="memory", reason=_too_large(outcome.row))
        for demand in self.demands if outcome.status == "ok" else ():
            values = values_in_row(demand.names, outcome.row, columns_of(self.kind))
            if not demand.holds(values):
                return replace(outcome, status="constraint", reason=demand.broken(values))
        return outcome

    @cached_property
    def digest(self) -> str:
        """Names the sweep: what its points are and what they rest on, with the engine's version."""
        content = {
            "base": {key: value for key, value in self.base.items() if key not in FOR_PEOPLE},
            "resolved": _resolved_hash(self.base, self.base_where),
            "axes": [(axis.columns, [_said(step) for step in axis.steps]) for axis in self.grid.axes],
            "files": named_files([step.changes for axis in self.grid.axes for step in axis.steps], self.base_where),
            "constraints": [one.text for one in (*self.limits, *self.demands)],
            "version": version("runcast"),
        }
        return hashlib.sha256(canonical(content).encode()).hexdigest()[:16]


def _too_large(row: Mapping[str, Any]) -> str:
    needed, there = format_bytes(row["peak_memory_bytes"]), format_bytes(row["device_memory_bytes"])
    return f"needs {needed} of {there} on its fullest pipeline rank"


def _said(step: Step) -> Any:
    """A step as plain values; the order of its changes counts."""
    return step.shown, list(step.changes.items())


def _resolved_hash(base: Mapping[str, Any], where: str) -> str:
    """What the base rests on beyond its own table: machines, models, profiles. A refused one says why and its files."""
    try:
        return resolve(check_question(base, where), where).hash
    except UserError as error:
        return f"{refusal(error, where)} {named_files(base, where)}"
