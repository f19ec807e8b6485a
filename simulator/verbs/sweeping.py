"""`runcast sweep`: all points of a grid around a scenario."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .names import complete

if TYPE_CHECKING:
    from ..answers.sweep import Progress, Sweep
    from ..runner import Runner


def sweep(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="SWEEP", help="Sweep: a file (TOML), or a shipped name.", autocompletion=complete("sweeps")
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the sweep; goes on with what is there.")],
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes (default: all cores); with slurm: jobs.")
    ] = None,
    engine: Annotated[str, typer.Option(help="Where points are computed: local or dask.")] = "local",
    scheduler: Annotated[str | None, typer.Option(help="dask: its address, or slurm to start one as jobs.")] = None,
    changes: Annotated[list[str] | None, typer.Option("--set", help="Change a key of the base: nodes=4.")] = None,
) -> None:
    """Predict every point of a sweep, or those that are still missing, and write DIR/report.csv."""
    from ..answers.sweep import load_sweep, run_sweep
    from ..answers.sweep.results import lines
    from .progress import show_progress

    asked = load_sweep(file, changes or ())
    runner = _runner(engine, scheduler, workers, asked)
    with show_progress("points") as show:

        def watch(progress: "Progress") -> None:
            show("", progress.done, progress.total, f", {progress.infeasible:,} infeasible")

        swept = run_sweep(asked, out, runner, watch)
    for line in lines(asked, swept.counts, swept.results):
        typer.echo(line)
    if not swept.complete:
        done, total = sum(swept.counts.values()), len(asked)
        typer.echo(f"stopped with {done:,} of {total:,} points; the same command goes on from here", err=True)
        raise typer.Exit(130)
    if swept.counts.get("failed"):
        raise typer.Exit(1)


def _runner(engine: str, scheduler: str | None, workers: int | None, asked: "Sweep") -> "Runner":
    """The runner that the flags name."""
    from ..base.errors import UserError, fault
    from ..runner import Dask, InProcess, Processes, cores

    if engine not in ("local", "dask"):
        raise UserError(fault("--engine", "", engine, "expected local or dask"))
    if (engine == "dask") != (scheduler is not None):
        raise UserError("--scheduler: must be given together with --engine dask; expected an address, or slurm")
    if scheduler is not None:
        return Dask(scheduler, workers, asked.slurm)
    processes = min(workers or cores(), len(asked))
    return InProcess() if processes == 1 else Processes(processes)
