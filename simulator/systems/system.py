"""A system: one kind of scenario, and how it is resolved and predicted. `registry` lists all systems."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..base.memo import Memo
from ..costs import Costs
from ..insight import CriticalPath
from ..program import Program
from ..report.answer import Answer
from ..report.columns import flat_columns
from ..report.report import Parts, Report, Total, Words, lines, page_tables
from ..report.report import Table as TextTable
from ..schedules import Grid
from ..timeline import Timeline
from ..uncertainty import Errors
from .keys import Need, Pin, Rivals
from .machines import stamp
from .tables import Table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SystemPrediction(Answer):
    """A resolved scenario, its timeline and its report.

    `report` has the headline numbers, `timeline` what happened when, `resolved` what the scenario's names stand for.
    """

    resolved: Any
    timeline: Timeline
    report: Any

    @property
    def shown_ranks(self) -> tuple[int, ...] | None:
        """The ranks that charts and traces show. None: charts and traces choose ranks themselves."""
        return None

    @property
    def grid(self) -> Grid | None:
        """The pipeline schedule; None if the system has none."""
        return None

    @property
    def errors(self) -> Errors | None:
        """The error model of op times (`uncertainty`); None if the system has none."""
        return None

    @property
    def memory(self) -> tuple[int, int] | None:
        """(bytes that the fullest device needs, bytes that it has); None if the system predicts no memory."""
        return None

    @property
    def fits(self) -> bool | None:
        """Whether every device has the memory that it needs; None if the system predicts no memory."""
        fits: bool | None = self.report.fits
        return fits

    def to_json(self) -> dict[str, Any]:
        """The report as plain values in SI units (docs/reports.md), and `inputs`, which reproduce it."""
        return stamp(self.report.kind, {**self.report.to_json(), "inputs": self.resolved.inputs})

    def frame(self) -> "pd.DataFrame":
        """One row with the columns that a sweep's report.csv has: `step_time_s`, `exposed_gemm_s`, `cost_usd`, …"""
        import pandas as pd

        report = self.report
        who = {"name": report.name, "kind": report.kind, "scenario_hash": report.scenario_hash}
        return pd.DataFrame([who | flat_columns(report.to_json())])

    def lines(self) -> Iterator[str]:
        """What `runcast simulate` prints."""
        return lines(self.report, self._words)

    def tables(self) -> list[TextTable]:
        """The tables of the report's page."""
        return page_tables(self.report, self._words)

    @property
    def _words(self) -> Words:
        from .registry import SYSTEMS

        return SYSTEMS[self.report.kind].words(self.report)

    @property
    def costs(self) -> Costs | None:
        """The time of each op without contention, and the rates that it asks of links; None if the system has none."""
        costs: Costs | None = self.resolved.costs
        return costs

    def answer_s(self, timeline: Timeline) -> float:
        """The time in seconds that a report states for `timeline`. It may begin after the first op."""
        return timeline.makespan_s - float(self.resolved.opening_s(timeline))


@dataclass(frozen=True)
class System:
    """A kind of scenario.

    Names: `title` and `short` name the system in texts; `best` is the metric that ranks predictions.
    Keys: `schema` checks the scenario's file; `needs`, `rivals` and `pins` are the dependencies between keys (module
    `keys`); `fill(table, where)` adds defaults, such as those of the software stack.
    Steps: `resolve(scenario, where, memo)` resolves a checked scenario, and `predict(resolved)` simulates it.
    Report: `report` is its class, and `words` turns a report into text. `total` reads the time that comparisons use
    from a report as JSON with the keys `total_needs`. `parts(report, program, path, class_s)` splits this time, given
    the critical path and the path's seconds by kind of op; None: its answer is no critical path.
    Timeline: `is_course` tells whether it is a course of weeks by cause, and no ops of devices.
    What-ifs: `what_ifs` are the subjects of the shipped what-ifs that apply; with none, `explain` refuses the system.
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
    is_course: bool = False
    fill: Callable[[Mapping[str, Any], str], Mapping[str, Any]] = lambda table, _where: table

    @property
    def has_levers(self) -> bool:
        """Whether `explain` tries what-ifs alone: there is no critical path on which numbers could be weighed."""
        return self.parts is None and bool(self.what_ifs)

    @cached_property
    def dependent(self) -> frozenset[str]:
        """The keys that depend on other keys."""
        of_rivals = {key for rivals in self.rivals for key in rivals}
        return frozenset({need.key for need in self.needs} | {pin.key for pin in self.pins} | of_rivals)
