"""The verbs of this package on the command line: thin wrappers that parse flags, call the API and print."""

from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...simulator.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from ...simulator.scenario import Resolved
    from ..execute.measured import Measured
    from ..execute.world import World

Scenario = Annotated[Path, typer.Argument(help="Scenario file (TOML).")]
Changes = Annotated[list[str] | None, typer.Option("--set", help="Change a key: update.bucket='2 GiB'.")]


class Device(StrEnum):
    """Where buffers live and which library broadcasts them."""

    CPU = "cpu"
    CUDA = "cuda"


def execute(
    scenario: Scenario,
    changes: Changes = None,
    out: Annotated[Path | None, typer.Option(help="Folder for spans.csv and summary.json.")] = None,
    device: Annotated[
        Device, typer.Option(help="cpu: host memory and Gloo; cuda: a GPU per rank and NCCL, untested so far.")
    ] = Device.CPU,
) -> None:
    """Run a scenario's Program for real, one process per GPU of the scenario, and check every byte.

    The processes use host memory and Gloo; with --device cuda a GPU each and NCCL, which nobody has tested so far.

    Under torchrun (`torchrun --nproc-per-node 4 --no-python runcast execute ...`) each process is one rank; otherwise
    all ranks are started on this machine.
    """
    from ..execute.world import World

    world = World.from_environment()
    if world is None:
        raise typer.Exit(_launch(scenario, changes or [], out, device))
    with world.tells_once():
        resolved = _prepared(scenario, changes or [], out, device, world)
        _report(_execute_rank(resolved, world, device), out)


def compare(
    a: Annotated[Path, typer.Argument(help="What was measured: the folder or CSV file of `runcast execute`.")],
    b: Annotated[Path, typer.Argument(help="A scenario file (TOML), or another measurement.")],
    changes: Changes = None,
    csv: Annotated[Path | None, typer.Option(help="Write the comparison, a row per op and rank.")] = None,
) -> None:
    """Compare a measured run with its prediction, or with another run, op by op."""
    from ...simulator.files import write_atomic
    from ..compare import by_kind, hash_of_run, left_over, read_spans
    from ..compare import compare as join

    measured = read_spans(a)
    spans, column, other_hash = _other_side(b, changes or [])
    joined = join(measured, spans, column)
    _warn_if_others(a, hash_of_run(a), b, other_hash)
    typer.echo("seconds summed over ops and ranks:")
    _print_table(by_kind(joined))
    for side, ops in left_over(joined).items():
        typer.echo(f"only in {side.removesuffix('_s')}: {len(ops)} spans{_some(ops)}")
    if csv is not None:
        write_atomic(csv, joined.to_csv(index=False, lineterminator="\n").encode())


def _launch(scenario: Path, changes: list[str], out: Path | None, device: Device) -> int:
    """Start all ranks here; what is wrong is said once, before."""
    from ..execute.launch import spawn

    if find_spec("torch") is None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    resolved = _prepared(scenario, changes, out, device)
    flags = [flag for change in changes for flag in ("--set", change)] + (["--out", str(out)] if out else [])
    arguments = [str(scenario), "--device", device.value, *flags]
    return spawn(resolved.program.ranks, "runcast.calibrate.execute", arguments)


def _prepared(
    scenario: Path, changes: list[str], out: Path | None, device: Device, world: "World | None" = None
) -> "Resolved":
    """The scenario, once everything is checked that can be before ranks meet; without a world all will be here."""
    from ..compare import unfolded
    from ..execute.measured import check_folder
    from ..execute.memory import check_memory

    resolved = unfolded(scenario, changes)
    if world is not None:
        world.check(resolved.program.ranks, resolved.where)
    here = range(resolved.program.ranks) if world is None else world.ranks_here
    if out is not None:
        check_folder(out)
    check_memory(resolved, here, device)
    if device is Device.CUDA:
        from ..execute.backend import check_devices

        check_devices(len(here))
    return resolved


def _execute_rank(resolved: "Resolved", world: "World", device: Device) -> "Measured | None":
    from ..execute.backend import pick_backend
    from ..execute.run import execute_rank

    return execute_rank(resolved, world, pick_backend(device, world.local_rank))


def _report(measured: "Measured | None", out: Path | None) -> None:
    """Rank 0 says how it went; wrong bytes are exit code 1."""
    if measured is None:
        return
    typer.echo(measured.line())
    if out is not None:
        measured.write(out)
        typer.echo(f"wrote {out}")
    if measured.wrong:
        typer.echo(f"error: {len(measured.wrong)} tensors hold wrong bytes{_some(measured.wrong)}", err=True)
        raise typer.Exit(1)


def _other_side(path: Path, changes: list[str]) -> "tuple[pd.DataFrame, str, str | None]":
    """Its spans, the name of their column, and the scenario's hash if known."""
    from ..compare import hash_of_run, read_spans, simulated_spans, unfolded

    if path.suffix == ".toml":
        resolved = unfolded(path, changes)
        return simulated_spans(resolved), "simulated_s", resolved.hash
    if changes:
        raise UserError(f"--set changes a scenario, but {path} is a measurement")
    return read_spans(path), "other_s", hash_of_run(path)


def _warn_if_others(a: Path, hash_a: str | None, b: Path, hash_b: str | None) -> None:
    """The two sides are different scenarios: say so before any number."""
    if hash_a and hash_b and hash_a != hash_b:
        why = "other values, data files or version of runcast"
        typer.echo(f"warning: {a} ran scenario {hash_a}, but {b} is {hash_b} ({why}): the two need not agree")


def _print_table(table: "pd.DataFrame") -> None:
    """Seconds and ratios with four digits."""
    typer.echo(table.to_string(index=False, float_format=lambda value: f"{value:.4g}"))


def _some(names: list[str]) -> str:
    """A few of the names, after a colon."""
    return f": {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}" if names else ""
