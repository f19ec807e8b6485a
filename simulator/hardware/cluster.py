"""Many nodes and their network as one graph: names, links, and routes between any two vertices.

Nodes of one type are stamped from one template: their links follow each other, and a route found in the template is
moved to any node by adding an offset. What a node looks like inside is `node`; where cables end, and which way bytes
take between them, is `fabrics`.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from math import inf
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from cachetools import cachedmethod
from numpy.typing import NDArray

from ..base.errors import UserError, fault
from ..base.rows import Rows
from .cabling import Place, nic_of_port, nic_rates, number_of_port, nvlink_domains, port_of_nic, shared_vertices
from .device import Device
from .fabrics import Fabric, Network, Parts, Shares, Transfer, parts_of
from .graph import Link, Route, Wire, join_links
from .node import Node

_Count = TypeVar("_Count", int, NDArray[np.int64])
_Method = TypeVar("_Method", bound=Callable[..., Any])


def _keep(method: _Method) -> _Method:
    """Keep what it answers: thousands of messages ask the same of each rank, and a cluster stays as it is."""
    name = method.__name__
    return cast(_Method, cachedmethod(lambda cluster: cluster._answers[name])(method))


class _Crossing(NamedTuple):
    """A way from node to node: links out of the one, what lies between their NICs, links into the other."""

    out: Route
    over: Transfer
    into: Route


class Cluster:
    """A directed graph of links over named vertices such as `n0.gpu3`, `n0.numa1`, `n0.nic5`, `leaf4` and `spine`.

    Links are numbered node by node, then the network's own. Between nodes, traffic leaves through the source's own NIC
    and arrives through the destination's own NIC (`nic_of`), except between GPUs of one NVLink domain. Where these two
    NICs are on different planes it first moves inside the source's node, to a GPU whose NIC is on the other one's.
    """

    def __init__(self, nodes: Sequence[Node], fabric: Fabric | None = None):
        self.nodes = tuple(nodes)
        self.fabric = fabric or Fabric("single")
        rates = {node: nic_rates(node) for node in dict.fromkeys(self.nodes)}
        self.network = Network(self.fabric, [rates[node] for node in self.nodes])
        self._islands: dict[int, int] = {}  # those that were asked for
        self._of_kind: dict[str, NDArray[np.int64]] = {}  # likewise
        self._answers: dict[str, dict[Any, Any]] = defaultdict(dict)  # likewise, by method
        self._first_gpu = [0, *accumulate(len(n.gpus) for n in self.nodes)]
        self._first_link = [0, *accumulate(len(n.graph.links) for n in self.nodes)]
        domains = nvlink_domains(self.nodes)
        at_leaves = zip(self.network.leaves, domains, strict=True)
        self._outside = [shared_vertices(leaves, switch) for leaves, switch in at_leaves]
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
    def notes(self) -> tuple[str, ...]:
        """What slows the NICs of its nodes, where they are used."""
        return tuple(dict.fromkeys(note for node in self.nodes for note in node.notes)) if self.n_nodes > 1 else ()

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

    def site_of(self, gpu: int) -> int:
        """The site of a GPU: that of its island's first one, as an island needs no network."""
        return self.network.site_of(self.node_of(self.island(gpu)))

    @cached_property
    def site_latency_s(self) -> NDArray[np.float64]:
        """Seconds that links between sites add to a message from one site to another, shape `[sites, sites]`."""
        return self.network.site_latency_s

    @cached_property
    def site_links(self) -> frozenset[int]:
        """The links between sites."""
        return frozenset(self.node_links + link for link in self.network.site_links)

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

    @_keep
    def nics_of_gpu(self, gpu: int) -> tuple[str, ...]:
        """All NICs that serve a GPU, its own first; more than one where a node has more NICs than GPUs."""
        me = self._gpu(gpu)
        nics = self.nodes[me.node].nics_of.get(me.local, ())
        if not nics:
            there = len(self.nodes[me.node].nics)
            raise UserError(fault("cluster.nics", "", there, f"no NIC is attached to {me}"))
        return tuple(f"n{me.node}.{nic}" for nic in nics)

    @_keep
    def _gpu(self, gpu: int) -> Place:
        node = self.node_of(gpu)
        return Place(node, self.nodes[node].gpus[gpu - self._first_gpu[node]])

    def _numa(self, gpu: int) -> Place:
        me = self._gpu(gpu)
        numa = self.nodes[me.node].numa_of.get(me.local)
        if numa is None:
            raise UserError(f"no host memory is attached to {me}")
        return Place(me.node, numa)

    @cached_property
    def links(self) -> Rows[Link]:
        """Every link of the cluster, in index order."""
        before = [*(f"n{node}." for node in range(self.n_nodes)), ""]
        return join_links([*(node.graph.links for node in self.nodes), self.network.links], before)

    @property
    def capacity(self) -> NDArray[np.float64]:
        """Bytes per second of every link, shape `[links]`."""
        return self.links.columns["bytes_per_s"]

    def links_of_kind(self, kind: str) -> NDArray[np.int64]:
        """The indices of the links of a kind."""
        if kind not in self._of_kind:
            self._of_kind[kind] = np.flatnonzero(self.links.columns["kind"] == kind)
        return self._of_kind[kind]

    @cached_property
    def period(self) -> int:
        """After how many GPUs the cluster repeats itself, in what they reach as in their links; 0: never."""
        node = self.nodes[0]
        if not self.network.is_even or self.is_mixed:
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
        return self._route(me, me._replace(local=port_of_nic(me.local)))[0]

    def nic_rx(self, nic: str) -> int:
        """Index of the link that enters a NIC from the network."""
        me = self._place(nic)
        return self._route(me._replace(local=port_of_nic(me.local)), me)[0]

    def leaf_of(self, nic: str) -> str:
        """The leaf switch in which a NIC's cable ends; itself where there is no network."""
        me = self._place(nic)
        return self._outside[me.node].get(port_of_nic(me.local), nic)

    def uplink_bytes_per_s(self, leaf: str) -> float:
        """The rate in bytes/s at which all NICs under a leaf may send to other leaves, while all others do.

        It is that of the narrowest level of the fabric; infinite for a single leaf.

        Raises:
            UserError: the fabric has several sites, which are apart by more than a level.
        """
        if self.fabric.sites > 1:
            allowed = "no rate holds inside a site and between two; state sync.bandwidth, or use one site"
            raise UserError(fault("cluster", "sites", self.fabric.sites, allowed))
        return self.network.beyond.get(leaf, inf)

    def h2d_route(self, gpu: int) -> Route:
        """Nearest host memory to GPU: host memory, the socket's port, the GPU's inbound link."""
        return self._route(self._numa(gpu), self._gpu(gpu))

    def d2h_route(self, gpu: int) -> Route:
        """GPU to its nearest host memory."""
        return self._route(self._gpu(gpu), self._numa(gpu))

    @_keep
    def nic_in_route(self, gpu: int, nic: str) -> Route:
        """The route from a NIC to a GPU of its own node without host memory (GPUDirect)."""
        return self._route(self._beside(nic, gpu), self._gpu(gpu))

    @_keep
    def nic_out_route(self, gpu: int, nic: str) -> Route:
        """The route from a GPU to a NIC of its own node: to that of another GPU through this one, over NVLink."""
        me, there = self._gpu(gpu), self._beside(nic, gpu)
        if (found := self._way_out(me, there.local)) is None:
            raise self.no_route(me, there)
        return found

    def route(self, src: str, dst: str) -> Route:
        """Link indices from one vertex of a node to another: lowest latency, then fewest links.

        Between nodes it is that of a first flow with `routing = "hash"`, whatever the routing.

        Raises:
            UserError: a vertex does not exist, or nothing connects the two.
        """
        return self._route(self._place(src), self._place(dst))

    def paths(self, src_nic: str, dst_nic: str) -> list[Route]:
        """Every equal route from one NIC to another NIC in another node; raises as `route`."""
        crossing = self._cross(self._place(src_nic), self._place(dst_nic))
        found = self.network.paths(crossing.over.src, crossing.over.dst) + self.node_links
        return [(*crossing.out, *links, *crossing.into) for links in found.tolist()]

    def shares(self, src: str, dst: str, flow: int = 0) -> Shares:
        """For each link, the share of a flow's bytes from one vertex to another, if it is alone; raises as `route`."""
        a, b = self._place(src), self._place(dst)
        if a.node == b.node or self._over_switch(a, b):
            return dict.fromkeys(self._route(a, b), 1.0)
        crossing = self._cross(a, b)
        return self._all_shares(crossing, self.network.shares(crossing.over, flow))

    def spread(self, pairs: Sequence[tuple[str, str]]) -> list[Shares]:
        """As `shares`, for each pair of vertices in different nodes, all flows of it; all pairs send together."""
        crossings = [self._cross(self._place(src), self._place(dst)) for src, dst in pairs]
        shares = self.network.spread([crossing.over for crossing in crossings])
        return [self._all_shares(crossing, found) for crossing, found in zip(crossings, shares, strict=True)]

    def parts(self) -> Parts:
        """The switches, cables and transceivers of its network."""
        return parts_of(self.fabric, [nic_rates(node) for node in self.nodes])

    def nic_towards(self, gpu: int, nic: str) -> str:
        """The NIC by which a GPU's node sends to a NIC elsewhere: the GPU's own, or one on the other NIC's plane."""
        me, there = self._gpu(gpu), self._place(nic)
        return f"n{me.node}.{nic_of_port(self._exit(me, port_of_nic(there.local)))}"

    def _route(self, src: Place, dst: Place) -> Route:
        route = self._between(src, dst)
        if route is None:
            raise self.no_route(src, dst)
        return route

    def no_route(self, src: object, dst: object, why: str = "") -> UserError:
        """The error for two places without a route: `degraded` is to blame where it takes links down."""
        line = f"no route from {src} to {dst}{why}"
        down = [link for link, factor in self.fabric.degraded if not factor]
        return UserError(fault("cluster", "degraded", down, line) if down else line)

    def _between(self, a: Place, b: Place) -> Route | None:
        if a.node == b.node:
            return self._inside(a.node, a.local, b.local)
        return self._over_switch(a, b) or self._over_network(a, b)

    def _over_switch(self, a: Place, b: Place) -> Route | None:
        """The route over an NVSwitch that two nodes share."""
        switch = self._outside[a.node].get("nvswitch")
        if switch is None or switch != self._outside[b.node].get("nvswitch"):
            return None
        out, into = self._inside(a.node, a.local, "nvswitch"), self._inside(b.node, "nvswitch", b.local)
        return None if out is None or into is None else out + into

    def _over_network(self, a: Place, b: Place) -> Route | None:
        crossing = self._crossing(a, b)
        if crossing is None or (over := self.network.route(*crossing.over[:4])) is None:
            return None
        return (*crossing.out, *self._moved(self.n_nodes, over), *crossing.into)

    def _cross(self, a: Place, b: Place) -> _Crossing:
        if a.node == b.node or (crossing := self._crossing(a, b)) is None:
            raise self.no_route(a, b, " over the network")
        return crossing

    def _crossing(self, a: Place, b: Place) -> _Crossing | None:
        """How bytes leave a's node and enter b's by their NICs; None if they cannot."""
        enter = self._cable(b)
        leave = self._exit(a, enter)
        src, dst = self._outside[a.node].get(leave), self._outside[b.node].get(enter)
        if src is None or dst is None or not self._same_plane(leave, enter):
            return None
        out, into = self._way_out(a, leave), self._inside(b.node, enter, b.local)
        if out is None or into is None:
            return None
        nics = f"n{a.node}.{nic_of_port(leave)}", f"n{b.node}.{nic_of_port(enter)}"
        return _Crossing(out, Transfer(src, dst, *nics), into)

    @_keep
    def _exit(self, a: Place, enter: str) -> str:
        """The port by which a vertex sends to a port of this name elsewhere: its own if both are on one plane."""
        node, own = self.nodes[a.node], self._cable(a)
        if a.local in node.nics or not own or not enter or self._same_plane(own, enter):
            return own
        ports = [port_of_nic(nic) for nic in (*node.nics_of.get(a.local, ()), *node.nics)]
        there = [port for port in ports if self._same_plane(port, enter)]
        return next((port for port in there if port == enter), next(iter(there), own))

    def _same_plane(self, port: str, other: str) -> bool:
        return self.network.same_plane(number_of_port(port), number_of_port(other))

    @_keep
    def _way_out(self, a: Place, leave: str) -> Route | None:
        """From a vertex to a NIC or port of its node; to another GPU's through this GPU, if NVLink leads there."""
        node, nic = self.nodes[a.node], nic_of_port(leave)
        straight = self._inside(a.node, a.local, leave)
        if a.local not in node.gpus or nic in node.nics_of.get(a.local, ()):
            return straight
        relay = next((gpu for gpu, nics in node.nics_of.items() if nic in nics), a.local)
        first, then = self._inside(a.node, a.local, relay), self._inside(a.node, relay, leave)
        if not first or then is None or {self.links[link].kind for link in first} != {"nvlink"}:
            return straight
        return first + then

    def _all_shares(self, crossing: _Crossing, over: Shares | None) -> Shares:
        """The shares of a whole crossing, with those between switches."""
        if over is None:
            raise self.no_route(crossing.over.out, crossing.over.into)
        own = dict.fromkeys((*crossing.out, *crossing.into), 1.0)
        return own | {self.node_links + link: share for link, share in over.items()}

    def _inside(self, node: int, src: str, dst: str) -> Route | None:
        """The route between two vertices of a node."""
        found = self.nodes[node].graph.route(src, dst)
        return None if found is None else self._moved(node, found)

    @_keep
    def _cable(self, place: Place) -> str:
        """The port that serves a vertex: a NIC's own, a GPU's NIC's, else that of the first NIC near that memory."""
        node = self.nodes[place.node]
        own = [place.local] if place.local in node.nics else node.nics_of.get(place.local, ())
        near = [nic for nic in node.nics if node.numa_of.get(nic) == place.local]
        return port_of_nic(next(iter((*own, *near, *node.nics)), ""))

    def _moved(self, node: int, route: Route) -> Route:
        first = self._first_link[node]
        return tuple([first + i for i in route])

    @_keep
    def _place(self, vertex: str) -> Place:
        head, _, local = vertex.partition(".")
        number = head[1:]
        if head[:1] == "n" and number.isdecimal() and int(number) < self.n_nodes:
            place = Place(int(number), local)
            if local in self.nodes[place.node].graph.out and local not in self._outside[place.node]:
                return place
        raise UserError(f"no vertex {vertex!r} in this cluster of {self.n_nodes} nodes")

    def _beside(self, nic: str, gpu: int) -> Place:
        """A NIC in the node of a GPU."""
        place = self._place(nic)
        if place.node != self.node_of(gpu):
            raise UserError(f"no route from {nic} to {self.gpu(gpu)}: they are in different nodes")
        return place
