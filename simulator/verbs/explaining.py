"""`runcast explain`: why a prediction is what it is, and what would change it."""

from pathlib import Path
from typing import Annotated

import typer


def explain(
    scenario: Annotated[Path, typer.Argument(help="Scenario file (TOML) of kind train_step or weight_update.")],
    changes: Annotated[list[str] | None, typer.Option("--set", help="Change a key: parallel.tp=8.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="First order alone: simulate nothing again.")] = False,
    json: Annotated[str | None, typer.Option(help="Write it as JSON; - is stdout and nothing else.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a tornado chart, a waterfall and tables as HTML.")] = None,
) -> None:
    """Say what bounds a prediction, what each number is worth, and which changes help most."""
    from ..answers.explain import explain as explain_scenario
    from ..answers.explain import lines, write_page
    from ..answers.outputs import Outputs, json_text
    from .progress import show_progress

    outputs = Outputs(json=json, html=html)
    outputs.check()
    with show_progress("", lines=False) as show:
        found = explain_scenario(scenario, changes or (), quick=quick, progress=show)
    text = json_text(found.to_json())
    outputs.write(text)
    if html is not None:
        write_page(html, found)
    outputs.tell(text, lines(found))
