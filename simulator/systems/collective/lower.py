"""Messages of algorithms as a Program with Costs: every message is a flow over the links of its route.

Groups that exchange at the same time share links, as the engine shares them. Without sharing, messages end when
`collectives.algorithms.clock` says. A message holds its sender's and its receiver's port, which are lanes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ...base.arrays import Ints
from ...collectives.algorithms.hops import ClusterNet
from ...collectives.algorithms.messages import Chunks, Group, Pairs
from ...costs import Costs
from ...hardware import Cluster
from ...profile import PROVENANCE
from ...program import Lane, Place, Program, Ragged

_PORTS = ("send", "receive", "send beyond", "receive beyond")
"""Lanes of a rank: its ports inside the island and to the network."""


@dataclass(frozen=True)
class Exchange:
    """What one group does: the messages of an algorithm over `size` bytes, on the hops of its ranks."""

    chunks: Chunks
    group: Group
    size: float
    net: ClusterNet


@dataclass
class _Columns:
    """One array per repetition of a round."""

    send: list[Ints] = field(default_factory=list)
    receive: list[Ints] = field(default_factory=list)
    way: list[Ints] = field(default_factory=list)
    size: list[np.ndarray] = field(default_factory=list)
    after: list[np.ndarray] = field(default_factory=list)


class _Ways:
    """Distinct hops between two ranks: their seconds, and the links that they cross."""

    def __init__(self, cluster: Cluster):
        self._cluster = cluster
        self._index: dict[tuple[int, int, bool], int] = {}
        self.latency_s: list[float] = []
        self.bytes_per_s: list[float] = []
        self.shares: list[dict[int, float]] = []

    def of(self, pairs: Pairs, net: ClusterNet) -> Ints:
        """The number of each message's way."""
        wires = net.hops(pairs)
        found = np.empty(len(pairs.src), np.int64)
        for i, (a, b) in enumerate(zip(pairs.src.tolist(), pairs.dst.tolist(), strict=True)):
            key = net.ranks[a], net.ranks[b], pairs.striped
            if key not in self._index:
                self._index[key] = len(self._index)
                self.latency_s.append(float(wires.latency_s[i]))
                self.bytes_per_s.append(1 / float(wires.s_per_byte[i]))
                self.shares.append(dict(self._crossed(net, a, b, striped=pairs.striped)))
            found[i] = self._index[key]
        return found

    def _crossed(self, net: ClusterNet, a: int, b: int, *, striped: bool) -> Iterator[tuple[int, float]]:
        """(link, share of the bytes) from rank to rank of a group; striped over all NICs of both islands."""
        cluster, near = self._cluster, net.near
        if a // near == b // near:
            yield from ((link, 1.0) for link in cluster.route(cluster.gpu(net.ranks[a]), cluster.gpu(net.ranks[b])))
            return
        places = range(near) if striped else (0,)
        starts = (a // near * near, b // near * near) if striped else (a, b)
        found: dict[int, float] = {}
        for place in places:
            source, target = (net.ranks[start + place] for start in starts)
            for link, share in self._between(source, target):
                found[link] = found.get(link, 0.0) + share / len(places)
        yield from found.items()

    def _between(self, source: int, target: int) -> Iterator[tuple[int, float]]:
        """From GPU to GPU through a NIC of each node, as the fabric routes one flow."""
        cluster, into = self._cluster, self._cluster.nic_of(target)
        out = cluster.nic_towards(source, into)
        yield from ((link, 1.0) for link in cluster.nic_out_route(source, out))
        yield from cluster.shares(out, into).items()
        yield from ((link, 1.0) for link in cluster.nic_in_route(target, into))


def lower(cluster: Cluster, capacity: np.ndarray, exchanges: Sequence[Exchange]) -> tuple[Program, Costs]:
    """The Program of groups that exchange at the same time, and its costs.

    Raises:
        ValueError: an algorithm uses switches, which have no ports of their own.
    """
    ways, columns, first = _Ways(cluster), _Columns(), 0
    places: list[Place] = []
    for number, exchange in enumerate(exchanges):
        if exchange.chunks.switches:
            raise ValueError("switches that add have no links of their own")
        first = _write(exchange, ways, columns, first, len(places) * len(_PORTS))
        places += [Place(f"group {number} rank {i}", (rank,)) for i, rank in enumerate(exchange.net.ranks)]
    return _program(columns, places, first), _costs(columns, ways, capacity, cluster.links.columns["name"].tolist())


def _write(exchange: Exchange, ways: _Ways, columns: _Columns, first: int, lane: int) -> int:
    """Append the messages of a group, whose lanes begin at `lane`; the number of messages so far."""
    chunks, net = exchange.chunks, exchange.net
    block = exchange.size * chunks.buffers / chunks.blocks
    arrived = np.full((chunks.streams, 2, len(net.ranks)), -1)  # the last message, by stream, port and rank
    for one in chunks.rounds():
        src, dst = one.pairs.src, one.pairs.dst
        beyond = (src // net.near != dst // net.near).astype(np.int64)
        way = ways.of(one.pairs, net)
        for _ in range(one.times):
            ops = first + np.arange(len(src))
            columns.after.append(arrived[one.reads][:, src].T)
            columns.send.append(lane + src * len(_PORTS) + 2 * beyond)
            columns.receive.append(lane + dst * len(_PORTS) + 2 * beyond + 1)
            columns.way.append(way)
            columns.size.append(np.broadcast_to(one.length * block, len(src)))
            arrived[one.writes, beyond, dst] = ops
            first += len(src)
    return first


def _program(columns: _Columns, places: Sequence[Place], many: int) -> Program:
    ports = np.stack([np.concatenate(columns.send), np.concatenate(columns.receive)], axis=1)
    lanes = np.unique(ports)
    number = np.searchsorted(lanes, ports)
    by_lane = np.argsort(number.ravel(), kind="stable")
    after = np.concatenate(columns.after)
    zeros, none = np.zeros(many, np.int64), Ragged(np.zeros(many + 1, np.int64), np.empty(0, np.int64))
    return Program(
        places=tuple(places),
        lanes=tuple(Lane(lane // len(_PORTS), _PORTS[lane % len(_PORTS)]) for lane in lanes.tolist()),
        buffers=(), pools=(), kinds=("send_recv",), dtypes=("",), groups=((),),
        names=("message",) * many,
        kind=zeros, bytes=np.concatenate(columns.size).astype(np.int64), shape=none, dtype=zeros, group=zeros,
        root=np.full(many, -1), deps=_ragged(after, after >= 0), accesses=none, access_table=(),
        acquires=none, releases=none,
        order=Ragged(_starts(np.bincount(number.ravel(), minlength=len(lanes))), by_lane // 2),
        tags={},
    )  # fmt: skip


def _ragged(values: np.ndarray, kept: np.ndarray) -> Ragged:
    return Ragged(_starts(kept.sum(axis=1)), values[kept].astype(np.int64))


def _starts(counts: np.ndarray) -> Ints:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _costs(columns: _Columns, ways: _Ways, capacity: np.ndarray, names: Sequence[str]) -> Costs:
    way, size = np.concatenate(columns.way), np.concatenate(columns.size)
    rate = np.array(ways.bytes_per_s)
    shares = [np.array(list(crossed.values())) * each for crossed, each in zip(ways.shares, rate, strict=True)]
    demand = Ragged.build([list(crossed) for crossed in ways.shares])
    moved = np.bincount(way, size, minlength=len(rate))
    link_bytes = np.zeros(len(capacity))
    for (first, end), total, crossed in zip(pairwise(demand.start.tolist()), moved, ways.shares, strict=True):
        np.add.at(link_bytes, demand.values[first:end], total * np.array(list(crossed.values())))
    many = len(way)
    return Costs(
        latency_s=np.array(ways.latency_s)[way], work_s=size / rate[way], row=way, demand=demand,
        rate_bytes_per_s=np.concatenate(shares), capacity_bytes_per_s=capacity, link_bytes=link_bytes,
        link_names=tuple(names), classes=("send_recv",), cost_class=np.zeros(many, np.int64),
        provenance=np.full(many, PROVENANCE.index("fitted")), spread=np.zeros(many), interference=np.ones((1, 1)),
    )  # fmt: skip
