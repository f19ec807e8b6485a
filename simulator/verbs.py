"""The verbs of this package on the command line: thin wrappers that parse flags, call the API and print."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from .predict import AnyPrediction
    from .recipes import Recipe
    from .topology import Description


def simulate(
    scenario: Annotated[Path, typer.Argument(help="Scenario file (TOML).")],
    changes: Annotated[list[str] | None, typer.Option("--set", help="Change a key: update.bucket='2 GiB'.")] = None,
    json: Annotated[str | None, typer.Option(help="Write the report as JSON; - is stdout and nothing else.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the timeline as CSV.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write a Chrome/Perfetto trace (.json or .json.gz).")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the timeline figure and report as one HTML file.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write the timeline figure as PNG (needs Chromium).")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for report, CSV, trace and HTML.")] = None,
) -> None:
    """Predict a scenario and print a summary."""
    from .outputs import Outputs, write_outputs
    from .predict import simulate as predict

    wanted = [Outputs(json=json, csv=csv, trace=trace, html=html, png=png)]
    wanted[0].check()
    prediction = predict(scenario, changes or ())
    if out is not None:
        wanted.append(Outputs.in_folder(out))
        wanted[1].check()
    if json != "-":
        _print_summary(prediction)
    for outputs in wanted:
        for path in write_outputs(prediction, outputs):
            typer.echo(f"wrote {path}", err=json == "-")


def _print_summary(prediction: "AnyPrediction") -> None:
    from .summary import print_summary

    print_summary(prediction.report)


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
    csv: Annotated[
        Path | None, typer.Option(help="Write the rows with predictions beside them.")
    ] = None,
    json: Annotated[str | None, typer.Option(help="Write the errors as JSON; - is stdout and nothing else.")] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="train_step: a CSV written earlier; says what moved since, exit code 1 if a row did."),
    ] = None,
    tolerance: Annotated[
        str | None, typer.Option(help="With --against: how far a prediction may move; default 0.5%.")
    ] = None,
) -> None:
    """Predict measured training steps, weight updates, collectives and kernels, and print how far off they are."""
    from .files import write_atomic, write_by_suffix
    from .outputs import Outputs
    from .validate import Comparison, check_outputs, hold_against

    Outputs(json=json, csv=csv).check()
    for given in filter(None, (rows, against)):
        check_outputs(given, csv, json)
    found, lines = hold_against(kind, rows, profile, csv is not None, against, tolerance)
    typer.echo(found.json_text() if json == "-" else "\n".join(lines))
    if csv is not None:
        write_by_suffix(csv, found.to_csv())
        typer.echo(f"wrote {csv}", err=json == "-")
    if json not in (None, "-"):
        write_atomic(str(json), (found.json_text() + "\n").encode())
        typer.echo(f"wrote {json}")
    if isinstance(found, Comparison) and found.moved:
        raise typer.Exit(1)


cluster = typer.Typer(help="Describe a machine of your own.", no_args_is_help=True, rich_markup_mode=None)


@cluster.callback()
def _cluster() -> None:
    """Describe a machine of your own."""


@cluster.command("import")
def import_cluster_file(
    file: Annotated[Path, typer.Argument(help="Output of `nvidia-smi topo -m`, or NCCL's NCCL_TOPO_DUMP_FILE.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Cluster file to write.")] = Path("cluster.toml"),
    form: Annotated[str, typer.Option("--format", help="What FILE is: auto, smi or xml.")] = "auto",
    device: Annotated[str | None, typer.Option(help="The GPU, where FILE does not tell: h100.")] = None,
    nic: Annotated[str | None, typer.Option(help="Rate of a NIC, where FILE does not tell: '400 Gb/s'.")] = None,
    nics: Annotated[str | None, typer.Option(help="NICs that carry training: NIC0,NIC3, or all.")] = None,
    network: Annotated[str | None, typer.Option(help="infiniband, roce, efa or ethernet.")] = None,
    no_nvlink: Annotated[bool, typer.Option("--no-nvlink", help="The machine has no NVLink, as FILE says.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a Cluster file from the topology that a machine reports."""
    from .topology import Given, import_cluster

    named = [name.strip() for name in nics.split(",")] if nics is not None else None
    given = Given(device, nic, named, network, not no_nvlink)
    _print_cluster(import_cluster(file, out, given, form, force), out)


def _print_cluster(description: "Description", out: Path) -> None:
    values = {entry.key: entry.value for entry in description.entries}
    typer.echo(
        f"{values['gpus_per_node']} x {values['device']}, nvlink {values['nvlink']}, {values['sockets']} sockets, "
        f"{values['pcie_switches']} PCIe switches, {values['nics']} x {values['nic']} on each {values['nic_attach']} "
        f"({values['network']})"
    )
    typer.echo(f"from the catalogue node {description.node}: {', '.join(description.assumed)}")
    for note in description.notes:
        typer.echo(f"check: {note}")
    typer.echo(f"wrote {out}")


plan = typer.Typer(help="Recipes of other tools as scenarios, and back.", no_args_is_help=True, rich_markup_mode=None)


@plan.callback()
def _plan() -> None:
    """Recipes of other tools as scenarios, and back."""


@plan.command("import")
def import_recipe_file(
    file: Annotated[Path, typer.Argument(help="Megatron-LM arguments (script, YAML, JSON) or a torchtitan TOML.")],
    cluster: Annotated[str, typer.Option(help="The machines: dgx-h100, or a Cluster file.")],
    nodes: Annotated[int, typer.Option(help="Number of nodes.")] = 1,
    out: Annotated[Path, typer.Option("--out", "-o", help="Scenario file to write.")] = Path("scenario.toml"),
    form: Annotated[str, typer.Option("--format", help="What FILE is: auto, megatron or torchtitan.")] = "auto",
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write the scenario that another tool's recipe says; nothing of the file is run."""
    from .recipes import import_recipe

    recipe, written = import_recipe(file, out, cluster, nodes, form, force)
    _print_recipe(recipe)
    for path in written:
        typer.echo(f"wrote {path}")


def _print_recipe(recipe: "Recipe") -> None:
    typer.echo(f"read {len(recipe.read)} arguments as {recipe.form}: {', '.join(recipe.read)}")
    for what in ("assumed", "not_modelled", "unknown"):
        for line in getattr(recipe, what):
            typer.echo(f"{what.replace('_', ' ')}: {line}")
    if recipe.untimed:
        typer.echo(f"no part of a step's time ({len(recipe.untimed)}): {', '.join(recipe.untimed)}")


@plan.command("export")
def export_recipe_file(
    scenario: Annotated[Path, typer.Argument(help="Scenario file of kind train_step (TOML).")],
    to: Annotated[str, typer.Option(help="Whose arguments: megatron.")] = "megatron",
) -> None:
    """Print the arguments with which another tool trains as a scenario says."""
    from .errors import UserError, fault
    from .recipes import export_megatron, load_training

    if to != "megatron":
        raise UserError(fault("--to", "", to, "expected megatron"))
    typer.echo(str(export_megatron(load_training(scenario), str(scenario))))
