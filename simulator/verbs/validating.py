"""`runcast validate`: predictions beside measurements."""

from pathlib import Path
from typing import Annotated

import typer


def validate(
    kind: Annotated[
        str,
        typer.Option(
            help="What to score: weight_update, train_step, collective, gemm, attention, grouped_gemm, memory or copy."
        ),
    ],
    rows: Annotated[
        Path | None,
        typer.Option(
            help="Table of measurements: our own columns, or a published table's; weight_update and train_step have "
            "their own."
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Profile by name or file; default: the shipped one of each row's device.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the rows with predictions beside them.")] = None,
    json: Annotated[str | None, typer.Option(help="Write the errors as JSON; - is stdout and nothing else.")] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="train_step: a CSV written earlier; says what moved since, exit code 1 if a row did."),
    ] = None,
    tolerance: Annotated[
        str | None, typer.Option(help="With --against: how far a prediction may move; default 0.5%.")
    ] = None,
) -> None:
    """Predict measured training steps, weight updates, collectives and kernels, and print how far off they are.

    Rows that cannot be predicted are listed with their reason. Exits with 2 if there is no other row.
    """
    from ..answers.simulate.outputs import Outputs, json_text
    from ..answers.validate import Comparison, check_outputs, check_predicted, hold_against
    from ..base.files import write_by_suffix

    outputs = Outputs(json=json, csv=csv)
    outputs.check()
    for given in filter(None, (rows, against)):
        check_outputs(given, csv, json)
    found, lines = hold_against(kind, rows, profile, csv is not None, against, tolerance)
    text = json_text(found.to_json())
    if csv is not None:
        write_by_suffix(csv, found.to_csv())
    outputs.write_json(text)
    outputs.tell(text, lines)
    check_predicted(found)
    if isinstance(found, Comparison) and found.moved:
        raise typer.Exit(1)
