"""`runcast execute`: a weight update, a training step or a collective run for real."""

from datetime import timedelta
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...simulator.verbs.names import complete

if TYPE_CHECKING:
    from ..execute.kinds import Execution
    from ..execute.world import World

Scenario = Annotated[
    Path, typer.Argument(help="Scenario: a file, or a shipped name.", autocompletion=complete("scenarios"))
]
Changes = Annotated[list[str] | None, typer.Option("--set", help="Change a key: update.bucket='2 GiB'.")]


class Device(StrEnum):
    """The device of buffers, and so the library that broadcasts them."""

    CPU = "cpu"
    CUDA = "cuda"


def execute(
    scenario: Scenario,
    changes: Changes = None,
    out: Annotated[Path | None, typer.Option(help="Folder for spans.csv and summary.json.")] = None,
    scale: Annotated[
        int | None, typer.Option(min=1, help="Of a step: instead of the scenario's execute.scale.")
    ] = None,
    device: Annotated[
        Device, typer.Option(help="cpu: host memory and Gloo; cuda: a GPU per rank and NCCL, untested on several.")
    ] = Device.CPU,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds: a rank for which an op waits longer is lost, and the run ends.")
    ] = 600,
) -> None:
    """Run a weight update, a training step or a collective for real, one process per GPU of the scenario.

    Values are checked: every byte of an update, the gradients of a step, every block of a collective. A collective runs
    by each algorithm and size, beside what is predicted; switches are processes of their own. The processes use host
    memory and Gloo; with --device cuda they take a GPU each and NCCL, which nobody has tested so far.

    Under torchrun (`torchrun --nproc-per-node 4 --no-python runcast execute ...`) each process is one rank; otherwise
    all ranks are started on this machine.
    """
    from ..execute.world import World, leave, spawn

    changes = [*(changes or []), *([f"execute.scale={scale}"] if scale else [])]
    world = World.find(timedelta(seconds=timeout))
    if world is None:
        if find_spec("torch") is None:
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        ranks = _checked(scenario, changes, out, device).processes  # errors are said once, before ranks start
        flags = [flag for change in changes for flag in ("--set", change)] + (["--out", str(out)] if out else [])
        arguments = [str(scenario), "--device", device.value, "--timeout", str(timeout), *flags]
        raise typer.Exit(spawn(ranks, "runcast.calibrate.execute", arguments))
    with world.report_once():
        is_right = _run(_checked(scenario, changes, out, device, world), world, device, out)
    if world.size > 1:
        leave(0 if is_right else 1)
    raise typer.Exit(0 if is_right else 1)


def _checked(
    scenario: Path, changes: list[str], out: Path | None, device: Device, world: "World | None" = None
) -> "Execution":
    """The scenario, once everything is checked that can be before ranks meet; without a world all will be here."""
    from ..execute.kinds import execution_of
    from ..execute.measured import check_folder

    execution = execution_of(scenario, changes)
    here = range(execution.processes) if world is None else world.ranks_here
    if out is not None:
        check_folder(out)
    execution.check(here, device)
    if device is Device.CUDA:
        from ..execute.backend import check_devices

        check_devices(len(here))
    return execution


def _run(execution: "Execution", world: "World", device: Device, out: Path | None) -> bool:
    """Run this process; the first says how it went. Returns whether the values are right, as far as it knows."""
    from ..execute.backend import Backend, CudaBackend

    outcome = execution.run(world, CudaBackend(world.local_rank) if device is Device.CUDA else Backend())
    if outcome is None:
        return True
    for line in outcome.lines():
        typer.echo(line)
    if out is not None:
        outcome.write(out)
        typer.echo(f"wrote {out}")
    if outcome.fault is not None:
        typer.echo(f"error: {outcome.fault}", err=True)
    return outcome.fault is None
