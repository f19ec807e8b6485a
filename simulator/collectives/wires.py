"""The links that a rank of an exchange crosses: which ones, the bytes on each, and the least time that they need.

A collective over nodes contains that of one node. Of G gathered bytes, a rank's share of the NICs brings G/g minus its
own bytes, for g ranks in its node. The other G (g - 1)/g pass its NVLink port, as many as if all of G were in the node.
The same holds for a reduce-scatter, an all-reduce (one after the other) and, except for 1/g, for a broadcast or reduce.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, permutations

import numpy as np
from numpy.typing import NDArray

from ..hardware import Cluster, Shares
from ..profile.forms import BUS_FACTOR
from .flows import tiles
from .rings import nvlink_bytes_per_s, ring_order


@dataclass(frozen=True)
class Sent:
    """Bytes that one rank sends (and as many that it receives) through its `port` in the node, and through its NICs.

    `port_least` is the least number of bytes through the port with any algorithm.
    """

    port: float
    nics: float
    port_least: float


def bytes_sent(kind: str, ranks: int, islands: int, nearby: int, size: float) -> Sent:
    """The bytes that one rank of a collective sends, for its nccl-tests size, with `nearby` of its ranks per island.

    With NCCL's trees, sums of two nodes cross the NICs once each way (NVIDIA/nccl#209). A switch may compute the sums
    of a node, so that bytes pass a port once (NVLink SHARP); bus bandwidth then exceeds the line rate.
    """
    if kind == "all_to_all":
        inside = size * (nearby - 1) / ranks
        return Sent(inside, size * (ranks - nearby) / ranks, inside)
    inside = _bus_factor(kind, nearby) * size * (nearby > 1)
    through = 1.0 if kind == "all_reduce" and islands == 2 else _bus_factor(kind, ranks)
    least = size * (nearby > 1) if kind == "all_reduce" else inside
    return Sent(inside, through * size / nearby * (islands > 1), least)


def inside_bytes(kind: str, ranks: int, nearby: int, size: float) -> float:
    """The nccl-tests size of the collective in one node that a collective over several nodes contains."""
    return size * nearby / ranks if kind == "all_to_all" else size


def _bus_factor(kind: str, ranks: int) -> float:
    return float(BUS_FACTOR[kind](np.array([float(ranks)]))[0])


@dataclass(frozen=True)
class Wires:
    """Links that a rank crosses inside and beyond its island, with their shares of the bytes that it sends there."""

    inside: Shares = field(default_factory=dict)
    beyond: Shares = field(default_factory=dict)

    def bytes(self, inside: float, beyond: float) -> dict[int, float]:
        """Bytes on each link, if a rank sends these bytes inside and beyond its island; a PCIe port may carry both."""
        both = ((self.inside, inside), (self.beyond, beyond))
        found: dict[int, float] = {}
        for shares, size in both:
            for link, share in shares.items():
                found[link] = found.get(link, 0.0) + share * size
        return {link: size for link, size in found.items() if size}

    def least_s(self, inside: float, beyond: float, line: NDArray[np.float64]) -> float:
        """The least time in seconds: the bytes of the slowest link at its line rate `line`."""
        return max((size / float(line[link]) for link, size in self.bytes(inside, beyond).items()), default=0.0)


class Crossings:
    """Finds the links that ranks of a cluster cross. Results that depend only on a rank's neighbours are cached."""

    def __init__(self, cluster: Cluster):
        self._cluster = cluster
        self._joined: dict[tuple[int, ...], bool] = {}
        self._ports: dict[tuple[int, tuple[int, ...]], Shares] = {}
        self._wires: dict[tuple[int, tuple[int, ...]], Shares] = {}
        self._behind: dict[tuple[bool, tuple[int, ...], tuple[int, ...]], Shares] = {}
        self._beyond: dict[tuple[int, tuple[int, ...]], tuple[Shares, Shares]] = {}

    def collective(self, op: str, group: Sequence[int], me: int, stage: Sequence[int], islands: int) -> Wires:
        """The links of rank `me` of a collective; the other ranks of its `stage` act alike at the same time."""
        home = self._cluster.island(me)
        near = tuple(rank for rank in group if self._cluster.island(rank) == home)
        out, into = self._through_nics(me, stage) if islands > 1 else ({}, {})
        return Wires(self._inside_island(op, near, me, stage), {**out, **into})

    def _inside_island(self, op: str, near: tuple[int, ...], me: int, stage: Sequence[int]) -> Shares:
        """The links that rank `me` crosses to those `near` it, while all of its stage on its island do the same."""
        ports = self._ports_of(near, me)
        if self._is_joined(near):
            return ports
        home = self._cluster.island(me)
        here = tuple(rank for rank in stage if self._cluster.island(rank) == home)
        key = op == "all_to_all", near, here
        if key not in self._behind:
            self._behind[key] = _behind_ports(self._cluster, op, tiles(near, here))
        return {**ports, **self._behind[key]}

    def port_bytes_per_s(self, near: tuple[int, ...], me: int) -> float:
        """The line rate at which rank `me` sends to those `near` it."""
        ports = self._ports_of(near, me)
        return min(float(self._cluster.capacity[link]) / share for link, share in ports.items())

    def _ports_of(self, near: tuple[int, ...], me: int) -> Shares:
        """The links by which bytes of rank `me` leave it for those `near` it, and enter it."""
        if (me, near) not in self._ports:
            others = [rank for rank in near if rank != me]
            self._ports[me, near] = _ports(self._cluster, me, others, self._is_joined(near))
        return self._ports[me, near]

    def _is_joined(self, near: tuple[int, ...]) -> bool:
        """Whether NVLink wires form a ring of all these ranks."""
        if near not in self._joined:
            self._joined[near] = len(near) < 2 or _are_joined(self._cluster, near)
        return self._joined[near]

    def inside(self, near: tuple[int, ...], a: int, b: int) -> Shares:
        """The links of a message from rank a to rank b of an exchange, of whose ranks these are on their island.

        Where NVLink wires join all of them, a library sends round several rings, which use all wires of a GPU.
        """
        if len(out := self._out_of(near, a)) > 1:
            return out
        cluster = self._cluster
        return dict.fromkeys(cluster.route(cluster.gpu(a), cluster.gpu(b)), 1.0)

    def _out_of(self, near: tuple[int, ...], me: int) -> Shares:
        """The NVLink wires by which bytes of rank `me` leave it, where these join all of those near it."""
        if (me, near) not in self._wires:
            others = [rank for rank in near if rank != me]
            out = _ways(self._cluster, me, others, joined=True)[0] if self._is_joined(near) else set()
            self._wires[me, near] = dict(_by_rate(self._cluster, out))
        return self._wires[me, near]

    def message(self, a: int, b: int, stages: Mapping[int, Sequence[int]]) -> Wires:
        """The links of a message from rank a to rank b; through NICs only between islands."""
        cluster = self._cluster
        if cluster.island(a) == cluster.island(b):
            return Wires(inside=dict.fromkeys(cluster.route(cluster.gpu(a), cluster.gpu(b)), 1.0))
        (out, _), (_, into) = (self._through_nics(rank, stages.get(rank, (rank,))) for rank in (a, b))
        if (leaves_by := cluster.nic_towards(a, cluster.nic_of(b))) != cluster.nic_of(a):  # on another plane
            out = dict.fromkeys((*cluster.nic_out_route(a, leaves_by), cluster.nic_tx(leaves_by)), 1.0)
        return Wires(beyond={**out, **into})

    def _through_nics(self, rank: int, stage: Sequence[int]) -> tuple[Shares, Shares]:
        """The links from a rank to the network, and back, shared with the ranks of its stage on its node."""
        near = self._cluster.gpus_of(self._cluster.node_of(rank))
        key = rank, tuple(other for other in stage if other in near)
        if key not in self._beyond:
            self._beyond[key] = _out(self._cluster, *key), _into(self._cluster, *key)
        return self._beyond[key]


def _ports(cluster: Cluster, me: int, near: Sequence[int], joined: bool) -> dict[int, float]:
    """The links by which bytes leave and enter a GPU inside its island, with shares by their rates.

    They are NVLink wires if these form a ring of all ranks (`joined`), else the links to ranks that NVLink does not
    reach.
    """
    if not near:
        return {}
    return {link: share for links in _ways(cluster, me, near, joined) for link, share in _by_rate(cluster, links)}


def _ways(cluster: Cluster, me: int, near: Sequence[int], joined: bool) -> tuple[set[int], set[int]]:
    """The links by which bytes leave a GPU inside its island, and those by which they enter it, as `_ports`."""
    peers = [rank for rank in near if bool(nvlink_bytes_per_s(cluster, me, rank)) == joined] or near
    out = {cluster.route(cluster.gpu(me), cluster.gpu(peer))[0] for peer in peers}
    back = {cluster.route(cluster.gpu(peer), cluster.gpu(me))[-1] for peer in peers}
    return out, back


def _are_joined(cluster: Cluster, near: Sequence[int]) -> bool:
    """Whether NVLink wires form a ring of all these ranks."""
    ring = ring_order(cluster, list(near))
    return all(nvlink_bytes_per_s(cluster, a, b) for a, b in pairwise([*ring, ring[0]]))


def _behind_ports(cluster: Cluster, op: str, groups: Sequence[Sequence[int]]) -> dict[int, float]:
    """Shares on links behind GPUs' own ports (of PCIe switches, between sockets), if these groups exchange at once.

    Each rank sends to the next one of its ring, or as much to every other rank.
    """
    found: dict[int, float] = {}
    for group in groups:
        ring = ring_order(cluster, list(group))
        hops = permutations(group, 2) if op == "all_to_all" else pairwise([*ring, ring[0]])
        share = 1 / (len(group) - 1) if op == "all_to_all" else 1.0
        for a, b in hops:
            for link in cluster.route(cluster.gpu(a), cluster.gpu(b))[1:-1]:
                found[link] = found.get(link, 0.0) + share
    return found


def _by_rate(cluster: Cluster, links: set[int]) -> Iterator[tuple[int, float]]:
    total = sum(float(cluster.capacity[link]) for link in links)
    yield from ((link, float(cluster.capacity[link]) / total) for link in sorted(links))


def _out(cluster: Cluster, rank: int, near: Sequence[int]) -> dict[int, float]:
    """Shares on links from a GPU to the network, spread over its NICs, which also carry the bytes of GPUs near it."""
    found: dict[int, float] = {}
    nics, load = cluster.nics_of_gpu(rank), _load_of_nic(cluster, near)
    for nic in nics:
        own, *shared = cluster.nic_out_route(rank, nic)
        found[own] = found.get(own, 0.0) + 1 / len(nics)
        found |= dict.fromkeys((*shared, cluster.nic_tx(nic)), load)
    return found


def _into(cluster: Cluster, rank: int, near: Sequence[int]) -> dict[int, float]:
    """Shares on links from the network to a GPU, as `_out`."""
    found: dict[int, float] = {}
    nics, load = cluster.nics_of_gpu(rank), _load_of_nic(cluster, near)
    for nic in nics:
        *shared, own = cluster.nic_in_route(rank, nic)
        found[own] = found.get(own, 0.0) + 1 / len(nics)
        found |= dict.fromkeys((*shared, cluster.nic_rx(nic)), load)
    return found


def _load_of_nic(cluster: Cluster, near: Sequence[int]) -> float:
    """Bytes through each NIC of these ranks, over those of one rank: NCCL spreads its channels over all of them."""
    return len(near) / len({nic for rank in near for nic in cluster.nics_of_gpu(rank)})


def read_route(cluster: Cluster, owner: int, receiver: int) -> Shares:
    """The links from the owner's nearest host memory to the receiver's device, through the NICs of both."""
    return write_route(cluster, owner, receiver, from_host=True)


def write_route(cluster: Cluster, source: int, target: int, *, from_host: bool) -> Shares:
    """The links from the source's device (or nearest host memory) to the target's device, through the NICs of both.

    Two crossings of a link carry the same bytes at the same time, and count once.
    """
    out, into = cluster.nic_of(source), cluster.nic_of(target)
    start = cluster.numa_of(source) if from_host else cluster.gpu(source)
    ends = dict.fromkeys(cluster.nic_in_route(target, into), 1.0)
    if _node(out) != _node(into) and cluster.nic_towards(source, into) != out:  # on another plane
        return {**cluster.spread([(start, into)])[0], **ends}
    fetched = cluster.route(start, out) if from_host else cluster.nic_out_route(source, out)
    return {**dict.fromkeys(fetched, 1.0), **nic_route(cluster, out, into), **ends}


def peer_route(cluster: Cluster, source: int, target: int) -> Shares:
    """The links from device to device: over NVLink if it joins them, else through the NICs of both."""
    if cluster.has_nvlink(source, target):
        return dict.fromkeys(cluster.route(cluster.gpu(source), cluster.gpu(target)), 1.0)
    return write_route(cluster, source, target, from_host=False)


def nic_route(cluster: Cluster, out: str, into: str) -> Shares:
    """The links from one NIC to another; inside a node, out through one NIC and in through the other."""
    if _node(out) != _node(into):
        return cluster.spread([(out, into)])[0]
    return dict.fromkeys((cluster.nic_tx(out), cluster.nic_rx(into)), 1.0)


def _node(vertex: str) -> str:
    return vertex.partition(".")[0]
