"""What a search asks of one plan: whether the scenario allows it, what it cannot be below, what a simulation says."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...base.errors import UserError
from ...base.memo import Memo
from ...predict import simulate
from ...scenario import Changes
from .found import MEMORY, REFUSED, SIMULATED, Amounts, Measured, Row
from .steps import STEPS
from .subject import Asked, Subject
from .updates import UPDATES

SUBJECTS: Mapping[str, Subject] = {"train_step": STEPS, "weight_update": UPDATES}
"""By kind of scenario."""


def subject_of(table: Mapping[str, Any]) -> Subject:
    """What a table that can be searched is of."""
    return SUBJECTS[table.get("kind", "weight_update")]


def screen(asked: Asked, plans: Sequence[Changes], memo: Memo | None = None) -> list[Row]:
    """What is known of plans without a simulation: refused, too large, or left with lower bounds."""
    shared = memo or Memo()
    return [_screened(asked, changes, shared) for changes in plans]


def _screened(asked: Asked, changes: Changes, memo: Memo) -> Row:
    subject = subject_of(asked.table)
    try:
        if (states := subject.states_bytes(asked, changes, memo)) > asked.memory_bytes:
            return Row(changes, MEMORY, floor=Amounts(0.0, states, None))
        return subject.screened(asked, changes, asked.scenario(changes), states, memo)
    except UserError as error:
        return Row(changes, REFUSED, _without_place(asked, error))


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


def predicted(asked: Asked, changes: Changes, memo: Memo | None = None, finest: bool = False) -> Measured:
    """What a simulation says of a plan.

    Raises:
        UserError: it is not allowed.
    """
    report = simulate(asked.scenario(changes, finest), memo=memo, where=asked.where).report
    return subject_of(asked.table).measured(asked, report)


def _without_place(asked: Asked, error: UserError) -> str:
    """The first line, without the file that all rows share."""
    return error.faults[0].removeprefix(f"{asked.where}: ")
