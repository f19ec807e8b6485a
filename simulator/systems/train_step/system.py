"""Training steps as a system: from a checked scenario to its prediction."""

from dataclasses import dataclass

from ... import engine
from ...schedules import Grid
from ...uncertainty import Errors
from ..system import System, SystemPrediction
from . import keys
from .errors import step_errors
from .keys import add_defaults
from .report import TOTAL_NEEDS, TrainReport, make_train_report, parts, total
from .resolve import ResolvedTrain
from .scenario import TrainScenario
from .text import words


@dataclass(frozen=True)
class TrainPrediction(SystemPrediction):
    """A resolved training step, its timeline and its report."""

    resolved: ResolvedTrain
    report: TrainReport

    @property
    def shown_ranks(self) -> tuple[int, ...]:
        """The first rank of each pipeline rank."""
        return tuple(sorted(place.ranks[0] for place in self.timeline.program.places))

    @property
    def grid(self) -> Grid:
        """The pipeline schedule of the step."""
        return self.resolved.plan.grid

    @property
    def memory(self) -> tuple[int, int]:
        """(bytes that the fullest device needs, bytes that it has)."""
        return round(self.report.peak.peak_bytes), self.report.memory_bytes

    @property
    def errors(self) -> Errors:
        """The error model of op times, from the fit to measured steps."""
        return step_errors(self.resolved)


def predict(resolved: ResolvedTrain) -> TrainPrediction:
    """Simulate a resolved step and derive its report."""
    timeline = engine.simulate(resolved.program, resolved.costs)
    return TrainPrediction(resolved, timeline, make_train_report(resolved, timeline))


SYSTEM = System(
    kind="train_step", title="a training step", short="step", best="tokens_per_s",
    schema=TrainScenario, resolve=ResolvedTrain, predict=predict,
    report=TrainReport, words=words, total=total, total_needs=TOTAL_NEEDS,
    parts=parts, what_ifs=("machine", "plan"),
    needs=keys.NEEDS, rivals=keys.RIVALS, pins=keys.PINS, fill=add_defaults,
)  # fmt: skip
