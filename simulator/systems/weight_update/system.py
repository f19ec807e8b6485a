"""Weight updates as a system: from a checked scenario to its prediction."""

from dataclasses import dataclass

from ... import engine
from ...base.memo import Memo
from ...uncertainty import Errors, errors_of_costs
from ..system import System, SystemPrediction
from . import keys
from .methods import METHODS
from .report import TOTAL_NEEDS, Report, make_report, parts, total
from .resolve import Resolved
from .scenario import Scenario
from .served import ServedUpdate
from .text import words
from .transfers import TransferUpdate


@dataclass(frozen=True)
class Prediction(SystemPrediction):
    """A resolved update, its timeline and its report."""

    resolved: Resolved
    report: Report

    @property
    def memory(self) -> tuple[int, int]:
        """Bytes that the fullest device needs, and that the smallest has."""
        return round(self.report.peak.bytes), self.report.memory_bytes

    @property
    def errors(self) -> Errors:
        """The errors of the numbers that price the ops."""
        return errors_of_costs(self.resolved.costs, self.resolved.profile.name)


def resolve(scenario: Scenario, where: str = "scenario", memo: Memo | None = None) -> Resolved:
    """The resolved update, from trainers or by parameter servers."""
    kind = TransferUpdate if METHODS[scenario.update.method].starts_at_trainers else ServedUpdate
    return kind(scenario, where, memo or Memo())


def predict(resolved: Resolved) -> Prediction:
    """Simulate an update and report on it."""
    timeline = engine.simulate(resolved.program, resolved.costs)
    return Prediction(resolved, timeline, make_report(resolved, timeline))


SYSTEM = System(
    kind="weight_update", title="a weight update", short="update", best="update_time_s",
    schema=Scenario, resolve=resolve, predict=predict,
    report=Report, words=words, total=total, total_needs=TOTAL_NEEDS,
    parts=parts, what_ifs=("machine", "update"),
    needs=keys.NEEDS, rivals=keys.RIVALS, pins=keys.pins(lambda update: update),
)  # fmt: skip
