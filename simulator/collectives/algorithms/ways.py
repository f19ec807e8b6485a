"""The links that messages of an algorithm cross, from rank to rank, and the bytes that all of them put on each link."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...base.arrays import Floats, Ints
from ...hardware import Cluster, Shares
from ..flows import own_nics
from .hops import ClusterNet
from .messages import Chunks, Pairs


class Ways:
    """Distinct hops between two ranks: their seconds, and the links that they cross.

    Messages of a round are under way together, so with adaptive routing each round has ways of its own.
    """

    def __init__(self, cluster: Cluster):
        self._cluster = cluster
        self._index: dict[tuple[int, int, bool, int, int], int] = {}
        self._rounds = 0
        self.latency_s: list[float] = []
        self.bytes_per_s: list[float] = []
        self.shares: list[Shares] = []

    @property
    def links(self) -> int:
        """Number of links of the cluster."""
        return len(self._cluster.links)

    def of(self, pairs: Pairs, net: ClusterNet) -> Ints:
        """The number of each message's way."""
        self._rounds += self._cluster.fabric.routing == "adaptive"
        ends = list(zip(pairs.src.tolist(), pairs.dst.tolist(), strict=True))
        keys = [(net.ranks[a], net.ranks[b], pairs.striped, pairs.ways, self._rounds) for a, b in ends]
        wires, new = net.hops(pairs), [i for i, key in enumerate(keys) if key not in self._index]
        legs = [_legs(self._cluster, net, *ends[i], striped=pairs.striped) for i in new]
        for i, shares in zip(new, _crossed(self._cluster, legs), strict=True):
            self._index[keys[i]] = len(self.shares)
            self.latency_s.append(float(wires.latency_s[i]))
            self.bytes_per_s.append(1 / float(wires.s_per_byte[i]))
            self.shares.append(shares)
        return np.array([self._index[key] for key in keys], np.int64)

    def wait(self, seconds: float) -> int:
        """The number of a way that takes so long and crosses nothing."""
        self.latency_s.append(seconds)
        self.bytes_per_s.append(1.0)
        self.shares.append({})
        return len(self.shares) - 1


class _Leg(NamedTuple):
    """A part of a message, from GPU to GPU; through NICs `out` and `into`, or over links inside an island."""

    source: int
    target: int
    out: str = ""
    into: str = ""
    inside: Shares | None = None


def _legs(cluster: Cluster, net: ClusterNet, a: int, b: int, *, striped: bool) -> list[_Leg]:
    """Equal parts of a message from rank to rank of a group: one for each NIC, of both islands if it is striped."""
    if net.is_inside(a, b):
        return [_Leg(net.ranks[a], net.ranks[b], inside=net.links_inside(a, b))]
    ends = net.pairs_between(a, b) if striped else [(a, b)]
    between = [(net.ranks[source], net.ranks[target]) for source, target in ends]
    return [_Leg(source, target, *nics) for source, target in between for nics in own_nics(cluster, source, target)]


def _crossed(cluster: Cluster, messages: Sequence[Sequence[_Leg]]) -> Iterator[Shares]:
    """The links that each message crosses, with shares of its bytes, as the fabric routes all flows together."""
    over = iter(cluster.spread([(leg.out, leg.into) for legs in messages for leg in legs if leg.out]))
    for legs in messages:
        found: Shares = {}
        for leg in legs:
            for link, share in _through_nics(cluster, leg, next(over)) if leg.inside is None else leg.inside.items():
                found[link] = found.get(link, 0.0) + share / len(legs)
        yield found


def _through_nics(cluster: Cluster, leg: _Leg, between: Shares) -> Iterator[tuple[int, float]]:
    yield from ((link, 1.0) for link in cluster.nic_out_route(leg.source, leg.out))
    yield from between.items()
    yield from ((link, 1.0) for link in cluster.nic_in_route(leg.target, leg.into))


def link_bytes(chunks: Chunks, size: float, net: ClusterNet, ways: Ways) -> Floats:
    """The bytes that all messages of a collective of so many bytes put on each link of the cluster."""
    found = np.zeros(ways.links)
    for one in chunks.rounds():
        way = ways.of(one.pairs, net).tolist()
        moved = sum(chunks.message_bytes(one, k, size) for k in range(one.times))
        for number, sent in zip(way, np.broadcast_to(moved, len(way)).tolist(), strict=True):
            for link, share in ways.shares[number].items():
                found[link] += sent * share
    return found
