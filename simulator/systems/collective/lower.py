"""Messages of algorithms as a Program with Costs: every message is a flow over the links of its route.

Groups that exchange at the same time share links, as the engine shares them. Without sharing, messages end when
`collectives.algorithms.clock` says. A message holds its sender's and its receiver's port, which are lanes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np

from ...base.arrays import Ints
from ...collectives.algorithms.hops import ClusterNet
from ...collectives.algorithms.messages import Chunks, Group, Round
from ...collectives.algorithms.ways import Ways
from ...costs import Costs
from ...hardware import Cluster
from ...profile import PROVENANCE
from ...program import Lane, Place, Program, Ragged

_PORTS = tuple(
    f"{end}{beyond}{part}" for part in ("", " 2") for beyond in ("", " beyond") for end in ("send", "receive")
)
"""Lanes of a rank: its ports inside the island and to the network, and their parts for messages a second way."""


EXCHANGE = "exchange"
"""A tag: the number of the exchange whose message an op is."""


@dataclass(frozen=True)
class Exchange:
    """What one group does from `start_s` on: messages of an algorithm over `size` bytes, on the hops of its ranks."""

    chunks: Chunks
    group: Group
    size: float
    net: ClusterNet
    start_s: float = 0.0


def has_more_messages(rounds: Iterable[Round], most: int) -> bool:
    """Whether there are more messages than `most`; counting stops there, as millions of pieces take long to count."""
    return any(many > most for many in accumulate(one.times * len(one.pairs.src) for one in rounds))


@dataclass
class _Columns:
    """One array per repetition of a round."""

    send: list[Ints] = field(default_factory=list)
    receive: list[Ints] = field(default_factory=list)
    way: list[Ints] = field(default_factory=list)
    size: list[np.ndarray] = field(default_factory=list)
    after: list[np.ndarray] = field(default_factory=list)


def lower(cluster: Cluster, capacity: np.ndarray, exchanges: Sequence[Exchange]) -> tuple[Program, Costs]:
    """The Program of groups that exchange at the same time, by algorithms without switches, and its costs."""
    ways, columns, first = Ways(cluster), _Columns(), 0
    places: list[Place] = []
    firsts = [0]
    for number, exchange in enumerate(exchanges):
        assert not exchange.chunks.switches, "switches that add have no links of their own"
        first = _write(exchange, ways, columns, first, len(places) * len(_PORTS))
        firsts.append(first)
        places += [Place(f"group {number} rank {i}", (rank,)) for i, rank in enumerate(exchange.net.ranks)]
    owner = np.repeat(np.arange(len(exchanges)), np.diff(firsts))
    return _program(columns, places, owner), _costs(columns, ways, capacity, cluster.links.columns["name"].tolist())


def _write(exchange: Exchange, ways: Ways, columns: _Columns, first: int, lane: int) -> int:
    """Append the messages of a group, whose lanes begin at `lane`; the number of messages so far."""
    chunks, net = exchange.chunks, exchange.net
    arrived = np.full((chunks.streams, 2, len(net.ranks)), -1)  # the last message, by stream, port and rank
    if exchange.start_s > 0:
        arrived[:, 0] = first
        _wait(exchange.start_s, ways, columns, lane)
        first += 1
    for one in chunks.rounds():
        src, dst = one.pairs.src, one.pairs.dst
        beyond = (src // net.near != dst // net.near).astype(np.int64)
        way = ways.of(one.pairs, net)
        for k in range(one.times):
            ops = first + np.arange(len(src))
            columns.after.append(arrived[one.reads][:, src].T)
            port = lane + 4 * one.pairs.way + 2 * beyond
            columns.send.append(port + src * len(_PORTS))
            columns.receive.append(port + dst * len(_PORTS) + 1)
            columns.way.append(way)
            columns.size.append(chunks.message_bytes(one, k, exchange.size))
            arrived[one.writes, beyond, dst] = ops
            first += len(src)
    return first


def _wait(seconds: float, ways: Ways, columns: _Columns, lane: int) -> None:
    """Append an op that holds a group back: its ranks send nothing before."""
    columns.after.append(np.full((1, 2), -1))
    columns.send.append(np.array([lane]))
    columns.receive.append(np.array([lane + 1]))
    columns.way.append(np.array([ways.wait(seconds)]))
    columns.size.append(np.zeros(1))


def _program(columns: _Columns, places: Sequence[Place], owner: Ints) -> Program:
    many = len(owner)
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
        tags={EXCHANGE: owner},
    )  # fmt: skip


def _ragged(values: np.ndarray, kept: np.ndarray) -> Ragged:
    return Ragged(_starts(kept.sum(axis=1)), values[kept].astype(np.int64))


def _starts(counts: np.ndarray) -> Ints:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _costs(columns: _Columns, ways: Ways, capacity: np.ndarray, names: Sequence[str]) -> Costs:
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
