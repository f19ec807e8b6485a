"""`runcast schedule`: pipeline schedules, one's own among them, checked, drawn, compared."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..base.errors import UserError
from .names import complete

if TYPE_CHECKING:
    from ..answers.pipelines import Left


def schedule(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Schedules by name (1f1b, interleaved:4 for four chunks) or files (my.txt); default: all."),
    ] = None,
    scenario: Annotated[
        Path | None,
        typer.Option(
            help="A training step, a file or a shipped name: its time with each of them.",
            autocompletion=complete("scenarios"),
        ),
    ] = None,
    changes: Annotated[list[str] | None, typer.Option("--set", help="Change a key of the scenario.")] = None,
    ranks: Annotated[int | None, typer.Option(min=1, max=4096, help="Pipeline ranks, without a scenario.")] = None,
    microbatches: Annotated[int | None, typer.Option(min=1, max=65536, help="Micro-batches, likewise.")] = None,
    text: Annotated[
        bool, typer.Option("--text", help="Print the actions of each rank and nothing else, to begin a file with.")
    ] = False,
    json: Annotated[str | None, typer.Option(help="Write it as JSON; - is stdout and nothing else.")] = None,
) -> None:
    """Check pipeline schedules, draw one, compare several: bubble, activations, step time."""
    from ..answers.outputs import Outputs, json_text
    from ..answers.pipelines import columns, picture, pipelines, pipelines_of_step
    from ..base.tables import align
    from ..scenario import open_table
    from ..systems.machines import stamp

    outputs = Outputs(json=json)
    outputs.check()
    if text and len(names or ()) != 1:
        raise UserError("--text: expected one schedule, such as 1f1b --ranks 4 --microbatches 8")
    if scenario is None and changes:
        raise UserError("--set: goes with --scenario")
    if scenario is not None:
        if ranks or microbatches:
            raise UserError("--ranks, --microbatches: the scenario says them: leave them out with --scenario")
        found, left = pipelines_of_step(names or (), *open_table(scenario, changes or ()))
    else:
        found, left = pipelines(names or (), ranks, microbatches)
    if text:
        typer.echo(f"# {found[0].name}\n{found[0].grid}")
        return
    rows = list(columns(found))
    lines = [*align(rows, range(1, len(rows[0]))), *(_reason(one) for one in left)]
    if len(found) == 1:
        lines += ["", *picture(found[0])]
    shown = {"schedules": [one.to_json() for one in found], "left_out": [vars(one) for one in left]}
    out = json_text(stamp("schedules", {"kind": "schedules", **shown}))
    outputs.write(out)
    outputs.tell(out, lines)


def _reason(one: "Left") -> str:
    return one.reason if one.reason.startswith(one.name) else f"{one.name}: {one.reason}"
