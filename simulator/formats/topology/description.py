"""From a layout to the keys of a Cluster file, each with its source; the nearest catalogue node fills the gaps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...base.errors import UserError, fault
from ...base.schema import read_quantity
from ...hardware.files import Table, find, networks, plain, tables
from .identify import chosen_device
from .layout import Layout, evenly
from .nvlink import NvLink, nvlink
from .rails import Rails, rails, spread_evenly

_NODE_OF = {"h20-3e": "hgx-h20", "v100-sxm2-16": "dgx1-v100"}
"""Devices without a node of their own; otherwise the node is the one that names the device."""


@dataclass(frozen=True)
class Given:
    """What a user adds to the file: its `device`, the rate of a `nic`, which `nics` are rails, the `network`.

    `nvlink` is False for a machine that really has none where boards with its device do.
    """

    device: str | None = None
    nic: str | None = None
    nics: Sequence[str] | None = None
    network: str | None = None
    nvlink: bool = True


@dataclass(frozen=True)
class Entry:
    """One key of the file; `told` means by the imported file or the user, otherwise by the catalogue."""

    key: str
    value: Any
    source: str
    told: bool = True


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
        return tuple(entry.key for entry in self.entries if not entry.told)


def describe(layout: Layout, given: Given, where: str) -> Description:
    """The cluster of nodes like this one.

    Raises:
        UserError: the file, or what the user adds, is not enough or contradicts itself; one line.
    """
    device, device_source = chosen_device(given.device, layout, where)
    chosen = rails(layout, given.nics, where)
    network = given.network or next((n for i in chosen.nics if (n := layout.nics[i].network)), None)
    node, table = _nearest(device, network)
    return _Writer(layout, given, node, table, chosen, nvlink(layout, device, table, given.nvlink, where)).description(
        Entry("device", device, device_source), network
    )


def _nearest(device: str, network: str | None) -> tuple[str, Table]:
    """The catalogue's node with this device under a cluster's keys; a cluster on this network if there is one."""
    name = _NODE_OF.get(device) or next(name for name, node in tables("nodes").items() if node["device"] == device)
    of_node = [cluster for cluster in tables("clusters").values() if cluster["node"] == name]
    cluster = min(of_node, key=lambda c: (plain(c)["network"] != network, "nics" in c))
    return name, {**find("nodes", name, "", "")[1], **cluster}


@dataclass(frozen=True)
class _Writer:
    """The entries, one method per group of keys."""

    layout: Layout
    given: Given
    node: str
    table: Table
    rails: Rails
    nvlink: NvLink

    def description(self, device: Entry, network: str | None) -> Description:
        about = f"{self.layout.gpus} x {device.value}, imported from {self.layout.tool}"
        entries = [
            Entry("about", about, ""),
            Entry("node", self.node, "the catalogue's nearest node, for what this file does not say"),
            device,
            *self._gpus(),
            *self._pcie(),
            *self._nvlink(),
            *self._host(),
            *self._nics(),
            *self._fabric(network),
        ]
        return Description(self.layout.tool, self.node, tuple(entries), tuple(self._notes()))

    def _told(self, key: str, value: Any, how: str = "") -> Entry:
        return Entry(key, value, f"{self.layout.tool}{': ' if how else ''}{how}")

    def _taken(self, key: str, value: Any = None) -> Entry:
        """A value of the catalogue, or one that was derived from it."""
        kept = self.table.get(key, {})
        source = kept.get("source", "") if isinstance(kept, dict) else ""
        if value is None or value == plain(self.table).get(key):
            source = f"not in the file; catalogue node {self.node}: {source}"
            return Entry(key, plain(self.table)[key], source, told=False)
        return Entry(key, value, f"not in the file; derived from the catalogue node {self.node}", told=False)

    def _gpus(self) -> Iterator[Entry]:
        yield self._told("gpus_per_node", self.layout.gpus)
        found, most = len(set(self.layout.numa)), self._most_sockets()
        if not found:
            yield self._taken("sockets", min(most, self.layout.gpus))
        elif found > most:
            how = f"its {found} NUMA nodes with GPUs are taken as parts of the {most} sockets of the catalogue's node"
            yield self._told("sockets", most, how)
        else:
            yield self._told("sockets", found, "NUMA nodes with GPUs")

    def _most_sockets(self) -> int:
        """As many as the catalogue's node has, and more if this node has the GPUs of several."""
        catalogue = plain(self.table)
        return int(catalogue["sockets"]) * max(1, -(-self.layout.gpus // int(catalogue["gpus_per_node"])))

    def _pcie(self) -> Iterator[Entry]:
        catalogue = plain(self.table)
        groups = self.layout.switches()
        count = self._catalogue_switches() if groups is None else len(groups)
        if groups is None:
            yield self._taken("pcie_switches", count)
        else:
            yield self._told("pcie_switches", count, "groups of GPUs and NICs within PIX or PXB of each other")
        for key, gen in (("pcie_gen", self.layout.pcie_gen), ("upstream_pcie_gen", self.layout.upstream_gen)):
            yield self._told(key, gen, "link_speed and link_width") if gen else self._taken(key)
        same = count * catalogue["gpus_per_node"] == catalogue["pcie_switches"] * self.layout.gpus
        yield self._taken("upstream_ports", None if same else 1)

    def _catalogue_switches(self) -> int:
        """The catalogue's GPUs per switch, for the GPUs of this node."""
        catalogue = plain(self.table)
        return -(-int(catalogue["pcie_switches"]) * self.layout.gpus // int(catalogue["gpus_per_node"]))

    def _nvlink(self) -> Iterator[Entry]:
        links = self.nvlink
        how = "counts of NVLinks" if links.kind != "none" else "no NVLinks"
        yield self._told("nvlink", links.kind, how)
        if links.kind != "none":
            yield self._told("nvlink_bytes_per_s", links.rate, links.rate_source)
        if links.kind == "wires":
            yield self._told("nvlink_wires", [list(wire) for wire in links.wires], how)
        if "nvlink_domain_nodes" in self.table:
            is_switch = links.kind == "switch"
            yield self._taken("nvlink_domain_nodes") if is_switch else self._told("nvlink_domain_nodes", 1, how)
        if "c2c_bytes_per_s" in self.table:
            yield self._taken("c2c_bytes_per_s")

    def _host(self) -> Iterator[Entry]:
        yield self._taken("host_memory")
        yield self._taken("host_memory_bytes_per_s")
        if "socket_bytes_per_s" in self.table:
            yield self._taken("socket_bytes_per_s")
        elif self._most_sockets() > 1:
            tray = plain(tables("nodes")["nvl72-gb200"])["socket_bytes_per_s"]
            source = "not in the file; assumed as between the Grace CPUs of the catalogue node nvl72-gb200"
            yield Entry("socket_bytes_per_s", tray, source, told=False)

    def _nics(self) -> Iterator[Entry]:
        catalogue, count = plain(self.table), len(self.rails.nics)
        if count:
            yield self._told("nics", count, f"{count} of {len(self.layout.nics)} NICs, {self.rails.why}")
        else:
            yield self._taken("nics", max(1, catalogue["nics"] * self.layout.gpus // catalogue["gpus_per_node"]))
        yield self._nic()
        yield self._told("nic_attach", self.rails.attach, self.rails.why) if count else self._taken("nic_attach")

    def _nic(self) -> Entry:
        if self.given.nic is not None:
            _check_rate(self.given.nic)
            return Entry("nic", self.given.nic, "given with --nic")
        rates = {r for i in self.rails.nics if (r := self.layout.nics[i].bytes_per_s)}
        return self._told("nic", f"{min(rates) * 8 / 1e9:g} Gb/s", "speed of net") if rates else self._taken("nic")

    def _fabric(self, network: str | None) -> Iterator[Entry]:
        if self.given.network is not None:
            yield Entry("network", network, "given with --network")
        elif network is not None:
            yield self._told("network", network, "name or PCI class of the NICs")
        else:
            yield self._taken("network")
        for key in ("fabric", "oversubscription", "leaf_radix"):
            yield self._taken(key)

    def _notes(self) -> Iterator[str]:
        yield from (f"{nic}; left out" for nic in self.rails.left_out)
        if not self.layout.nics:
            yield "no NIC in the file: those of the catalogue's node are written"
        boards = plain(self.table)["gpus_per_node"]
        if self.layout.gpus < boards:
            yield f"{self.layout.gpus} GPUs where such nodes have {boards}: a container or a job shows its own only"
        if self.nvlink.note:
            yield self.nvlink.note
        groups = self.layout.switches()
        if groups is None and plain(self.table)["pcie_switches"]:
            yield "NVLinks hide which GPUs share a PCIe switch: the catalogue's node decides"
        elif not groups and plain(self.table)["pcie_switches"]:
            yield "no PCIe switch beside a GPU in the file; a virtual machine may hide them"
        if groups and sorted(groups) != sorted(evenly(self.layout.gpus, len(groups))):
            yield f"GPUs behind PCIe switches are {_text(groups)}; a Cluster file spreads them evenly, in order"
        if groups and self.rails.attach == "switch" and not spread_evenly(self.layout, self.rails.nics, groups):
            yield "switches have unequal numbers of rails; a Cluster file spreads rails evenly"
        halves = _by_label(self.layout.numa)
        if 1 < len(halves) <= self._most_sockets() and sorted(halves) != sorted(evenly(self.layout.gpus, len(halves))):
            yield f"GPUs of the sockets are {_text(halves)}; a Cluster file spreads them evenly, in order"


def _by_label(labels: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(i for i, x in enumerate(labels) if x == label) for label in dict.fromkeys(labels))


def _text(groups: Sequence[Sequence[int]]) -> str:
    return " ".join("{" + ",".join(map(str, group)) + "}" for group in groups)


def _check_rate(rate: str) -> None:
    try:
        read_quantity(rate, "bytes_per_s")
    except ValueError as error:
        raise UserError(fault("--nic", "", rate, str(error))) from None


def check_network(network: str | None) -> None:
    """Refuse a network that the catalogue does not know."""
    known = networks()
    if network is not None and network not in known:
        raise UserError(fault("--network", "", network, f"expected one of {', '.join(known)}"))
