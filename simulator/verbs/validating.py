"""`runcast validate`: predictions beside measurements."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ..base.errors import UserError


def validate(
    kind: Annotated[
        str,
        typer.Option(
            help="What to score: weight_update, train_step, run, rl_cycle, executed (our own runs), collective, gemm, "
            "attention, grouped_gemm, memory or copy."
        ),
    ],
    rows: Annotated[
        Path | None,
        typer.Option(
            help="Table of measurements: our own columns, or a published table's; weight_update, train_step, run, "
            "rl_cycle, executed and collective have their own, which is the default."
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Profile by name or file; default: the shipped one of each row's device.")
    ] = None,
    stack: Annotated[
        str | None, typer.Option(help="train_step, weight_update: one software stack for all rows, by name or file.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the rows with predictions beside them.")] = None,
    json: Annotated[str | None, typer.Option(help="Write the errors as JSON; - is stdout and nothing else.")] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            help="train_step, run, rl_cycle, executed: a CSV written earlier; says what moved since, exit code 1 if a "
            "row did."
        ),
    ] = None,
    tolerance: Annotated[
        str | None, typer.Option(help="With --against: how far a prediction may move; default 0.5%.")
    ] = None,
) -> None:
    """Predict measured training steps, weight updates, runs, collectives and kernels, and print how far off they are.

    Rows that cannot be predicted are listed with their reason. Exits with 2 if there is no other row.
    """
    from ..answers.outputs import Outputs, json_text
    from ..systems.machines import stamp

    outputs = Outputs(json=json, csv=csv)
    outputs.check()
    for given in filter(None, (rows, against)):
        if any(output.resolve() == given.resolve() for output in outputs.files):
            raise UserError(f"{given}: is a file that is read; it is not written over")
    if kind in _LEDGERS and profile is not None:
        raise UserError(f"--profile: does not go with --kind {kind}: each row's device has its own")
    if against is not None and kind not in _COMPARED:
        raise UserError(f"--against: goes with --kind {_words(_COMPARED)} only")
    if stack is not None and kind not in _ON_A_STACK:
        raise UserError(f"--stack: goes with --kind {_words(_ON_A_STACK)} only")
    if tolerance is not None and against is None:
        raise UserError("--tolerance: goes with --against only")
    if kind in _LEDGERS:
        found = _read_ledger(kind, rows, against, tolerance, stack)
    else:
        found = _validate(kind, rows, profile, csv is not None)
    ledger = found if against is None else found.ledger
    read = {str(rows or ledger.path.name): ledger.path}  # one that ships by its name alone
    read |= {str(one): Path(one) for one in (profile, stack, against) if one is not None}
    inputs = {"kind": kind, "profile": profile, "stack": stack, "tolerance": tolerance, "files": _digests(read)}
    text = json_text(stamp("validation", found.to_json() | {"inputs": inputs}))
    outputs.write(text, found.to_csv() if csv is not None else b"")
    outputs.tell(text, found.lines())
    if not ledger.predicted:
        first = [f"; line {line}: {reason}" for line, reason in ledger.reasons.items()][:1]
        raise UserError(f"{ledger.path}: no row can be predicted{''.join(first)}")
    if against is not None and found.moved:
        raise typer.Exit(1)


def _digests(read: Mapping[str, Path]) -> list[dict[str, str]]:
    """What is in the files of these names, those of the catalogue left out."""
    from ..base.files import digest

    return [{"name": name, "sha256": digest(path)} for name, path in read.items() if path.is_file()]


_LEDGERS = ("weight_update", "train_step", "run", "rl_cycle", "executed")
_ON_A_STACK = ("weight_update", "train_step")
_COMPARED = ("train_step", "run", "rl_cycle", "executed")


def _read_ledger(kind: str, rows: Path | None, against: Path | None, tolerance: str | None, stack: str | None) -> Any:
    """The ledger, or how it compares with predictions that were written earlier."""
    from ..answers.validate import LEDGERS, TOLERANCE, Comparison, read_gate
    from .progress import show_progress

    of = LEDGERS[kind]
    # before minutes of predicting
    gate = None if against is None else read_gate(against, of.predicted, tolerance or TOLERANCE)
    read = of.read if stack is None else partial(of.read, stack=stack)
    with show_progress("rows predicted", lines=False) as show:
        ledger: Any = read(rows, watch=lambda done, total: show("", done, total, ""))
    return ledger if gate is None else Comparison(gate, ledger)


def _validate(kind: str, rows: Path | None, profile: str | None, to_csv: bool) -> Any:
    from ..answers.validate import KINDS, SHIPPED, shipped_file, validate
    from ..base.errors import unknown

    if kind not in KINDS:
        raise unknown("--kind", "", kind, [*_LEDGERS, *KINDS])
    if rows is None and kind not in SHIPPED:
        ship = ", ".join([*_LEDGERS, *SHIPPED])
        raise UserError(f"--rows: --kind {kind} needs a table of measurements; only {ship} ship one")
    return validate(rows or shipped_file(SHIPPED[kind]), kind, profile, to_csv=to_csv)


def _words(kinds: Sequence[str]) -> str:
    """Kinds in words: `train_step, run and rl_cycle`."""
    *others, last = kinds
    return f"{', '.join(others)} and {last}" if others else last
