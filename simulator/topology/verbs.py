"""The verb `cluster` on the command line: a thin wrapper that parses flags, calls the API and prints."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from .description import Description

cluster = typer.Typer(help="Describe a machine of your own.", no_args_is_help=True, rich_markup_mode=None)


@cluster.callback()
def _cluster() -> None:
    """Describe a machine of your own."""


@cluster.command("import")
def import_(
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
    from .description import Given
    from .write import import_cluster

    named = [name.strip() for name in nics.split(",")] if nics is not None else None
    given = Given(device, nic, named, network, not no_nvlink)
    _print(import_cluster(file, out, given, form, force), out)


def _print(description: "Description", out: Path) -> None:
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
