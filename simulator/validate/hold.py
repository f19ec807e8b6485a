"""What `runcast validate` does for each kind of table: samples of kernels and collectives, or whole weight updates."""

from collections.abc import Iterator
from pathlib import Path

from ..errors import UserError, unknown
from . import ledger_text, text
from .kinds import KINDS
from .ledger import Ledger, read_ledger
from .validation import Validation, validate

UPDATES = "weight_update"


def hold_against(
    kind: str, rows: Path | None, profile: str | None = None, to_csv: bool = False
) -> tuple[Validation | Ledger, Iterator[str]]:
    """Predict the rows of a file of this kind; the result and its lines for the terminal.

    Raises:
        UserError: an unknown kind, a file that is missing or cannot be read, or one without good rows of this kind.
    """
    if kind == UPDATES:
        if profile is not None:
            raise UserError("--profile: does not go with --kind weight_update: each row's device has its own")
        ledger = read_ledger(rows)
        return ledger, ledger_text.lines(ledger)
    if kind not in KINDS:
        raise unknown("--kind", "", kind, [UPDATES, *KINDS])
    if rows is None:
        raise UserError(f"--rows: --kind {kind} needs a table of measurements; only {UPDATES} ships one")
    found = validate(rows, kind, profile, to_csv=to_csv)
    return found, text.lines(found)
