"""What a system is: one kind of scenario, what it stands for, and how it is predicted.

Each folder beside this file has one, and `registry` lists them; nothing else need know which kinds there are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..base.memo import Memo
from ..costs import Costs
from ..program import Program
from ..report.report import Parts, Report, Total, Words
from ..schedules import Grid
from ..timeline import Timeline
from ..timeline.insight import CriticalPath
from ..uncertainty import Errors
from .keys import Need, Pin, Rivals
from .tables import Table


def keep_table(table: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The table of a scenario to which nothing is added."""
    return table


@dataclass(frozen=True)
class SystemPrediction:
    """What a scenario resolves to, what happens when, and the report."""

    resolved: Any
    timeline: Timeline
    report: Any

    @property
    def shown_ranks(self) -> tuple[int, ...] | None:
        """The ranks that a chart or trace shows; None: those that it chooses itself."""
        return None

    @property
    def grid(self) -> Grid | None:
        """The pipeline that it runs, if any."""
        return None

    @property
    def errors(self) -> Errors | None:
        """What the seconds of ops may be off by, where that is known."""
        return None

    @property
    def costs(self) -> Costs:
        """How long each op takes alone."""
        costs: Costs = self.resolved.costs
        return costs

    def answer_s(self, timeline: Timeline) -> float:
        """Seconds of what is asked for, which may begin after the first op."""
        return timeline.makespan_s - float(self.resolved.opening_s(timeline))


@dataclass(frozen=True)
class System:
    """A kind of scenario; `best` is the metric by which one of many predictions is.

    `schema` is what its file may say, `needs`, `rivals` and `pins` how its keys depend on each other (`keys`), and
    `fill` adds what the file leaves to others, such as its software stack. `resolve` takes a checked scenario, where it
    is from, and a Memo, and finds what its names stand for; `predict` makes a prediction of that, whose report is a
    `report`, and `words` says it in words. `total` takes from such a report as JSON, which has `total_needs`, the time
    that it is compared by. `parts` says what a report's total is made of, given its Program, the critical path of the
    total and that path's seconds by kind of op, or is None where nothing is explained; `what_ifs` are the subjects of
    shipped what-ifs that may help.
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
    fill: Callable[[Mapping[str, Any], str], Mapping[str, Any]] = keep_table

    @property
    def dependent(self) -> frozenset[str]:
        """The keys that may lose their meaning when others change."""
        of_rivals = {key for rivals in self.rivals for key in rivals}
        return frozenset({need.key for need in self.needs} | {pin.key for pin in self.pins} | of_rivals)
