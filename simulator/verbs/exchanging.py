"""`runcast collective` predicts one collective by size and algorithm, in a table like that of nccl-tests."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .names import complete


def collective(
    op: Annotated[str, typer.Argument(help="all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, ….")],
    cluster: Annotated[str, typer.Option(help="Cluster by name, or its file.", autocompletion=complete("clusters"))],
    nodes: Annotated[int, typer.Option(help="Nodes of the cluster.")] = 1,
    sizes: Annotated[
        str, typer.Option(help="'1K:16G', each twice the one before; one size such as '1 GiB'; or several, '64M,1G'.")
    ] = "1KiB:16GiB",
    algorithm: Annotated[
        str, typer.Option(help="ring, tree, …; measured: the profile's fitted curve; or all.")
    ] = "all",
    level: Annotated[str, typer.Option(help="measured, formula, or chunks: every message.")] = "formula",
    backend: Annotated[
        str | None, typer.Option(help="nccl, gloo or mpi: what the library chooses of its own algorithms.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(help="Ranks: the first so many GPUs; default: all.")] = None,
    changes: Annotated[list[str] | None, typer.Option("--set", help="Change a key: collective.pieces=64.")] = None,
    json: Annotated[str | None, typer.Option(help="Write the report as JSON; - is stdout and nothing else.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the table as CSV.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write bandwidth by size and the report as one HTML file.")] = None,
) -> None:
    """Predict one collective by size and algorithm."""
    from ..answers.outputs import Outputs, json_text, write_outputs
    from ..predict import predict
    from ..scenario import check_question, resolve
    from ..scenario.changes import change, parse_changes
    from ..systems.collective.text import csv_text

    outputs = Outputs(json=json, csv=csv, html=html)
    outputs.check()
    table: dict[str, Any] = {"op": op, "sizes": sizes, "algorithm": algorithm, "level": level}
    table |= {key: value for key, value in (("gpus", gpus), ("backend", backend)) if value is not None}
    where = "runcast collective"
    said = {"name": f"{op} on {cluster}", "kind": "collective", "cluster": cluster, "nodes": nodes, "collective": table}
    prediction = predict(resolve(check_question(change(said, parse_changes(changes or ()), where), where), where))
    text = json_text(prediction.to_json())
    outputs.write(text, csv_text(prediction.report))
    write_outputs(prediction, Outputs(html=html), text)
    outputs.tell(text, prediction.lines())
