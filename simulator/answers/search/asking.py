"""What a search asks of one plan: whether the scenario allows it, what it cannot be below, what a simulation says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...base.errors import UserError
from ...base.memo import Memo
from ...predict import simulate
from ...report.spending import rates
from ...scenario import Changes, changed, check_question
from ...schedules import SCHEDULES
from ...systems.train_step.report import TrainReport
from ...systems.train_step.resolve import ResolvedTrain
from ...systems.train_step.scenario import TrainScenario
from ...systems.weight_update.report import Report
from ...systems.weight_update.resolve import Resolved
from ...systems.weight_update.scenario import Scenario
from .brief import brief
from .floors import activation_bytes, floor_bytes, floor_s, states_bytes
from .found import LEFT, MEMORY, REFUSED, SIMULATED, Amounts, Measured, Row

_NOT_OF_STATES = ("batch.micro", "schedule", "recompute")


@dataclass(frozen=True)
class Asked:
    """The question: a scenario as a table, where it stands, what is wanted, and the memory that a plan may take."""

    table: Mapping[str, Any]
    where: str
    objective: str
    memory_bytes: float

    def scenario(self, changes: Changes, level: str = "coarse") -> TrainScenario | Scenario:
        """The scenario of a plan.

        Raises:
            UserError: it says what is not allowed.
        """
        extra = {"level": level} if self.table.get("kind") == "train_step" else {}
        found = check_question(changed(self.table, {**changes, **extra}, self.where), self.where)
        assert isinstance(found, TrainScenario | Scenario)
        return found


def screen(asked: Asked, plans: Sequence[Changes], memo: Memo | None = None) -> list[Row]:
    """What is known of plans without a simulation: refused, too large, or left with lower bounds."""
    shared = memo or Memo()
    return [_screened(asked, changes, shared) for changes in plans]


def _screened(asked: Asked, changes: Changes, memo: Memo) -> Row:
    try:
        if (states := _states(asked, changes, memo)) > asked.memory_bytes:
            return Row(changes, MEMORY, floor=Amounts(0.0, states, None))
        scenario = asked.scenario(changes)
        if isinstance(scenario, Scenario):
            return _screened_update(asked, changes, scenario, memo)
        resolved = brief(ResolvedTrain(scenario, asked.where, memo))
        if (least := states + activation_bytes(resolved)) > asked.memory_bytes:
            return Row(changes, MEMORY, floor=Amounts(0.0, least, None))
        needed = floor_bytes(resolved)
        if needed > asked.memory_bytes:
            return Row(changes, MEMORY, floor=Amounts(0.0, needed, None))
        seconds = floor_s(resolved)
    except UserError as error:
        return Row(changes, REFUSED, _without_place(asked, error))
    tokens, per_second = scenario.batch.global_ * scenario.batch.seq_len, rates(resolved.cluster).over(1.0).cost_usd
    cost = None if per_second is None else per_second * seconds / tokens
    return Row(changes, LEFT, floor=Amounts(seconds / tokens, needed, cost))


def _states(asked: Asked, changes: Changes, memo: Memo) -> float:
    """What states need at least: one number for all plans that share them, or 0 where that is not known."""
    schedule = changes.get("schedule")
    if asked.table.get("kind") != "train_step" or schedule is None:
        return 0.0
    if SCHEDULES[schedule["name"]].chunks not in (1, None):  # its first and last stage are not on the outer ranks
        return 0.0
    shared = {key: value for key, value in changes.items() if key not in _NOT_OF_STATES}
    return memo.get("states", repr(shared), lambda: _states_of(asked, {**changes, "schedule": {"name": "1f1b"}}, memo))


def _states_of(asked: Asked, changes: Changes, memo: Memo) -> float:
    try:
        scenario = asked.scenario(changes)
        assert isinstance(scenario, TrainScenario)
        return states_bytes(brief(ResolvedTrain(scenario, asked.where, memo)))
    except UserError:
        return 0.0


def _screened_update(asked: Asked, changes: Changes, scenario: Scenario, memo: Memo) -> Row:
    """No bound of an update's time is known; its plan finds what does not divide, fit or go together."""
    resolved = Resolved(scenario, asked.where, memo)
    _ = resolved.plan
    return Row(changes, LEFT, floor=Amounts(0.0, 0.0, None if _unpriced(resolved) else 0.0))


def _unpriced(resolved: Resolved) -> bool:
    return rates(resolved.cluster).usd_per_hour is None


def measure(asked: Asked, rows: Sequence[Row], memo: Memo | None = None) -> list[Row]:
    """The rows with what a simulation says of each."""
    shared = memo or Memo()
    return [_measured_row(asked, row, shared) for row in rows]


def _measured_row(asked: Asked, row: Row, memo: Memo) -> Row:
    try:
        found = predicted(asked, row.changes, memo)
    except UserError as error:
        return Row(row.changes, REFUSED, _without_place(asked, error), row.floor)
    return Row(row.changes, SIMULATED if found.fits else MEMORY, "", row.floor, found)


def predicted(asked: Asked, changes: Changes, memo: Memo | None = None, level: str = "coarse") -> Measured:
    """What a simulation says of a plan.

    Raises:
        UserError: it is not allowed.
    """
    report = simulate(asked.scenario(changes, level), memo=memo, where=asked.where).report
    return _of_step(asked, report) if isinstance(report, TrainReport) else _of_update(asked, report)


def _of_step(asked: Asked, report: TrainReport) -> Measured:
    tokens, needed, cost = report.tokens, report.peak.peak_bytes, report.spent.cost_usd
    amounts = Amounts(report.step_time_s / tokens, needed, None if cost is None else cost / tokens)
    fits = needed <= asked.memory_bytes
    return Measured(amounts, report.step_time_s, tokens, fits, needed, cost, dict(report.split_s))


def _of_update(asked: Asked, report: Report) -> Measured:
    time = report.pause_s if asked.objective == "pause" else report.update_time_s
    needed, cost = float(report.peak.bytes), report.spent.cost_usd
    return Measured(
        Amounts(time, needed, cost), time, 0, needed <= asked.memory_bytes, needed, cost, dict(report.exposed)
    )


def _without_place(asked: Asked, error: UserError) -> str:
    """The first line, without the file that all rows share."""
    return error.faults[0].removeprefix(f"{asked.where}: ")
