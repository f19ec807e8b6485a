"""What `runcast validate` does for each kind of table: samples of kernels and collectives, weight updates, or steps."""

import sys
from collections.abc import Iterator
from pathlib import Path

from ...base.errors import UserError, unknown
from . import ledger_text, text
from .ledger import UpdateLedger, read_ledger
from .rows import KINDS
from .steps import StepLedger, read_step_ledger
from .steps import ledger_text as steps_text
from .steps.gate import TOLERANCE, Comparison, read_gate
from .validation import Validation, validate

UPDATES, STEPS = "weight_update", "train_step"

Found = Validation | UpdateLedger | StepLedger | Comparison


def hold_against(
    kind: str,
    rows: Path | None,
    profile: str | None = None,
    to_csv: bool = False,
    against: Path | None = None,
    tolerance: str | None = None,
) -> tuple[Found, Iterator[str]]:
    """Predict the rows of a file of this kind; the result and its lines for the terminal.

    `against` are predictions of training steps that were written earlier, from which one may differ by `tolerance`.

    Raises:
        UserError: an unknown kind, a file that is missing or cannot be read, or one without good rows of this kind.
    """
    if kind in (UPDATES, STEPS) and profile is not None:
        raise UserError(f"--profile: does not go with --kind {kind}: each row's device has its own")
    if kind == STEPS:
        return _steps(rows, against, tolerance)
    if against is not None:
        raise UserError(f"--against: goes with --kind {STEPS} only")
    if kind == UPDATES:
        ledger = read_ledger(rows)
        return ledger, ledger_text.lines(ledger)
    if kind not in KINDS:
        raise unknown("--kind", "", kind, [UPDATES, STEPS, *KINDS])
    if rows is None:
        raise UserError(f"--rows: --kind {kind} needs a table of measurements; only {UPDATES} and {STEPS} ship one")
    found = validate(rows, kind, profile, to_csv=to_csv)
    return found, text.lines(found)


def check_predicted(found: Found) -> None:
    """Raise UserError if no row at all has a prediction; it says why the first one has none."""
    ledger = found.ledger if isinstance(found, Comparison) else found
    if not ledger.predicted:
        line, reason = next(iter(ledger.reasons.items()))
        raise UserError(f"{ledger.path}: no row can be predicted; line {line}: {reason}")


def _steps(rows: Path | None, against: Path | None, tolerance: str | None) -> tuple[Found, Iterator[str]]:
    if against is None:
        if tolerance is not None:
            raise UserError("--tolerance: goes with --against only")
        ledger = read_step_ledger(rows, told=_tell)
        return ledger, steps_text.lines(ledger)
    gate = read_gate(against, tolerance or TOLERANCE)  # before minutes of predicting
    comparison = gate.against(read_step_ledger(rows, told=_tell))
    return comparison, comparison.lines()


def _tell(done: int, rows: int) -> None:
    """How far it is, on one line of a terminal that is wiped at the end."""
    if sys.stderr.isatty():
        end = "\r\x1b[K" if done == rows else ""
        print(f"\r{done:,} of {rows:,} rows predicted{end}", end="", file=sys.stderr, flush=True)
