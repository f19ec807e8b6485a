"""A system: one kind of scenario, and how it is resolved and predicted. `registry` lists all."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..base.memo import Memo
from ..costs import Costs
from ..insight import CriticalPath
from ..program import Program
from ..report.report import Parts, Report, Total, Words
from ..schedules import Grid
from ..timeline import Timeline
from ..uncertainty import Errors
from .keys import Need, Pin, Rivals
from .tables import Table


@dataclass(frozen=True)
class SystemPrediction:
    """A resolved scenario, its timeline and its report."""

    resolved: Any
    timeline: Timeline
    report: Any

    @property
    def shown_ranks(self) -> tuple[int, ...] | None:
        """The ranks that charts and traces show; None: they choose."""
        return None

    @property
    def grid(self) -> Grid | None:
        """The pipeline schedule, if any."""
        return None

    @property
    def errors(self) -> Errors | None:
        """The errors of the seconds of ops, if known."""
        return None

    @property
    def costs(self) -> Costs:
        """How long each op takes alone."""
        costs: Costs = self.resolved.costs
        return costs

    def answer_s(self, timeline: Timeline) -> float:
        """The reported seconds, which may begin after the first op."""
        return timeline.makespan_s - float(self.resolved.opening_s(timeline))


@dataclass(frozen=True)
class System:
    """A kind of scenario; `best` is the metric that ranks predictions.

    `schema` is that of its file; `needs`, `rivals` and `pins` say how keys depend on each other (`keys`), `fill` adds
    defaults of, say, the software stack. `resolve(scenario, where, memo)` resolves a checked scenario, `predict`
    simulates it, `report` is the class of its report and `words` puts one in words. `total` takes the time that reports
    are compared by from a report as JSON that has the keys `total_needs`. `parts(report, program, path, class_s)`
    splits the total, given its critical path and that path's seconds by kind of op (None: `explain` does not know it).
    `what_ifs` are the subjects of shipped what-ifs that apply.
    """

    kind: str
    title: str
    short: str
    best: str
    schema: type[Table]
    resolve: Callable[[Any, str, Memo], Any]
    predict: Callable[[Any], Any]
    report: type[Report]
    words: Callable[[Any], Words]
    total: Callable[[Mapping[str, Any]], Total]
    total_needs: tuple[str, ...]
    parts: Callable[[Any, Program, CriticalPath, Mapping[str, float]], Parts] | None
    what_ifs: tuple[str, ...]
    needs: tuple[Need, ...]
    rivals: Rivals
    pins: tuple[Pin, ...]
    fill: Callable[[Mapping[str, Any], str], Mapping[str, Any]] = lambda table, _where: table

    @cached_property
    def dependent(self) -> frozenset[str]:
        """The keys that depend on others."""
        of_rivals = {key for rivals in self.rivals for key in rivals}
        return frozenset({need.key for need in self.needs} | {pin.key for pin in self.pins} | of_rivals)
