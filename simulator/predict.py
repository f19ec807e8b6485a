"""The Python API of `runcast simulate`: a scenario in, a Prediction out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from . import engine
from .cycle import CycleRun, run_cycle
from .cycle_report import CycleReport, make_cycle_report
from .memo import Memo
from .report import Report, make_report
from .scenario import (
    AnyResolved,
    AnyScenario,
    CycleScenario,
    Resolved,
    ResolvedCycle,
    ResolvedTrain,
    Scenario,
    TrainScenario,
    Updated,
    load_question,
    resolve,
)
from .timeline import Timeline
from .train_report import TrainReport, make_train_report


@dataclass(frozen=True)
class Prediction:
    """What a scenario resolves to, what happens when, and the report."""

    resolved: Resolved
    timeline: Timeline
    report: Report

    @property
    def shown_ranks(self) -> None:
        """The ranks that a chart or trace shows: those that it chooses itself."""
        return None


@dataclass(frozen=True)
class CyclePrediction:
    """The same for an RL cycle; `run` holds its requests too, and `update` its weight update if that is simulated."""

    resolved: ResolvedCycle
    run: CycleRun
    report: CycleReport
    update: Prediction | None

    @property
    def timeline(self) -> Timeline:
        """What happens when, on engines and trainer."""
        return self.run.timeline

    @property
    def shown_ranks(self) -> tuple[int, ...]:
        """The first rank of the trainer and of some engines."""
        firsts = [place.ranks[0] for place in self.timeline.program.places]
        return tuple(sorted({*firsts[:7], firsts[-1]}))


@dataclass(frozen=True)
class TrainPrediction:
    """The same for a training step."""

    resolved: ResolvedTrain
    timeline: Timeline
    report: TrainReport

    @property
    def shown_ranks(self) -> tuple[int, ...]:
        """The first rank of each pipeline rank."""
        return tuple(sorted(place.ranks[0] for place in self.timeline.program.places))


AnyPrediction = Prediction | CyclePrediction | TrainPrediction


@overload
def simulate(
    scenario: Scenario, changes: Sequence[str] = (), memo: Memo | None = None, where: str = ...
) -> Prediction: ...
@overload
def simulate(
    scenario: CycleScenario, changes: Sequence[str] = (), memo: Memo | None = None, where: str = ...
) -> CyclePrediction: ...
@overload
def simulate(
    scenario: TrainScenario, changes: Sequence[str] = (), memo: Memo | None = None, where: str = ...
) -> TrainPrediction: ...
@overload
def simulate(
    scenario: str | Path, changes: Sequence[str] = (), memo: Memo | None = None, where: str = ...
) -> AnyPrediction: ...


def simulate(
    scenario: AnyScenario | str | Path,
    changes: Sequence[str] = (),
    memo: Memo | None = None,
    where: str = "scenario",
) -> AnyPrediction:
    """Predict a scenario, given as a value or as a file with `key=value` changes.

    Faults of a value name `where` it is from, and files that it names may be beside that. Predictions of training steps
    that are given one `memo` share what they can: profiles, clusters, coarse Programs.

    Raises:
        UserError: the scenario says something that is not allowed, one line per fault.
    """
    if isinstance(scenario, str | Path):
        return _predict(load_question(scenario, changes), str(scenario), memo or Memo())
    return _predict(scenario, where, memo or Memo())


def _predict(scenario: AnyScenario, where: str, memo: Memo) -> AnyPrediction:
    return predicted(resolve(scenario, where, memo))


def predicted(resolved: AnyResolved) -> AnyPrediction:
    """The prediction of a scenario that is resolved already, such as for its hash.

    Raises:
        UserError: as `simulate`.
    """
    if isinstance(resolved, ResolvedTrain):
        return _train_step(resolved)
    return _cycle(resolved) if isinstance(resolved, ResolvedCycle) else _weight_update(resolved)


def _weight_update(resolved: Resolved) -> Prediction:
    timeline = engine.simulate(resolved.program, resolved.costs)
    return Prediction(resolved, timeline, make_report(resolved, timeline))


def _train_step(resolved: ResolvedTrain) -> TrainPrediction:
    timeline = engine.simulate(resolved.program, resolved.costs)
    return TrainPrediction(resolved, timeline, make_train_report(resolved, timeline))


def _cycle(resolved: ResolvedCycle) -> CyclePrediction:
    update = _weight_update(resolved.update) if resolved.update is not None else None
    report = update.report if update is not None else None
    run = run_cycle(resolved.plan(resolved.given_update if report is None else _updated(report)))
    return CyclePrediction(resolved, run, make_cycle_report(resolved, run, report), update)


def _updated(report: Report) -> Updated:
    """An update as the cycle sees it; what comes before the update proper, such as a drain, the cycle has itself."""
    return Updated(report.update_time_s, min(report.pause_s, report.update_time_s), report.gpus)
