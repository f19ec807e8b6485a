"""One server: how its GPUs, NICs, PCIe switches and sockets are wired, and which NIC and memory is nearest to a GPU.

Vertices of a node: `gpu0..`, `numa0..` (host memory of a socket), `cpu0..` (its root complex), `pcie0..` (switches),
`nic0..`, `port0..` (where NIC k's cable ends: a leaf switch, once the node stands in a cluster) and `nvswitch`.
What lies beyond the ports is `fabric`; how many nodes there are is `cluster`.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from math import inf
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from ..base.schema import Section, count, one_of, quantity
from ..base.units import format_rate, parse
from . import files
from .device import Device, Rate
from .graph import Graph, Wire, duplex, half_duplex, loop, oneway


def _check_pairs(wires: tuple[tuple[int, int, int], ...]) -> tuple[tuple[int, int, int], ...]:
    pairs = {frozenset(wire[:2]) for wire in wires}
    if len(pairs) < len(wires) or any(len(pair) < 2 for pair in pairs):
        raise ValueError("expected a list of [gpu, gpu, links] between two GPUs, no pair of them twice")
    return wires


_Gpu = Annotated[int, count(0)]
_Links = Annotated[int, count(1)]
_Generation = Annotated[int, one_of(lambda: [int(generation) for generation in files.wires()["pcie"]])]
_RateOrNone = Annotated[float, quantity("bytes_per_s", zero=True)]


class NodeShape(Section):
    """Every key that wires one server; rates are per direction.

    A GPU reaches its host over PCIe (through a switch where `pcie_switches` > 0) or, where `c2c_bytes_per_s` > 0, over
    a chip-to-chip link; then PCIe joins it to a switch only. `nvlink_wires` lists (gpu, gpu, links) for `wires`, and
    `nvlink_bytes_per_s` is then the rate of one link, otherwise of one GPU's port on the NVSwitch.
    `nvlink_domain_nodes` consecutive nodes share an NVSwitch, which adds what GPUs send where it has `nvls`.
    Without switches, NICs hang on sockets whatever `nic_attach` says. GPUs, switches and NICs are spread evenly, in
    order. `host_power` is what the server draws at most beside the boards of its GPUs; None: not known. `device` is
    what a file says until it is looked up.
    """

    node: str
    device: Any
    gpus_per_node: Annotated[int, count(1, 1024)]
    sockets: Annotated[int, count(1, 64)]
    pcie_switches: Annotated[int, count(0, 256)]
    pcie_gen: _Generation
    upstream_pcie_gen: _Generation
    upstream_ports: Annotated[int, count(1)]
    nvlink: Literal["switch", "wires", "none"]
    nvlink_bytes_per_s: _RateOrNone = 0.0
    nvlink_wires: Annotated[tuple[tuple[_Gpu, _Gpu, _Links], ...], AfterValidator(_check_pairs)] = ()
    nvlink_domain_nodes: Annotated[int, count(1)] = 1
    nvls: bool = False
    c2c_bytes_per_s: _RateOrNone = 0.0
    host_power: Annotated[float, quantity("watts")] | None = None
    host_memory: Annotated[float, quantity("bytes")]
    host_memory_bytes_per_s: Rate
    socket_bytes_per_s: _RateOrNone = 0.0
    nics: Annotated[int, count(0, 1024)]
    nic: Rate = 0.0
    nic_attach: Literal["switch", "socket"]
    network: Annotated[str, one_of(files.networks)]

    @property
    def switch_s(self) -> float:
        """Latency of a switch of the network."""
        return files.network_value(self.network, "network.switch_s")

    @property
    def nic_s(self) -> float:
        """Latency from a NIC to its leaf switch."""
        return files.network_value(self.network, "network.message_s") - self.switch_s


class Node:
    """A node type: its device, its wiring, and the routes inside it, each found once for all nodes of the type."""

    def __init__(
        self,
        device: Device,
        wires: Sequence[Wire],
        nvlink_domain_nodes: int = 1,
        host_memory_bytes: float = 0,
        host_power_w: float | None = None,
        nvls: bool = False,
    ):
        self.device = device
        self.graph = Graph(wires)
        self.nvlink_domain_nodes = nvlink_domain_nodes
        self.host_memory_bytes = host_memory_bytes
        self.host_power_w = host_power_w
        self.nvls = nvls
        self.gpus = self._named("gpu")
        self.nics = self._named("nic")
        self.numas = self._named("numa")

    def _named(self, kind: str) -> tuple[str, ...]:
        found = [v for v in self.graph.vertices if re.fullmatch(rf"{kind}\d+", v)]
        return tuple(sorted(found, key=lambda v: int(v[len(kind) :])))

    @cached_property
    def numa_of(self) -> dict[str, str]:
        """The nearest host memory of each GPU and NIC."""
        near = {v: self._distances(self.numas, v) for v in (*self.gpus, *self.nics)}
        return {v: min(distances, key=distances.__getitem__) for v, distances in near.items() if distances}

    @cached_property
    def nics_of(self) -> dict[str, tuple[str, ...]]:
        """The NICs of each GPU, its own first: the nearest one, spread evenly, then those no GPU has chosen."""
        own = self._spread(self.gpus, self.nics)
        spare = self._spread([n for n in self.nics if n not in own.values()], self.gpus)
        return {g: (nic, *(n for n, to in spare.items() if to == g)) for g, nic in own.items()}

    @cached_property
    def nic_bytes_per_s(self) -> float:
        """What its fastest NIC sends through its PCIe slot; 0 without NICs."""
        return max((min(nic, slot) for nic, slot in self._nics_in_slots), default=0.0)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What slows its NICs: a slot that is slower than the NIC in it."""
        return tuple(
            f"NIC {format_rate(nic)} is bound by its PCIe slot, {format_rate(slot)} (cluster.pcie_gen)"
            for nic, slot in dict.fromkeys(self._nics_in_slots)
            if nic > slot
        )

    @cached_property
    def _nics_in_slots(self) -> list[tuple[float, float]]:
        """Line rates of each NIC and of its slot in bytes/s."""
        rates = {(wire.src, wire.link.kind): wire.link.bytes_per_s for wire in self.graph.wires}
        return [(rates.get((nic, "nic"), 0.0), rates.get((nic, "pcie"), inf)) for nic in self.nics]

    def _spread(self, vertices: Sequence[str], choices: Sequence[str]) -> dict[str, str]:
        """Each vertex's nearest choice; among equally near ones, the least chosen so far."""
        chosen: dict[str, str] = {}
        taken: Counter[str] = Counter()
        for v in vertices:
            near = self._distances(choices, v)
            if near:
                chosen[v] = min(near, key=lambda c: (near[c], taken[c]))
                taken[chosen[v]] += 1
        return chosen

    def _distances(self, choices: Sequence[str], to: str) -> dict[str, float]:
        """Latency from each choice that reaches `to`, rounded so that equal paths compare equal."""
        return {c: round(self._latencies[c][to], 12) for c in choices if to in self._latencies[c]}

    @cached_property
    def _latencies(self) -> dict[str, dict[str, float]]:
        """Latencies from each GPU, NIC and host memory to every vertex that it reaches."""
        return {v: self.graph.latencies(v) for v in (*self.gpus, *self.nics, *self.numas)}


def wires_left(wires: Any, gpus: Any) -> Any:
    """The NVLink wires of a node type that are left when a node has so many GPUs; what is no wire stays as it is."""
    if not isinstance(wires, list) or not isinstance(gpus, int):
        return wires
    return [wire for wire in wires if not isinstance(wire, list) or all(_is_there(gpu, gpus) for gpu in wire[:2])]


def _is_there(gpu: Any, gpus: int) -> bool:
    return not isinstance(gpu, int) or gpu < gpus


def build(shape: NodeShape) -> Node:
    """The node type that a shape describes."""
    wires = [*_gpus(shape), *_nvlink(shape), *_sockets(shape), *_switches(shape), *_nics(shape)]
    return Node(shape.device, wires, shape.nvlink_domain_nodes, shape.host_memory, shape.host_power, shape.nvls)


def _latency_s(kind: str) -> float:
    return parse(files.wires()["latency"][kind]["value"], "seconds")


def _pcie_bytes_per_s(generation: int) -> float:
    """16 lanes, one direction, after line coding."""
    return parse(files.wires()["pcie"][str(generation)]["line"]["value"], "bytes_per_s")


def _gpus(s: NodeShape) -> Iterator[Wire]:
    pcie = _pcie_bytes_per_s(s.pcie_gen), _latency_s("pcie")
    for i in range(s.gpus_per_node):
        gpu, cpu = f"gpu{i}", f"cpu{i * s.sockets // s.gpus_per_node}"
        yield loop(gpu, "hbm", s.device.memory_bytes_per_s)
        if s.c2c_bytes_per_s:
            yield from duplex(gpu, cpu, "c2c", s.c2c_bytes_per_s, _latency_s("c2c"))
        if s.pcie_switches:
            yield from duplex(gpu, f"pcie{i * s.pcie_switches // s.gpus_per_node}", "pcie", *pcie)
        elif not s.c2c_bytes_per_s:
            yield from duplex(gpu, cpu, "pcie", *pcie)


def _nvlink(s: NodeShape) -> Iterator[Wire]:
    latency_s = _latency_s("nvlink")
    if s.nvlink == "switch":
        for i in range(s.gpus_per_node):
            yield from duplex(f"gpu{i}", "nvswitch", "nvlink", s.nvlink_bytes_per_s, latency_s)
    if s.nvlink == "wires":
        for a, b, links in s.nvlink_wires:
            yield from duplex(f"gpu{a}", f"gpu{b}", "nvlink", links * s.nvlink_bytes_per_s, latency_s)


def _sockets(s: NodeShape) -> Iterator[Wire]:
    for i in range(s.sockets):
        yield from half_duplex(f"numa{i}", f"cpu{i}", "host_memory", s.host_memory_bytes_per_s)
        for j in range(i):
            yield from duplex(f"cpu{j}", f"cpu{i}", "socket", s.socket_bytes_per_s, _latency_s("socket"))


def _switches(s: NodeShape) -> Iterator[Wire]:
    upstream = _pcie_bytes_per_s(s.upstream_pcie_gen) * s.upstream_ports
    for i in range(s.pcie_switches):
        yield from duplex(f"pcie{i}", f"cpu{i * s.sockets // s.pcie_switches}", "pcie", upstream, _latency_s("pcie"))


def _nics(s: NodeShape) -> Iterator[Wire]:
    on_switch = s.nic_attach == "switch" and s.pcie_switches > 0
    parents, kind = (s.pcie_switches, "pcie") if on_switch else (s.sockets, "cpu")
    pcie = _pcie_bytes_per_s(s.pcie_gen), _latency_s("pcie")
    for k in range(s.nics):
        nic, port = f"nic{k}", f"port{k}"
        yield from duplex(nic, f"{kind}{k * parents // s.nics}", "pcie", *pcie)
        yield oneway(nic, port, "nic", s.nic, s.nic_s)
        yield oneway(port, nic, "nic", s.nic, s.switch_s)
