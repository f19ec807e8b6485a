"""`runcast search`: the best plans of a scenario."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .names import complete

if TYPE_CHECKING:
    from ..answers.search.records import Progress


def search(
    scenario: Annotated[
        Path,
        typer.Argument(
            help="Scenario of kind train_step, weight_update or rl_cycle: a file, or a shipped name.",
            autocompletion=complete("scenarios"),
        ),
    ],
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
    target: Annotated[
        str, typer.Option("--for", help="Only plans that megatron, torchtitan or any tool can run.")
    ] = "any",
    uneven: Annotated[bool, typer.Option("--uneven", help="Stages may have unequal numbers of layers.")] = False,
    memory_headroom: Annotated[str, typer.Option(help="Share of device memory that stays free: 5%.")] = "0",
    check: Annotated[int, typer.Option(min=0, help="How many of the best are predicted kernel by kernel, too.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Folder for the winner, every plan and the Pareto set.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: one per core.")] = None,
    screen: Annotated[int, typer.Option(min=1, help="Most plans to look at; larger spaces are sampled.")] = 40_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of Optuna's sampler.")] = 0,
) -> None:
    """Find the best parallel plan of a training step, way of a weight update, or split of an RL cycle.

    Exits with 1 where no plan fits, and with 130 where Ctrl-C ended it.
    """
    from ..answers.search import read_wanted, search_file
    from ..answers.search.outputs import check_folder, lines, write_files
    from ..base.errors import UserError, fault
    from ..base.units import parse_share
    from .progress import show_progress

    try:
        headroom = parse_share(memory_headroom)
    except ValueError:
        raise UserError(fault("--memory-headroom", "", memory_headroom, "expected a share, such as 5%")) from None
    wanted = read_wanted(schedules, vary or (), fix or (), uneven, target)
    if out is not None:
        check_folder(out)
    with show_progress("plans") as show:
        found = search_file(
            scenario, changes or (), gpus=gpus, objective=objective, budget=budget, wanted=wanted,
            headroom=headroom, check=check, workers=workers, seed=seed, most=screen,
            watch=lambda progress: show(progress.phase, progress.done, progress.total, _best(progress)),
        )  # fmt: skip
    for line in lines(found):
        typer.echo(line)
    paths = write_files(found, out) if out is not None else []
    for path in paths:
        typer.echo(f"wrote {path}")
    if found.question.subject.export is not None:
        for winner in (path for path in paths if path.name == "winner.toml"):
            typer.echo(f"--set plan={winner} gives this plan to a whole run")
    if found.stopped:
        raise typer.Exit(130)
    if found.winner is None:
        raise typer.Exit(1)


def _best(progress: "Progress") -> str:
    from ..answers.search.outputs import plan_text

    row = progress.best
    return f"; best so far {row.measured.speed}, {plan_text(row.changes)}" if row and row.measured else ""
