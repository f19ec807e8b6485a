"""`runcast execute`: a weight update or a collective run for real."""

from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ...simulator.systems.collective.resolve import ResolvedCollective
    from ...simulator.systems.weight_update.resolve import Resolved
    from ..execute.world import World

Scenario = Annotated[Path, typer.Argument(help="Scenario file (TOML).")]
Changes = Annotated[list[str] | None, typer.Option("--set", help="Change a key: update.bucket='2 GiB'.")]


class Device(StrEnum):
    """The device of buffers, and so the library that broadcasts them."""

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
    """Run a weight update or a collective for real, one process per GPU of the scenario, and check every byte.

    A collective runs by each algorithm and size, beside what is predicted; switches are processes of their own.
    The processes use host memory and Gloo; with --device cuda a GPU each and NCCL, which nobody has tested so far.

    Under torchrun (`torchrun --nproc-per-node 4 --no-python runcast execute ...`) each process is one rank; otherwise
    all ranks are started on this machine.
    """
    from ..execute.world import World, spawn

    changes, world = changes or [], World.find()
    if world is None:
        if find_spec("torch") is None:
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        ranks = _processes(scenario, changes, out, device)  # errors are said once, before ranks start
        flags = [flag for change in changes for flag in ("--set", change)] + (["--out", str(out)] if out else [])
        arguments = [str(scenario), "--device", device.value, *flags]
        raise typer.Exit(spawn(ranks, "runcast.calibrate.execute", arguments))
    with world.report_once():
        if _is_collective(scenario, changes):
            _execute_collective(_checked_collective(scenario, changes, out, device, world), world, out)
        else:
            _execute_rank(_checked(scenario, changes, out, device, world), world, device, out)


def _is_collective(scenario: Path, changes: list[str]) -> bool:
    from ...simulator.scenario import load_question

    return load_question(scenario, changes).kind == "collective"


def _processes(scenario: Path, changes: list[str], out: Path | None, device: Device) -> int:
    """How many processes a scenario takes; everything is checked that can be before they start."""
    if not _is_collective(scenario, changes):
        return _checked(scenario, changes, out, device).program.ranks
    from ..execute.collectives import processes

    return processes(_checked_collective(scenario, changes, out, device))


def _checked_collective(
    scenario: Path, changes: list[str], out: Path | None, device: Device, world: "World | None" = None
) -> "ResolvedCollective":
    """As `_checked`, of a collective."""
    from ...simulator.base.errors import UserError
    from ...simulator.scenario import load_question, resolve
    from ..execute.collectives import check
    from ..execute.measured import check_folder

    if device is Device.CUDA:
        raise UserError("--device cuda: collectives are executed on Gloo only")
    resolved: ResolvedCollective = resolve(load_question(scenario, changes), str(scenario))  # type: ignore[assignment]
    check(resolved, world)
    if out is not None:
        check_folder(out)
    return resolved


def _execute_collective(resolved: "ResolvedCollective", world: "World", out: Path | None) -> None:
    """Run this process; rank 0 prints the table, and wrong blocks are exit code 1."""
    from ..execute.collectives import execute_rows, lines, write

    rows = execute_rows(resolved, world)
    if world.rank:
        return
    for line in lines(rows):
        typer.echo(line)
    if out is not None:
        write(rows, resolved, out)
        typer.echo(f"wrote {out}")
    if wrong := sum(one.wrong for one in rows):
        typer.echo(f"error: {wrong} blocks hold wrong numbers", err=True)
        raise typer.Exit(1)


def _checked(
    scenario: Path, changes: list[str], out: Path | None, device: Device, world: "World | None" = None
) -> "Resolved":
    """The scenario, once everything is checked that can be before ranks meet; without a world all will be here."""
    from ...simulator.answers.compare.spans import unfold
    from ..execute.content import check_memory
    from ..execute.measured import check_folder

    resolved = unfold(scenario, changes)
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


def _execute_rank(resolved: "Resolved", world: "World", device: Device, out: Path | None) -> None:
    """Run this rank; rank 0 says how it went, and wrong bytes are exit code 1."""
    from ..execute.backend import Backend, CudaBackend
    from ..execute.run import execute_rank

    measured = execute_rank(resolved, world, CudaBackend(world.local_rank) if device is Device.CUDA else Backend())
    if measured is None:
        return
    typer.echo(measured.line())
    if out is not None:
        measured.write(out)
        typer.echo(f"wrote {out}")
    if wrong := measured.wrong:
        some = f": {', '.join(wrong[:3])}{', ...' if len(wrong) > 3 else ''}"
        typer.echo(f"error: {len(wrong)} tensors hold wrong bytes{some}", err=True)
        raise typer.Exit(1)
