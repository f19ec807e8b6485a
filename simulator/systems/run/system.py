"""Runs as a system: from a checked scenario to its prediction."""

from dataclasses import dataclass

from ..system import System, SystemPrediction
from ..train_step.system import TrainPrediction
from . import keys
from .chart import timeline
from .history import History
from .report import TOTAL_NEEDS, RunReport, make_run_report, total
from .resolve import ResolvedRun
from .scenario import RunScenario
from .text import words


@dataclass(frozen=True)
class RunPrediction(SystemPrediction):
    """A resolved run, its timeline and report; `history` is what happened, `step` the prediction of a worker's step."""

    resolved: ResolvedRun
    report: RunReport
    history: History
    step: TrainPrediction | None

    @property
    def memory(self) -> tuple[int, int] | None:
        """That of a worker's step, if predicted."""
        return None if self.step is None else self.step.memory


def predict(resolved: ResolvedRun) -> RunPrediction:
    """Simulate a run, as often as its plan says, and report on it."""
    histories = [resolved.simulate(resolved.scenario.seed + i) for i in range(resolved.repeats)]
    first = histories[0]
    return RunPrediction(resolved, timeline(first), make_run_report(resolved, histories), first, resolved.step)


SYSTEM = System(
    kind="run", title="a training run", short="run", best="tokens_per_s",
    schema=RunScenario, resolve=ResolvedRun, predict=predict,
    report=RunReport, words=words, total=total, total_needs=TOTAL_NEEDS,
    parts=None, what_ifs=("run",), is_course=True,
    needs=keys.NEEDS, rivals=keys.RIVALS, pins=keys.PINS,
)  # fmt: skip
