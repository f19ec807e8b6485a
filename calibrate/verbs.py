"""The verbs of this package on the command line: thin wrappers that parse flags, call the API and print."""

import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..simulator.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from ..simulator.scenario import Resolved
    from .execute.measured import Measured
    from .execute.world import World

Scenario = Annotated[Path, typer.Argument(help="Scenario file (TOML).")]
Changes = Annotated[list[str] | None, typer.Option("--set", help="Change a key: update.bucket='2 GiB'.")]
_PATIENCE_S = 10  # for rank 0 to say what is wrong and its launcher to end the others


def execute(
    scenario: Scenario,
    changes: Changes = None,
    out: Annotated[Path | None, typer.Option(help="Folder for spans.csv and summary.json.")] = None,
) -> None:
    """Run a scenario's Program for real, one process per GPU of the scenario, and check every byte.

    Under torchrun (`torchrun --nproc-per-node 4 --no-python runcast execute ...`) each process is one rank; otherwise
    all ranks are started on this machine.
    """
    from .execute.world import World

    world = World.from_environment()
    if world is None:
        raise typer.Exit(_launch(scenario, changes or [], out))
    try:
        resolved = _prepared(scenario, changes or [], out)
        _report(_execute_rank(resolved, world), out)
    except UserError:
        _leave_to_rank_0(world)
        raise


def compare(
    a: Annotated[Path, typer.Argument(help="What was measured: the folder or CSV file of `runcast execute`.")],
    b: Annotated[Path, typer.Argument(help="A scenario file (TOML), or another measurement.")],
    changes: Changes = None,
    csv: Annotated[Path | None, typer.Option(help="Write the comparison, a row per op and rank.")] = None,
) -> None:
    """Compare a measured run with its prediction, or with another run, op by op."""
    from ..simulator.files import write_atomic
    from .compare import by_kind, left_over, read_spans
    from .compare import compare as join

    measured = read_spans(a)
    joined = join(measured, *_other_side(b, changes or []))
    _print_table(by_kind(joined))
    for side, ops in left_over(joined).items():
        typer.echo(f"only in {side.removesuffix('_s')}: {len(ops)} spans{_some(ops)}")
    if csv is not None:
        write_atomic(csv, joined.to_csv(index=False, lineterminator="\n").encode())


def _launch(scenario: Path, changes: list[str], out: Path | None) -> int:
    """Start all ranks here; what is wrong with the scenario is said once, before."""
    from .execute.launch import spawn

    if find_spec("torch") is None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    resolved = _prepared(scenario, changes, out)
    flags = [flag for change in changes for flag in ("--set", change)] + (["--out", str(out)] if out else [])
    return spawn(resolved.program.ranks, "runcast.calibrate.execute", [str(scenario), *flags])


def _prepared(scenario: Path, changes: list[str], out: Path | None) -> "Resolved":
    """Everything that can be found wrong before torch is there."""
    from .compare import unfolded

    resolved = unfolded(scenario, changes)
    try:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: cannot make this folder: {error.strerror}") from None
    return resolved


def _execute_rank(resolved: "Resolved", world: "World") -> "Measured | None":
    from .execute.run import execute_rank

    return execute_rank(resolved, world)


def _report(measured: "Measured | None", out: Path | None) -> None:
    """Rank 0 says how it went; wrong bytes are exit code 1."""
    if measured is None:
        return
    if out is not None:
        measured.write(out)
    typer.echo(measured.line())
    if out is not None:
        typer.echo(f"wrote {out}")
    if measured.wrong:
        typer.echo(f"error: {len(measured.wrong)} tensors hold wrong bytes{_some(measured.wrong)}", err=True)
        raise typer.Exit(1)


def _leave_to_rank_0(world: "World") -> None:
    """All ranks find the same mistakes: rank 0 tells them, the others wait until it has, and leave."""
    if world.rank:
        time.sleep(_PATIENCE_S)
        sys.exit(2)


def _other_side(path: Path, changes: list[str]) -> "tuple[pd.DataFrame, str]":
    from .compare import read_spans, simulated_spans, unfolded

    if path.suffix == ".toml":
        return simulated_spans(unfolded(path, changes)), "simulated_s"
    if changes:
        raise UserError(f"--set changes a scenario, but {path} is a measurement")
    return read_spans(path), "other_s"


def _print_table(table: "pd.DataFrame") -> None:
    """Seconds and ratios with four digits."""
    typer.echo(table.to_string(index=False, float_format=lambda value: f"{value:.4g}"))


def _some(names: list[str]) -> str:
    """A few of the names, after a colon."""
    return f": {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}" if names else ""
