"""`runcast cluster` and `runcast plan`: machines and recipes, described by other tools."""

from pathlib import Path
from typing import Annotated

import typer

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
    from ..formats.topology import Additions, import_cluster

    named = [name.strip() for name in nics.split(",")] if nics is not None else None
    description = import_cluster(file, out, Additions(device, nic, named, network, not no_nvlink), form, force)
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
    from ..formats.recipes import import_recipe

    recipe, written = import_recipe(file, out, cluster, nodes, form, force)
    typer.echo(f"read {len(recipe.read)} arguments as {recipe.form}: {', '.join(recipe.read)}")
    for what in ("assumed", "not_modelled", "unknown"):
        for line in getattr(recipe, what):
            typer.echo(f"{what.replace('_', ' ')}: {line}")
    if recipe.untimed:
        typer.echo(f"no part of a step's time ({len(recipe.untimed)}): {', '.join(recipe.untimed)}")
    for path in written:
        typer.echo(f"wrote {path}")


@plan.command("export")
def export_recipe_file(
    scenario: Annotated[Path, typer.Argument(help="Scenario file of kind train_step (TOML).")],
    to: Annotated[str, typer.Option(help="Whose arguments: megatron.")] = "megatron",
    nearest: Annotated[
        bool, typer.Option("--nearest", help="Those of the nearest plan, headed by what it leaves out.")
    ] = False,
) -> None:
    """Print the arguments with which another tool trains as a scenario says.

    A plan that they cannot say is refused.
    """
    from ..base.errors import UserError, fault
    from ..formats.recipes import export_megatron, load_training

    if to != "megatron":
        raise UserError(fault("--to", "", to, "expected megatron"))
    typer.echo(str(export_megatron(load_training(scenario), str(scenario), nearest=nearest)))
