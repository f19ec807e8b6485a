"""`runcast cluster`, `device` and `plan`: machines, GPUs and recipes, described by other tools and data sheets."""

from pathlib import Path
from typing import Annotated

import typer

from .names import complete

cluster = typer.Typer(help="Describe a machine of your own.", no_args_is_help=True, rich_markup_mode=None)


@cluster.callback()
def _cluster() -> None:
    """Describe a machine of your own."""


@cluster.command("import")
def import_cluster_file(
    file: Annotated[
        Path, typer.Argument(help="Output of `nvidia-smi topo -m`, NCCL's NCCL_TOPO_DUMP_FILE, or a shipped name.")
    ],
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
    from ..base.shipped import find_shipped
    from ..formats.topology import Additions, import_cluster

    named = [name.strip() for name in nics.split(",")] if nics is not None else None
    description = import_cluster(
        find_shipped(file, "samples"), out, Additions(device, nic, named, network, not no_nvlink), form, force
    )
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


@cluster.command("show")
def show_cluster(
    cluster: Annotated[
        str,
        typer.Argument(help="The machines: dgx-h100, or a Cluster file.", autocompletion=complete("clusters")),
    ],
    nodes: Annotated[int, typer.Option(min=1, help="Number of nodes.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="HTML page to write with a drawing of them.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a key: fabric=fat_tree, sizes='[4, 4]'; repeatable.")
    ] = None,
) -> None:
    """Print what the network between nodes is made of, and draw it."""
    from ..figures import Section, draw_fabric, write_html
    from ..hardware import cluster as build
    from ..hardware import own_keys
    from ..scenario.changes import parse_changes

    changes = parse_changes(settings or [], such_as="fabric=fat_tree")
    machine = build({**own_keys(cluster), **changes} if changes else cluster, nodes)
    facts = [("cluster", f"{cluster}, {nodes:,} nodes of {machine.nodes[0].device.name}"), *machine.parts().facts()]
    for name, what in facts:
        typer.echo(f"{name:14}{what}")
    if out is not None:
        title = f"Fabric of {nodes:,} nodes of {cluster}"
        write_html(out, title, [Section(facts=facts, figures={title: draw_fabric(machine, title)})])
        typer.echo(f"wrote {out}")


device = typer.Typer(help="Describe a GPU of your own.", no_args_is_help=True, rich_markup_mode=None)


@device.callback()
def _device() -> None:
    """Describe a GPU of your own."""


@device.command("add")
def add_device_files(
    name: Annotated[str, typer.Argument(help="Name of the GPU; also that of its files.")],
    like: Annotated[str | None, typer.Option(help="Device of the catalogue whose profile serves it: h100-sxm.")] = None,
    peak_bf16: Annotated[str | None, typer.Option(help="Dense bf16 peak: '1.2 PFLOP/s'.")] = None,
    peak: Annotated[list[str] | None, typer.Option(help="Another dense peak: fp8='2.4 PFLOP/s'; repeatable.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory: '96 GiB'.")] = None,
    bandwidth: Annotated[str | None, typer.Option(help="Bandwidth of its memory: '4 TB/s'.")] = None,
    sms: Annotated[int | None, typer.Option(help="Streaming multiprocessors; default: as --like.")] = None,
    l2: Annotated[str | None, typer.Option(help="L2 cache: '50 MiB'; default: as --like.")] = None,
    power: Annotated[str | None, typer.Option(help="Most that its board draws: '700 W'; default: not known.")] = None,
    price: Annotated[
        float | None, typer.Option(help="USD per hour with its share of a server; default: not known.")
    ] = None,
    server: Annotated[
        str | None, typer.Option(help="Cluster of the catalogue in whose servers and network it stands: dgx-h100.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs of a server.")] = None,
    nvlink: Annotated[
        str | None, typer.Option(help="NVLink of a GPU, one direction: '450 GB/s'; default: none.")
    ] = None,
    nics: Annotated[int | None, typer.Option(help="NICs of a server; default: none.")] = None,
    nic: Annotated[str | None, typer.Option(help="Rate of one NIC: '400 Gb/s'.")] = None,
    network: Annotated[str | None, typer.Option(help="infiniband, roce, efa, efa-1 or ethernet.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the files.")] = Path("."),
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
) -> None:
    """Write Device, Node and Cluster files from the numbers of a data sheet."""
    from ..hardware.data_sheet import DataSheet, add_device
    from ..profile import profile_for

    keys = {
        "like": like, "memory": memory, "memory_bytes_per_s": bandwidth, "sms": sms, "l2": l2, "power": power,
        "price_usd_per_hour": price, "gpus_per_node": gpus, "nvlink_bytes_per_s": nvlink, "nics": nics, "nic": nic,
        "network": network,
    }  # fmt: skip
    peaks = {} if peak_bf16 is None else {"bf16": peak_bf16}
    paths, found = add_device(DataSheet(name, keys, peaks | _peaks(peak or []), server), out, force)
    profile = profile_for(*found.device.lineage)
    typer.echo(f"profile {profile}" + ("; training steps need another one" if profile == "generic" else ""))
    for note in found.notes:
        typer.echo(note)
    for path in paths:
        typer.echo(f"wrote {path}")
    typer.echo(f"use it: --set cluster={paths[-1]}")


def _peaks(stated: list[str]) -> dict[str, str]:
    """The peaks of `--peak DTYPE=RATE` by dtype."""
    from ..base.errors import UserError

    pairs = [one.partition("=") for one in stated]
    if wrong := [dtype for dtype, equals, rate in pairs if not (equals and rate)]:
        raise UserError(f"--peak {wrong[0]}: expected DTYPE=RATE, such as fp8='2.4 PFLOP/s'")
    return {dtype.strip(): rate.strip() for dtype, _, rate in pairs}


plan = typer.Typer(help="Recipes of other tools as scenarios, and back.", no_args_is_help=True, rich_markup_mode=None)


@plan.callback()
def _plan() -> None:
    """Recipes of other tools as scenarios, and back."""


@plan.command("import")
def import_recipe_file(
    file: Annotated[
        Path,
        typer.Argument(
            help="What starts a run: Megatron-LM arguments, a torchtitan recipe (Python, TOML or JSON), a YAML or "
            "Python recipe of Megatron Bridge or NeMo, a YAML of Axolotl, LLaMA-Factory, TRL or NeMo AutoModel, a "
            "DeepSpeed JSON, or a script of verl or slime."
        ),
    ],
    cluster: Annotated[
        str | None,
        typer.Option(
            help="The machines: dgx-h100, or a Cluster file; needed where FILE does not say.",
            autocompletion=complete("clusters"),
        ),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(help="Number of nodes; default: as FILE's comments or its #SBATCH say, or 1.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Scenario file to write.")] = Path("scenario.toml"),
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="What FILE is: auto, megatron, torchtitan, bridge, nemo, axolotl, llamafactory, trl, automodel, "
            "deepspeed, verl, slime.",
        ),
    ] = "auto",
    model: Annotated[
        str | None, typer.Option(help="Model that FILE leaves open: its config.json, or a name; in place of FILE's.")
    ] = None,
    seq_len: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a sequence that FILE leaves open; in place of FILE's.")
    ] = None,
    accelerate: Annotated[
        str | None, typer.Option(help="accelerate's config that starts a recipe of LLaMA-Factory: fsdp_config.yaml.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Which recipe of a Python file that holds several.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Give a variable or an argument: TP=8, seq-length=4096.")
    ] = None,
) -> None:
    """Write the scenario that another tool's recipe says; nothing of the file is run."""
    from ..formats.recipes import Additions, import_recipe, parse_settings

    additions = Additions(model, seq_len, accelerate, parse_settings(settings or []), recipe)
    found, written = import_recipe(file, out, cluster, nodes, form, force, additions)
    typer.echo(f"read {len(found.read)} arguments as {found.form}: {', '.join(found.read)}")
    for what in ("assumed", "not_modelled", "unknown"):
        for line in getattr(found, what):
            typer.echo(f"{what.replace('_', ' ')}: {line}")
    if found.untimed:
        typer.echo(f"no part of a step's time ({len(found.untimed)}): {', '.join(found.untimed)}")
    for path in written:
        typer.echo(f"wrote {path}")


@plan.command("export")
def export_recipe_file(
    scenario: Annotated[
        Path,
        typer.Argument(
            help="Scenario of kind train_step: a file, or a shipped name.", autocompletion=complete("scenarios")
        ),
    ],
    to: Annotated[str, typer.Option(help="Whose recipe: megatron, torchtitan or fsdp (Hugging Face).")] = "megatron",
    changes: Annotated[list[str] | None, typer.Option("--set", help="Change the scenario: overlap.pp=false.")] = None,
    nearest: Annotated[
        bool, typer.Option("--nearest", help="That of the nearest plan, headed by what it leaves out.")
    ] = False,
) -> None:
    """Print the recipe with which another tool trains as a scenario says; `plan import` gives the same step again.

    A plan that the tool cannot be told is refused.
    """
    from ..formats.recipes import check_step, check_target, export_recipe, load_training

    check_target(to)
    step = load_training(scenario, changes or ())
    check_step(step, str(scenario))
    typer.echo(str(export_recipe(step, to, str(scenario), nearest=nearest)))
