"""`runcast sweep`: all points of a grid around a scenario."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..answers.sweep import Engine, Progress, Sweep


def sweep(
    file: Annotated[Path, typer.Argument(metavar="SWEEP", help="Sweep file (TOML).")],
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
    from ..answers.sweep.text import told

    asked = load_sweep(file, changes or ())
    chosen = _engine(engine, scheduler, workers, asked)
    with _progress() as watch:
        swept = run_sweep(asked, out, chosen, watch)
    for line in told(asked, swept):
        typer.echo(line)
    if not swept.complete:
        done, total = sum(swept.counts.values()), len(asked)
        typer.echo(f"stopped with {done:,} of {total:,} points; the same command goes on from here", err=True)
        raise typer.Exit(130)
    if swept.counts.get("failed"):
        raise typer.Exit(1)


def _engine(engine: str, scheduler: str | None, workers: int | None, asked: "Sweep") -> "Engine":
    """The engine that the flags name."""
    from ..answers.sweep import InProcess, Pool
    from ..base.errors import UserError, fault
    from ..base.processes import cores

    if engine not in ("local", "dask"):
        raise UserError(fault("--engine", "", engine, "expected local or dask"))
    if (engine == "dask") != (scheduler is not None):
        raise UserError("--scheduler: --engine dask and --scheduler go together; expected an address, or slurm")
    if scheduler is not None:
        from ..answers.sweep.cluster import Dask

        return Dask(scheduler, workers, asked.slurm)
    processes = min(workers or cores(), len(asked))
    return InProcess() if processes == 1 else Pool(processes)


@contextmanager
def _progress() -> "Iterator[Callable[[Progress], None]]":
    """A bar on a terminal, a line per tenth elsewhere; both on stderr."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    words = (TextColumn("{task.fields[infeasible]:,} infeasible"), TextColumn("{task.fields[rate]}"))
    left = TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=True)
    with Bar(BarColumn(), MofNCompleteColumn(), *words, *left, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None, infeasible=0, rate="")

        def watch(progress: "Progress") -> None:
            speed = bar.tasks[0].speed
            rate = f"{speed:,.1f}/s" if speed else ""
            bar.update(task, total=progress.total, completed=progress.done, infeasible=progress.infeasible, rate=rate)

        yield watch


class _Lines:
    """Progress where nobody sees a bar move: a line when it begins and at each tenth."""

    def __init__(self) -> None:
        self._shown = -1

    def __call__(self, progress: "Progress") -> None:
        tenth = 10 * progress.done // progress.total
        if tenth > self._shown:
            self._shown = tenth
            line = f"{progress.done:,} of {progress.total:,} points, {progress.infeasible:,} infeasible"
            typer.echo(line, err=True)
