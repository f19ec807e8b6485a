"""RL cycles as a system: from a checked scenario to its prediction."""

from dataclasses import dataclass

from ..system import System, SystemPrediction
from ..weight_update.system import Prediction
from ..weight_update.system import predict as predict_update
from . import keys
from .report import TOTAL_NEEDS, CycleReport, make_cycle_report, total
from .resolve import ResolvedCycle
from .run import CycleRun, run_cycle
from .scenario import CycleScenario
from .text import words


@dataclass(frozen=True)
class CyclePrediction(SystemPrediction):
    """A resolved cycle, its timeline and report; `run` has the requests, `update` the weight update if simulated."""

    resolved: ResolvedCycle
    report: CycleReport
    run: CycleRun
    update: Prediction | None

    @property
    def memory(self) -> tuple[int, int] | None:
        """That of its training step or its update, whichever needs the larger share; None if neither is predicted."""
        training = self.resolved.training
        step = None if training is None else training.step
        parts = [one.memory for one in (step, self.update) if one is not None]
        return max(parts, key=lambda memory: memory[0] / memory[1], default=None)

    @property
    def errors(self) -> None:
        """None: the errors of given times are not known."""
        return None

    @property
    def shown_ranks(self) -> tuple[int, ...]:
        """The first rank of the trainer and of some engines."""
        firsts = [place.ranks[0] for place in self.timeline.program.places]
        return tuple(sorted({*firsts[:7], firsts[-1]}))


def predict(resolved: ResolvedCycle) -> CyclePrediction:
    """Run a cycle around its update and report on it."""
    of = resolved.update
    update = resolved.memo.get("update of a cycle", of.hash, lambda: predict_update(of)) if of is not None else None
    report = update.report if update is not None else None
    run = run_cycle(resolved.plan(report))
    return CyclePrediction(resolved, run.timeline, make_cycle_report(resolved, run, report), run, update)


SYSTEM = System(
    kind="rl_cycle", title="an RL cycle", short="cycle", best="tokens_per_s",
    schema=CycleScenario, resolve=ResolvedCycle, predict=predict,
    report=CycleReport, words=words, total=total, total_needs=TOTAL_NEEDS,
    parts=None, what_ifs=("update", "machine"),
    needs=keys.NEEDS, rivals=keys.RIVALS, pins=keys.PINS,
)  # fmt: skip
