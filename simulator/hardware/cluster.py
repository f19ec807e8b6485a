"""Many nodes and their network as one graph: names, links, and routes between any two vertices.

Nodes of one type are stamped from one template: their links follow each other, and a route found in the template is
moved to any node by adding an offset. What a node looks like inside is `node`; where cables end is `fabric`.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..base.errors import UserError
from ..base.rows import Rows
from .device import Device
from .fabric import Fabric, cable
from .graph import Graph, Link, Route, Wire
from .node import Node

_Count = TypeVar("_Count", int, NDArray[np.int64])


class _Place(NamedTuple):
    """A vertex inside a node: `n3.gpu5` is (3, "gpu5")."""

    node: int
    local: str

    def __str__(self) -> str:
        return f"n{self.node}.{self.local}"


class Cluster:
    """A directed graph of links over named vertices such as `n0.gpu3`, `n0.numa1`, `n0.nic5`, `leaf4` and `spine`.

    Links are numbered node by node, then the network's own. Between nodes, traffic leaves through the source's own NIC
    and arrives through the destination's own NIC (`nic_of`), except between GPUs of one NVLink domain.
    """

    def __init__(self, nodes: Sequence[Node], fabric: Fabric | None = None):
        self.nodes = tuple(nodes)
        self.fabric = fabric or Fabric("single")
        leaf_of, wires = cable(self.fabric, [_nic_rates(node) for node in self.nodes])
        self._core = Graph(wires)
        self._islands: dict[int, int] = {}  # those that were asked for
        self._first_gpu = [0, *accumulate(len(n.gpus) for n in self.nodes)]
        self._first_link = [0, *accumulate(len(n.graph.links) for n in self.nodes)]
        domains = _domains(self.nodes)
        self._outside = [_outside(leaves, switch) for leaves, switch in zip(leaf_of, domains, strict=True)]
        self._racks: dict[str | None, list[int]] = defaultdict(list)  # nodes by the NVLink switch that they share
        for node, switch in enumerate(domains):
            self._racks[switch].append(node)

    @classmethod
    def from_wires(cls, device: Device, wires: Iterable[Wire]) -> "Cluster":
        """A cluster of one node with exactly these wires."""
        return cls([Node(device, list(wires))])

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.nodes)

    @property
    def n_gpus(self) -> int:
        """Number of GPUs over all nodes."""
        return self._first_gpu[-1]

    @property
    def gpus_per_node(self) -> tuple[int, ...]:
        """Number of GPUs of each node."""
        return tuple(len(node.gpus) for node in self.nodes)

    @cached_property
    def is_mixed(self) -> bool:
        """Whether there are nodes of several kinds."""
        return any(node is not self.nodes[0] for node in self.nodes)

    def node_of(self, gpu: int) -> int:
        """The node that holds a GPU."""
        assert 0 <= gpu < self.n_gpus, f"GPU {gpu} of {self.n_gpus}"
        return bisect_right(self._first_gpu, gpu) - 1

    def gpus_of(self, node: int) -> range:
        """The GPUs of a node."""
        return range(self._first_gpu[node], self._first_gpu[node + 1])

    def device(self, gpu: int) -> Device:
        """The device of a GPU."""
        return self.nodes[self.node_of(gpu)].device

    def nvlink_domain(self, gpu: int) -> tuple[int, ...]:
        """All GPUs that this one reaches over NVLink alone, itself included."""
        return tuple(self._over_nvlink(gpu))

    def island(self, gpu: int) -> int:
        """The first GPU that this one reaches without the network, in its node or over NVLink; it names the island."""
        if gpu not in self._islands:
            home = self.node_of(gpu)
            in_rack = next(self._over_nvlink(gpu)) if "nvswitch" in self._outside[home] else gpu
            self._islands[gpu] = min(self._first_gpu[home], in_rack)
        return self._islands[gpu]

    def _over_nvlink(self, gpu: int) -> Iterator[int]:
        """The GPUs that a GPU reaches over NVLink, in ascending order."""
        home = self.node_of(gpu)
        switch = self._outside[home].get("nvswitch")
        for other in (g for node in (self._racks[switch] if switch else [home]) for g in self.gpus_of(node)):
            if self.has_nvlink(gpu, other):
                yield other

    def has_nvlink(self, gpu: int, other: int) -> bool:
        """Whether a GPU reaches another one over NVLink alone, as it reaches itself."""
        me, there = self._gpu(gpu), self._gpu(other)
        switch = self._outside[me.node].get("nvswitch")
        if me.node != there.node and (switch is None or switch != self._outside[there.node].get("nvswitch")):
            return False
        kinds = self.links.columns["kind"]
        return gpu == other or {kinds[link] for link in self._between(me, there) or ()} == {"nvlink"}

    def gpu(self, gpu: int) -> str:
        """Vertex of a GPU."""
        return str(self._gpu(gpu))

    def numa_of(self, gpu: int) -> str:
        """Vertex of the host memory nearest to a GPU."""
        return str(self._numa(gpu))

    def nics_of(self, node: int) -> list[str]:
        """Vertices of a node's NICs."""
        return [f"n{node}.{nic}" for nic in self.nodes[node].nics]

    def nic_of(self, gpu: int) -> str:
        """Vertex of the NIC that serves a GPU: the nearest one; GPUs that share are spread evenly."""
        return self.nics_of_gpu(gpu)[0]

    def nics_of_gpu(self, gpu: int) -> tuple[str, ...]:
        """All NICs that serve a GPU, its own first; more than one where a node has more NICs than GPUs."""
        me = self._gpu(gpu)
        nics = self.nodes[me.node].nics_of.get(me.local, ())
        if not nics:
            raise UserError(f"no NIC is attached to {me}")
        return tuple(f"n{me.node}.{nic}" for nic in nics)

    def _gpu(self, gpu: int) -> _Place:
        node = self.node_of(gpu)
        return _Place(node, self.nodes[node].gpus[gpu - self._first_gpu[node]])

    def _numa(self, gpu: int) -> _Place:
        me = self._gpu(gpu)
        numa = self.nodes[me.node].numa_of.get(me.local)
        if numa is None:
            raise UserError(f"no host memory is attached to {me}")
        return _Place(me.node, numa)

    @cached_property
    def links(self) -> Rows[Link]:
        """Every link of the cluster, in index order."""
        graphs = [*(node.graph for node in self.nodes), self._core]
        tables = {graph: _columns(graph.links) for graph in graphs}
        columns = {field: np.concatenate([tables[graph][field] for graph in graphs]) for field in Link._fields}
        before = np.array([*(f"n{node}." for node in range(self.n_nodes)), ""], object)
        names = np.repeat(before, [len(graph.links) for graph in graphs]) + columns["name"]
        return Rows(Link, {**columns, "name": names})

    @property
    def capacity(self) -> NDArray[np.float64]:
        """Bytes per second of every link, shape `[links]`."""
        return self.links.columns["bytes_per_s"]

    @cached_property
    def period(self) -> int:
        """After how many GPUs the cluster repeats itself, in what they reach as in their links; 0: never."""
        node = self.nodes[0]
        if self.fabric.oversubscription != 1 or self.is_mixed:
            return 0
        return len(node.gpus) * node.nvlink_domain_nodes

    @property
    def node_links(self) -> int:
        """Links inside nodes: the first ones."""
        return self._first_link[-1]

    def links_moved(self, gpus: _Count) -> _Count:
        """The offset of link numbers for an offset of GPU numbers, which must be whole periods.

        What is to those GPUs what the links are to their own has these numbers; the network is there once.
        """
        return gpus // len(self.nodes[0].gpus) * len(self.nodes[0].graph.links)

    @cached_property
    def node_of_link(self) -> NDArray[np.int64]:
        """The node of every link; -1 for those of the network."""
        counts = np.diff(self._first_link)
        own = np.repeat(np.arange(self.n_nodes), counts)
        return np.concatenate([own, np.full(len(self.links) - len(own), -1)])

    def hbm(self, gpu: int) -> int:
        """Index of the link that stands for a GPU's memory; reads and writes share it."""
        me = self._gpu(gpu)
        own = self.nodes[me.node].graph.loop_at(me.local, "hbm")
        if own is None:
            raise UserError(f"no memory is attached to {me}")
        return self._first_link[me.node] + own

    def nic_tx(self, nic: str) -> int:
        """Index of the link that leaves a NIC for the network."""
        me = self._place(nic)
        return self._route(me, me._replace(local=_port(me.local)))[0]

    def nic_rx(self, nic: str) -> int:
        """Index of the link that enters a NIC from the network."""
        me = self._place(nic)
        return self._route(me._replace(local=_port(me.local)), me)[0]

    def leaf_of(self, nic: str) -> str:
        """The leaf switch in which a NIC's cable ends; itself where there is no network."""
        me = self._place(nic)
        return self._outside[me.node].get(_port(me.local), nic)

    def uplink_bytes_per_s(self, leaf: str) -> float:
        """The rate from a leaf to the spine in bytes/s; infinite for a single leaf."""
        route = self._core.route(leaf, "spine") if leaf in self._core.vertices else None
        return self._core.links[route[0]].bytes_per_s if route else float("inf")

    def h2d_route(self, gpu: int) -> Route:
        """Nearest host memory to GPU: host memory, the socket's port, the GPU's inbound link."""
        return self._route(self._numa(gpu), self._gpu(gpu))

    def d2h_route(self, gpu: int) -> Route:
        """GPU to its nearest host memory."""
        return self._route(self._gpu(gpu), self._numa(gpu))

    def nic_in_route(self, gpu: int, nic: str) -> Route:
        """The route from a NIC to a GPU of its own node without host memory (GPUDirect)."""
        return self._route(self._beside(nic, gpu), self._gpu(gpu))

    def nic_out_route(self, gpu: int, nic: str) -> Route:
        """The route from a GPU to a NIC of its own node."""
        return self._route(self._gpu(gpu), self._beside(nic, gpu))

    def route(self, src: str, dst: str) -> Route:
        """Link indices from one vertex of a node to another: lowest latency, then fewest links.

        Raises:
            UserError: a vertex does not exist, or nothing connects the two.
        """
        return self._route(self._place(src), self._place(dst))

    def _route(self, src: _Place, dst: _Place) -> Route:
        route = self._between(src, dst)
        if route is None:
            raise UserError(f"no route from {src} to {dst}")
        return route

    def _between(self, a: _Place, b: _Place) -> Route | None:
        if a.node == b.node:
            return self._moved(a.node, self.nodes[a.node].graph.route(a.local, b.local))
        return self._through(a, "nvswitch", b, "nvswitch") or self._through(a, self._cable(a), b, self._cable(b))

    def _through(self, a: _Place, leave: str, b: _Place, enter: str) -> Route | None:
        """Out of a's node at one shared vertex, across the network, into b's node at another."""
        exit_, entry = self._outside[a.node].get(leave), self._outside[b.node].get(enter)
        if exit_ is None or entry is None:
            return None
        out = self._moved(a.node, self.nodes[a.node].graph.route(a.local, leave))
        across = () if exit_ == entry else self._moved(self.n_nodes, self._core.route(exit_, entry))
        into = self._moved(b.node, self.nodes[b.node].graph.route(enter, b.local))
        return None if out is None or across is None or into is None else (*out, *across, *into)

    def _cable(self, place: _Place) -> str:
        """The port that serves a vertex: a NIC's own, a GPU's NIC's, else that of the first NIC near that memory."""
        node = self.nodes[place.node]
        own = [place.local] if place.local in node.nics else node.nics_of.get(place.local, ())
        near = [nic for nic in node.nics if node.numa_of.get(nic) == place.local]
        return _port(next(iter((*own, *near, *node.nics)), ""))

    def _moved(self, node: int, route: Route | None) -> Route | None:
        first = self._first_link[node]
        return None if route is None else tuple([first + i for i in route])

    def _place(self, vertex: str) -> _Place:
        head, _, local = vertex.partition(".")
        number = head[1:]
        if head[:1] == "n" and number.isdecimal() and int(number) < self.n_nodes:
            place = _Place(int(number), local)
            if local in self.nodes[place.node].graph.out and local not in self._outside[place.node]:
                return place
        raise UserError(f"no vertex {vertex!r} in this cluster of {self.n_nodes} nodes")

    def _beside(self, nic: str, gpu: int) -> _Place:
        """A NIC in the node of a GPU."""
        place = self._place(nic)
        if place.node != self.node_of(gpu):
            raise UserError(f"no route from {nic} to {self.gpu(gpu)}: they are in different nodes")
        return place


def _columns(links: Sequence[Link]) -> dict[str, NDArray[Any]]:
    names, kinds, rates, latencies = zip(*links, strict=True) if links else ((),) * 4
    texts = np.array(names, object), np.array(kinds, object)
    return dict(zip(Link._fields, (*texts, np.array(rates, float), np.array(latencies, float)), strict=True))


def _port(nic: str) -> str:
    return nic.replace("nic", "port")


def _nic_rates(node: Node) -> list[float]:
    """Bytes per second that each NIC sends to the network; a NIC without a cable sends nothing."""
    routes = [node.graph.route(nic, _port(nic)) for nic in node.nics]
    return [node.graph.links[route[0]].bytes_per_s if route else 0.0 for route in routes]


def _domains(nodes: Sequence[Node]) -> list[str | None]:
    """The NVSwitch that each node shares with its neighbours of the same type, or None."""
    names: list[str | None] = []
    start = rack = -1
    for i, node in enumerate(nodes):
        new_run = i == 0 or nodes[i - 1] is not node
        start = i if new_run else start
        if node.nvlink_domain_nodes > 1 and (i - start) % node.nvlink_domain_nodes == 0:
            rack += 1
        names.append(f"rack{rack}.nvswitch" if node.nvlink_domain_nodes > 1 else None)
    return names


def _outside(leaves: Sequence[str], switch: str | None) -> dict[str, str]:
    """Cluster names of a node's vertices that other nodes share."""
    ports = {f"port{k}": leaf for k, leaf in enumerate(leaves)}
    return ports | ({"nvswitch": switch} if switch else {})
