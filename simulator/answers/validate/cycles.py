"""The ledger of published rollouts and RL cycles: rows of data/validation/rl_cycle.csv beside their predictions.

A row is a scenario file of data/validation/cycles with changes, and a number of its report, as in the ledger of runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot, sqrt
from pathlib import Path
from typing import Any, ClassVar, cast

from ...base.memo import Memo
from ...profile import Z90
from ...runner import Runner
from ...scenario import check_question, resolve
from ...systems.rl_cycle.errors import WHOLE, shipped_cycle_errors
from ...systems.rl_cycle.report import CycleReport
from ...systems.rl_cycle.resolve import ResolvedCycle
from ...systems.rl_cycle.system import predict
from .ledger import Watch, shipped_file
from .metrics import value_of
from .run_rows import RunCase, read_cases
from .runs import RunLedger, predict_rows

_OF_PHASE: Mapping[str, Sequence[str]] = {
    "rollout": ("rollout_s", "tail_s", "token_time_s"),
    "train": ("train_s", "learn_s", "forward_s"),
    "update": ("update_s",),
}
"""Metrics whose errors are those of a phase alone."""


@dataclass(frozen=True)
class CycleCase(RunCase):
    """A row of the ledger of cycles."""

    kind: ClassVar[str] = "rl_cycle"
    kinds: ClassVar[tuple[str, ...]] = ("rl_cycle",)
    files: ClassVar[str] = "cycles"

    def predict(self, memo: Memo) -> dict[str, Any]:
        """The metric, and as `width` the standard deviation of its logarithm.

        Raises:
            UserError: the scenario contains something that is not allowed, or the report has no such metric.
        """
        report, metric = self._report(memo), self.cells.text("metric")
        predicted = value_of(report.to_json(), metric)
        return {"predicted": predicted, "width": _deviation(report, metric), "mode": report.mode}

    def _report(self, memo: Memo) -> CycleReport:
        """The report of its scenario, of which other rows may hold other metrics."""
        where, scenario = self.origin or self.where, self.scenario
        assert scenario is not None

        def make() -> CycleReport:
            return predict(cast(ResolvedCycle, resolve(check_question(scenario, where), where, memo))).report

        return memo.get("report", (where, repr(scenario)), make)

    def interval(self, found: Mapping[str, Any]) -> tuple[float | None, float | None]:
        """The 90 % interval, from the errors of its phases, and of a whole step what cycles of other sources missed.

        None where all is given.
        """
        whole = self.cells.text("metric") == WHOLE
        rest = shipped_cycle_errors().width(self.cells.text("source")) if whole else 0.0
        factor = exp(Z90 * hypot(found["width"], rest))
        return (found["predicted"] / factor, found["predicted"] * factor) if factor > 1 else (None, None)


def _deviation(report: CycleReport, metric: str) -> float:
    """The error of a metric, without what a whole cycle leaves out."""
    phase = next((phase for phase, metrics in _OF_PHASE.items() if metric in metrics), "")
    if phase == "rollout":
        return report.engine.step.spread if report.engine is not None else 0.0
    part = {"train": report.training, "update": report.update}.get(phase)
    return part.budget.deviation if part is not None else sqrt(report.budget.deviation**2 - report.rest**2)


@dataclass(frozen=True, eq=False)
class CycleLedger(RunLedger):
    """The rows of a file of rollouts and cycles."""

    kind = "rl_cycle"
    title = "Rollouts and cycles"
    every = "measured rollouts and cycles"
    fitted = "host times of engines and of a switch were fitted to 8 of them, nothing else was"


def read_cycle_ledger(
    path: Path | None = None, runner: Runner | None = None, watch: Watch | None = None
) -> CycleLedger:
    """Predict the rows of a file (default: the one that ships); `watch` hears how many are done.

    A UserError if the file cannot be read, or lacks a column.
    """
    path = path or shipped_file("rl_cycle.csv")
    return predict_rows(CycleLedger, path, read_cases(path, CycleCase), runner, watch)
