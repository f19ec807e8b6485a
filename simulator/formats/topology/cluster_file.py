"""From a topology file to a Cluster file: every key with its source; the nearest catalogue node fills the gaps."""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from ...base.errors import UserError, fault
from ...base.files import read_text, to_toml, write_atomic
from ...base.schema import read_quantity
from ...hardware import cluster
from ...hardware.files import Table, find, networks, plain, tables
from .layout import Layout, choose_device, even_groups
from .nccl_xml import holds_topology, read_xml
from .smi import holds_matrix, read_smi
from .wiring import NvLink, Rails, nvlink, rails, rails_are_even

Format = Literal["auto", "smi", "xml"]

_NODE_OF = {"a100-pcie-40": "pcie-a100", "h20-3e": "hgx-h20", "v100-sxm2-16": "dgx1-v100"}
"""Devices without a node of their own; otherwise the node is the one that names the device."""


@dataclass(frozen=True)
class Additions:
    """A user's additions to the file: `device`, rate of a `nic`, which `nics` are rails, `network`.

    `nvlink` is False for a machine that really has none where boards with its device do.
    """

    device: str | None = None
    nic: str | None = None
    nics: Sequence[str] | None = None
    network: str | None = None
    nvlink: bool = True


@dataclass(frozen=True)
class Entry:
    """One key of the file; `assumed` where the catalogue says it, not the imported file or the user."""

    key: str
    value: Any
    source: str
    assumed: bool = False


@dataclass(frozen=True)
class Description:
    """A Cluster file before it is text: its entries, and what the reader should check."""

    tool: str
    node: str
    entries: tuple[Entry, ...]
    notes: tuple[str, ...]

    @property
    def assumed(self) -> tuple[str, ...]:
        """The keys that come from the catalogue."""
        return tuple(entry.key for entry in self.entries if entry.assumed)


def import_cluster(
    source: Path | str, out: Path | str, additions: Additions = Additions(), form: str = "auto", replace: bool = False
) -> Description:
    """Read a topology file and write the cluster of such nodes as a file that scenarios can name.

    A UserError if the file is neither format, is not enough, or `out` cannot be written; one line each.
    """
    if additions.network is not None and additions.network not in networks():
        raise UserError(fault("--network", "", additions.network, f"expected one of {', '.join(networks())}"))
    out = Path(out)
    if out.suffix != ".toml":
        raise UserError(fault("--out", "", str(out), "expected a name that ends in .toml"))
    if out.exists() and not replace:
        raise UserError(f"{out}: is there already; give another name with --out, or --force")
    description = describe(read_layout(source, form), additions, str(source))
    text = cluster_text(description)
    for nodes in (1, 2):
        cluster(tomllib.loads(text), nodes, str(out))
    write_atomic(out, text.encode())
    return description


def read_layout(source: Path | str, form: str = "auto") -> Layout:
    """The layout in a topology file; `form` is `smi`, `xml` or `auto`.

    A UserError if the file cannot be read, or is neither format; one line.
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


def describe(layout: Layout, additions: Additions, where: str) -> Description:
    """The cluster of nodes like this one.

    A UserError if the file, or what the user adds, is not enough or contradicts itself; one line.
    """
    device, source = choose_device(additions.device, layout, where)
    chosen = rails(layout, additions.nics, where)
    network = additions.network or next((n for i in chosen.nics if (n := layout.nics[i].network)), None)
    node, table = _nearest(device, network)
    links = nvlink(layout, device, plain(table), additions.nvlink, where)
    writer = _Writer(layout, additions, node, table, plain(table), chosen, links)
    entries = [
        Entry("about", f"{layout.gpus} x {device}, imported from {layout.tool}", ""),
        Entry("node", node, "the catalogue's nearest node, for what this file does not say"),
        Entry("device", device, source),
        *writer.node_entries(),
        *writer.host(),
        *writer.network(network),
    ]
    return Description(layout.tool, node, tuple(entries), tuple(writer.notes()))


def _nearest(device: str, network: str | None) -> tuple[str, Table]:
    """The catalogue's node with this device under a cluster's keys; a cluster on this network if there is one."""
    name = _NODE_OF.get(device) or next(name for name, node in tables("nodes").items() if node["device"] == device)
    of_node = [cluster for cluster in tables("clusters").values() if cluster["node"] == name]
    cluster = min(of_node, key=lambda c: (plain(c)["network"] != network, "nics" in c))
    return name, {**find("nodes", name, "", "")[1], **cluster}


@dataclass(frozen=True)
class _Writer:
    """The entries by group of keys; `board` has the values of the catalogue's node, `table` these with sources."""

    layout: Layout
    additions: Additions
    node: str
    table: Table
    board: dict[str, Any]
    rails: Rails
    nvlink: NvLink

    def _read(self, key: str, value: Any, how: str = "") -> Entry:
        """A value that the file tells."""
        return Entry(key, value, f"{self.layout.tool}{': ' if how else ''}{how}")

    def _assume(self, key: str, value: Any = None) -> Entry:
        """A value of the catalogue, or one that was derived from it."""
        if value not in (None, self.board.get(key)):
            return Entry(key, value, f"not in the file; derived from the catalogue node {self.node}", assumed=True)
        kept = self.table.get(key, {})
        source = kept.get("source", "") if isinstance(kept, dict) else ""
        return Entry(key, self.board[key], f"not in the file; catalogue node {self.node}: {source}", assumed=True)

    def node_entries(self) -> Iterator[Entry]:
        """GPUs, PCIe and NVLink."""
        layout, links = self.layout, self.nvlink
        yield self._read("gpus_per_node", layout.gpus)
        found, most = len(set(layout.numa)), self._most_sockets()
        if not found:
            yield self._assume("sockets", min(most, layout.gpus))
        elif found > most:
            how = f"its {found} NUMA nodes with GPUs are taken as parts of the {most} sockets of the catalogue's node"
            yield self._read("sockets", most, how)
        else:
            yield self._read("sockets", found, "NUMA nodes with GPUs")
        groups = layout.switches()
        if groups is None:
            switches = -(-self.board["pcie_switches"] * layout.gpus // self.board["gpus_per_node"])
            yield self._assume("pcie_switches", switches)
        else:
            switches = len(groups)
            yield self._read("pcie_switches", switches, "groups of GPUs and NICs within PIX or PXB of each other")
        for key, gen in (("pcie_gen", layout.pcie_gen), ("upstream_pcie_gen", layout.upstream_gen)):
            yield self._read(key, gen, "link_speed and link_width") if gen else self._assume(key)
        same = switches * self.board["gpus_per_node"] == self.board["pcie_switches"] * layout.gpus
        yield self._assume("upstream_ports", None if same else 1)
        how = "counts of NVLinks" if links.kind != "none" else "no NVLinks"
        yield self._read("nvlink", links.kind, how)
        if links.kind != "none":
            yield self._read("nvlink_bytes_per_s", links.rate, links.rate_source)
        if links.kind == "wires":
            yield self._read("nvlink_wires", [list(wire) for wire in links.wires], how)
        if "nvlink_domain_nodes" in self.board:
            switched, key = links.kind == "switch", "nvlink_domain_nodes"
            yield self._assume(key) if switched else self._read(key, 1, how)
        if "c2c_bytes_per_s" in self.board:
            yield self._assume("c2c_bytes_per_s")

    def _most_sockets(self) -> int:
        """The largest number of sockets: the catalogue node's, times the nodes that this node's GPUs would fill."""
        nodes = max(1, -(-self.layout.gpus // int(self.board["gpus_per_node"])))
        return int(self.board["sockets"]) * nodes

    def host(self) -> Iterator[Entry]:
        """Memory of the host, and what joins its sockets."""
        yield self._assume("host_memory")
        yield self._assume("host_memory_bytes_per_s")
        if "socket_bytes_per_s" in self.board:
            yield self._assume("socket_bytes_per_s")
        elif self._most_sockets() > 1:
            tray = plain(tables("nodes")["nvl72-gb200"])["socket_bytes_per_s"]
            source = "not in the file; assumed as between the Grace CPUs of the catalogue node nvl72-gb200"
            yield Entry("socket_bytes_per_s", tray, source, assumed=True)

    def network(self, kind: str | None) -> Iterator[Entry]:
        """NICs, and the network that they are on."""
        count, nics, why = len(self.rails.nics), self.layout.nics, self.rails.why
        if count:
            yield self._read("nics", count, f"{count} of {len(nics)} NICs, {why}")
        else:
            each = self.board["nics"] * self.layout.gpus // self.board["gpus_per_node"]
            yield self._assume("nics", max(1, each))
        rates = {rate for i in self.rails.nics if (rate := nics[i].bytes_per_s)}
        if self.additions.nic is not None:
            try:
                read_quantity(self.additions.nic, "bytes_per_s")
            except ValueError as error:
                raise UserError(fault("--nic", "", self.additions.nic, str(error))) from None
            yield Entry("nic", self.additions.nic, "given with --nic")
        elif rates:
            yield self._read("nic", f"{min(rates) * 8 / 1e9:g} Gb/s", "speed of net")
        else:
            yield self._assume("nic")
        yield self._read("nic_attach", self.rails.attach, why) if count else self._assume("nic_attach")
        if self.additions.network is not None:
            yield Entry("network", kind, "given with --network")
        elif kind is not None:
            yield self._read("network", kind, "name or PCI class of the NICs")
        else:
            yield self._assume("network")
        for key in ("fabric", "oversubscription", "leaf_radix"):
            yield self._assume(key)

    def notes(self) -> Iterator[str]:
        """Notes on what the user should check."""
        gpus, boards = self.layout.gpus, self.board["gpus_per_node"]
        yield from (f"{nic}; left out" for nic in self.rails.left_out)
        if not self.layout.nics:
            yield "no NIC in the file: those of the catalogue's node are written"
        if gpus < boards:
            yield f"{gpus} GPUs where such nodes have {boards}: a container or a job shows its own only"
        if self.nvlink.note:
            yield self.nvlink.note
        groups = self.layout.switches()
        if groups is None and self.board["pcie_switches"]:
            yield "NVLinks hide which GPUs share a PCIe switch: the catalogue's node decides"
        elif not groups and self.board["pcie_switches"]:
            yield "no PCIe switch beside a GPU in the file; a virtual machine may hide them"
        if groups and sorted(groups) != sorted(even_groups(gpus, len(groups))):
            yield f"GPUs behind PCIe switches are {_text(groups)}; a Cluster file spreads them evenly, in order"
        if groups and self.rails.attach == "switch" and not rails_are_even(self.layout, self.rails.nics, groups):
            yield "switches have unequal numbers of rails; a Cluster file spreads rails evenly"
        labels = self.layout.numa
        halves = [tuple(i for i, x in enumerate(labels) if x == label) for label in dict.fromkeys(labels)]
        if 1 < len(halves) <= self._most_sockets() and sorted(halves) != sorted(even_groups(gpus, len(halves))):
            yield f"GPUs of the sockets are {_text(halves)}; a Cluster file spreads them evenly, in order"


def _text(groups: Sequence[Sequence[int]]) -> str:
    return " ".join("{" + ",".join(map(str, group)) + "}" for group in groups)
