"""From a topology file to a Cluster file on disk."""

import tomllib
from pathlib import Path
from typing import Literal, get_args

from ...base.errors import UserError, fault
from ...base.files import read_text, write_atomic
from ...base.toml import to_toml
from ...hardware import cluster
from .description import Description, Given, check_network, describe
from .layout import Layout
from .nccl_xml import holds_topology, read_xml
from .smi import holds_matrix, read_smi

Format = Literal["auto", "smi", "xml"]


def import_cluster(
    source: Path | str,
    out: Path | str,
    given: Given = Given(),  # noqa: B008, frozen
    form: str = "auto",
    replace: bool = False,
) -> Description:
    """Read a topology file and write the cluster of such nodes as a file that scenarios can name.

    Raises:
        UserError: the file is neither format, is not enough, or `out` cannot be written; one line each.
    """
    check_network(given.network)
    out = Path(out)
    if out.suffix != ".toml":
        raise UserError(fault("--out", "", str(out), "expected a name that ends in .toml"))
    if out.exists() and not replace:
        raise UserError(f"{out}: is there already; give another name with --out, or --force")
    description = describe(read_layout(source, form), given, str(source))
    text = cluster_text(description)
    for nodes in (1, 2):
        cluster(tomllib.loads(text), nodes, str(out))
    write_atomic(out, text.encode())
    return description


def read_layout(source: Path | str, form: str = "auto") -> Layout:
    """What a topology file tells; `form` is `smi`, `xml` or `auto`.

    Raises:
        UserError: the file cannot be read, or is neither format; one line.
    """
    text, where = read_text(Path(source), "a topology file"), str(source)
    readers = {"xml": (holds_topology, read_xml), "smi": (holds_matrix, read_smi)}
    if form not in get_args(Format):
        raise UserError(fault("--format", "", form, f"expected one of {', '.join(get_args(Format))}"))
    for name, (holds, read) in readers.items():
        if form in ("auto", name) and holds(text):
            return read(text, where)
    graph = "; it is of NCCL_GRAPH_DUMP_FILE" if "<graphs" in text else ""
    wanted = "the matrix of `nvidia-smi topo -m` (a line with GPU0, GPU1, ...) or <system> of NCCL_TOPO_DUMP_FILE"
    raise UserError(f"{where}: is no topology{graph}; expected {wanted}")


def cluster_text(description: Description) -> str:
    """The text of the Cluster file; equal descriptions give equal text."""
    comments = [
        f"Imported by `runcast cluster import` from {description.tool}. Each value has its source beside it.",
        f"From the catalogue node {description.node}, not from the machine: {', '.join(description.assumed)}.",
        *(f"Check: {note}." for note in description.notes),
    ]
    table = {
        entry.key: {"value": entry.value, "source": entry.source} if entry.source else entry.value
        for entry in description.entries
    }
    return to_toml(table, comments, inline=True)
