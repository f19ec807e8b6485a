"""`runcast list`, `init` and `schema`: what ships with runcast, a file to start from, the form of JSON reports."""

from pathlib import Path
from typing import Annotated

import typer

from .names import complete


def list_shipped(
    what: Annotated[
        str | None,
        typer.Argument(
            help="scenarios, sweeps, models, clusters, nodes, devices, profiles, stacks, schedules, algorithms or "
            "what-ifs; left out: how many there are of each.",
            autocompletion=complete("catalogues"),
        ),
    ] = None,
) -> None:
    """List what ships with runcast: names that stand in scenarios and wherever a scenario file may."""
    from ..answers.listing import rows_of, summary
    from ..base.tables import align

    for line in align(summary() if what is None else rows_of(what)):
        typer.echo(line)


def init(
    name: Annotated[
        str | None, typer.Argument(help="Shipped scenario to start from.", autocompletion=complete("scenarios"))
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write; default: NAME.toml.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a scenario file to start from, with a comment on every key."""
    from ..answers.starter import STARTER, starter_text
    from ..base.errors import UserError
    from ..base.files import write_atomic
    from ..base.shipped import find_shipped

    text, path = starter_text(name or STARTER), out or Path(f"{find_shipped(name or STARTER).stem}.toml")
    if path.exists() and not force:
        raise UserError(f"{path}: exists; --force replaces it")
    write_atomic(path, text.encode())
    typer.echo(f"wrote {path}")
    typer.echo(f"try it: runcast simulate {path}")


def schema(
    form: Annotated[
        str | None,
        typer.Argument(
            help="A kind of scenario (train_step), or explanation, comparison, search, sweep, validation; left "
            "out: all of them.",
            autocompletion=complete("forms"),
        ),
    ] = None,
) -> None:
    """Print the JSON Schema of what --json writes."""
    from ..answers.outputs import json_text
    from ..answers.schema import schema_of, schema_of_all

    typer.echo(json_text(schema_of(form) if form is not None else schema_of_all()))
