"""`runcast execute`: a scenario's Program run for real."""

from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
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
    """Run a scenario's Program for real, one process per GPU of the scenario, and check every byte.

    The processes use host memory and Gloo; with --device cuda a GPU each and NCCL, which nobody has tested so far.

    Under torchrun (`torchrun --nproc-per-node 4 --no-python runcast execute ...`) each process is one rank; otherwise
    all ranks are started on this machine.
    """
    from ..execute.world import World, spawn

    changes, world = changes or [], World.find()
    if world is None:
        if find_spec("torch") is None:
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        ranks = _checked(scenario, changes, out, device).program.ranks  # errors are said once, before ranks start
        flags = [flag for change in changes for flag in ("--set", change)] + (["--out", str(out)] if out else [])
        arguments = [str(scenario), "--device", device.value, *flags]
        raise typer.Exit(spawn(ranks, "runcast.calibrate.execute", arguments))
    with world.report_once():
        resolved = _checked(scenario, changes, out, device, world)
        _execute_rank(resolved, world, device, out)


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
