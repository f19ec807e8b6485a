"""`runcast search`: the best plans of a scenario."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..answers.search.found import Progress, Watch


def search(
    scenario: Annotated[Path, typer.Argument(help="Scenario file (TOML) of kind train_step or weight_update.")],
    gpus: Annotated[int | None, typer.Option(help="On how many GPUs; default: those of the scenario.")] = None,
    objective: Annotated[
        str | None,
        typer.Option(help="tokens_per_s, cost or memory; of a weight update update_time, pause, cost or memory."),
    ] = None,
    budget: Annotated[
        int, typer.Option(min=1, help="Most simulations; beyond that Optuna chooses ([search] extra).")
    ] = 2000,
    changes: Annotated[list[str] | None, typer.Option("--set", help="Change the scenario: batch.global=256.")] = None,
    vary: Annotated[
        list[str] | None, typer.Option(help="One more axis, or other values of one: 'parallel.zero=[0, 1, 2]'.")
    ] = None,
    fix: Annotated[list[str] | None, typer.Option(help="One value of an axis: parallel.tp=8.")] = None,
    schedules: Annotated[
        str | None, typer.Option(help="Pipeline schedules, such as 1f1b,interleaved,zb-h1; default: Megatron's.")
    ] = None,
    uneven: Annotated[bool, typer.Option("--uneven", help="Stages may have unequal numbers of layers.")] = False,
    memory_headroom: Annotated[str, typer.Option(help="Share of device memory that stays free: 5%.")] = "0",
    check: Annotated[int, typer.Option(min=0, help="How many of the best are predicted kernel by kernel, too.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Folder for the winner, every plan and the Pareto set.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: one per core.")] = None,
    screen: Annotated[int, typer.Option(min=1, help="Most plans to look at; larger spaces are sampled.")] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of Optuna's sampler.")] = 0,
) -> None:
    """Find the best parallel plan of a training step, or the best way of a weight update.

    Exits with 1 where no plan fits, and with 130 where Ctrl-C ended it.
    """
    from ..answers.search import read_wanted, search_file, share
    from ..answers.search.outputs import check_folder, write_found
    from ..answers.search.text import lines

    wanted = read_wanted(schedules, vary or (), fix or (), uneven)
    if out is not None:
        check_folder(out)
    with _progress() as watch:
        found = search_file(
            scenario, changes or (), gpus=gpus, objective=objective, budget=budget, wanted=wanted,
            headroom=share(memory_headroom), check=check,
            workers=workers, seed=seed, most=screen, watch=watch,
        )  # fmt: skip
    for line in lines(found):
        typer.echo(line)
    for path in write_found(found, out) if out is not None else ():
        typer.echo(f"wrote {path}")
    if found.stopped:
        raise typer.Exit(130)
    if found.winner is None:
        raise typer.Exit(1)


@contextmanager
def _progress() -> "Iterator[Watch]":
    """A bar on a terminal, a line per tenth of a phase elsewhere; both on stderr."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[best]}")
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("screening", total=None, best="")

        def watch(progress: "Progress") -> None:
            words, total = progress.phase, progress.total
            bar.update(task, description=words, total=total, completed=progress.done, best=_best(progress))

        yield watch


class _Lines:
    """Progress where nobody sees a bar move: a line when a phase begins and at each of its tenths."""

    def __init__(self) -> None:
        self._shown = ("", -1)

    def __call__(self, progress: "Progress") -> None:
        now = progress.phase, 10 * progress.done // max(progress.total, 1)
        if now != self._shown:
            self._shown = now
            typer.echo(f"{progress.phase}: {progress.done:,} of {progress.total:,} plans{_best(progress)}", err=True)


def _best(progress: "Progress") -> str:
    from ..answers.search.text import plan_text
    from ..base.units import format_seconds

    row = progress.best
    if row is None or row.measured is None:
        return ""
    speed = f"{row.measured.tokens_per_s:,.0f} tokens/s" if row.measured.tokens else format_seconds(row.measured.time_s)
    return f"; best so far {speed}, {plan_text(row.changes)}"
