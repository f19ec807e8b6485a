"""When the messages of an algorithm end, on hops of any speed that are not shared.

A message holds its sender's and its receiver's port for its latency and its bytes, as an op of the engine holds lanes.
It starts when both are free and its sender has what it sends. So the times are those of the engine, but whole rounds
are computed at once as arrays.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from ...base.arrays import Floats, Ints
from .messages import MOST_WAYS, Chunks, Group, HopKind, Pairs, Round, Sends, Term

_MOST_KNOWN = 64
"""Patterns of messages whose hops are kept; rings repeat one, others have a new one in each round."""

_ROUNDING = 1e-12
"""Relative."""


@dataclass(frozen=True, eq=False)
class Hops:
    """The hop of each message of a round: what it takes, and the ports that it holds.

    A port is a number; ports of switches, which are never busy, are all the last one.
    """

    latency_s: Floats
    s_per_byte: Floats
    sends: Ints
    receives: Ints


class Net(Protocol):
    """What hops take.

    Ranks that lie a multiple of `period` apart have equal hops to ranks that lie equally far; 0: none have.
    """

    @property
    def ports(self) -> int:
        """The number of ports, one for all switches included."""
        ...

    @property
    def period(self) -> int:
        """The period, in ranks."""
        ...

    def hops(self, pairs: Pairs) -> Hops:
        """The hop of each pair."""
        ...

    def seconds(self, terms: Sequence[Term]) -> float:
        """Seconds of a closed form."""
        ...


def end_s(chunks: Chunks, group: Group, size: float, net: Net, *, fold: bool = True) -> float:
    """When the last message ends, for a collective of so many bytes.

    Where all ranks that lie a period apart do the same, one of them stands for all (`fold`): the time is the same.
    """
    alike = fold and not chunks.switches and chunks.weights is None
    period = net.period if alike else 0
    try:
        return _Clock(chunks, group, size, net, period or group.ranks).run()
    except _Unequal:
        return _Clock(chunks, group, size, net, group.ranks).run()


class _Messages(NamedTuple):
    """The messages of a round between simulated ranks."""

    src: Ints
    dst: Ints
    hops: Hops


class _Unequal(Exception):  # noqa: N818  # not an error: it says that each rank is simulated
    """Ranks a period apart do not do the same."""


class _Clock:
    """One run of an algorithm. Ranks are those of one `period`; switches come after them."""

    def __init__(self, chunks: Chunks, group: Group, size: float, net: Net, period: int):
        self._chunks, self._net, self._ranks, self._period = chunks, net, group.ranks, period
        self._size, self._block = size, size * chunks.buffers / chunks.blocks
        self._known: dict[Pairs, _Messages] = {}
        self._arrived = np.zeros((chunks.streams, period + chunks.switches))
        self._sent, self._received = np.zeros(net.ports), np.zeros(net.ports)

    def run(self) -> float:
        """The end of the last message."""
        last_s = 0.0
        for one in self._chunks.rounds():
            if one.times and len(one.pairs.src):
                last_s = max(last_s, self._repeat(one))
        return last_s

    def _repeat(self, one: Round) -> float:
        """All repetitions of a round; the end of its last message.

        If all messages of the simulated ranks move on by the same time from one repetition to the next, so they do in
        all further ones: whatever they waited for has moved on as they have.
        """
        messages = self._messages(one)
        end = self._take(one, messages, 0)
        for k in range(1, one.times):
            before, end = end, self._take(one, messages, k)
            step = end - before
            if self._period < self._ranks and np.ptp(step) <= _ROUNDING * end[0]:
                end = end + step * (one.times - 1 - k)
                self._note(one, messages, end)
                break
        return float(end.max())

    def _take(self, one: Round, messages: _Messages, repetition: int) -> Floats:
        """When the messages of a round end."""
        src, hops = messages.src, messages.hops
        start = np.maximum(self._arrived[one.reads][src], self._sent[hops.sends])
        np.maximum(start, self._received[hops.receives], out=start)
        end = start + (hops.latency_s + self._bytes(one, repetition) * hops.s_per_byte)
        self._note(one, messages, end)
        return end

    def _bytes(self, one: Round, repetition: int) -> Floats:
        """Of each message; of all, if they are equal."""
        if self._chunks.weights is not None:
            return self._chunks.message_bytes(one, repetition, self._size)
        return np.asarray(one.length * self._block)

    def _note(self, one: Round, messages: _Messages, end: Floats) -> None:
        """Ports are busy, and data is there, until then; a rank may receive through both of its ports."""
        hops, arrived = messages.hops, self._arrived[one.writes]
        self._sent[hops.sends] = self._received[hops.receives] = end
        if self._chunks.switches:
            self._sent[-1] = self._received[-1] = 0.0
        np.maximum.at(arrived, messages.dst, end)

    def _messages(self, one: Round) -> _Messages:
        if one.pairs not in self._known:
            if len(self._known) == _MOST_KNOWN:
                self._known.clear()
            self._known[one.pairs] = self._whole(one.pairs) if self._period == self._ranks else self._folded(one)
        return self._known[one.pairs]

    def _whole(self, pairs: Pairs) -> _Messages:
        return _Messages(pairs.src, pairs.dst, self._net.hops(pairs))

    def _folded(self, one: Round) -> _Messages:
        """The messages that ranks of the first period send, which are those of all others, moved by periods."""
        src, dst = one.pairs.src, one.pairs.dst
        times, place = self._ranks // self._period, src % self._period
        ways = np.unique(place * self._ranks + (dst - src) % self._ranks)
        ends = (len(np.unique(end % self._period)) for end in (src, dst))
        if len(src) != len(ways) * times or {*ends} != {len(ways)} or not isinstance(one.length, int):
            raise _Unequal
        first = replace(one.pairs, src=src[src < self._period], dst=dst[src < self._period])
        hops, ports = self._net.hops(first), (self._net.ports - 1) // times
        own = Hops(hops.latency_s, hops.s_per_byte, hops.sends, hops.receives % ports)
        return _Messages(first.src, first.dst % self._period, own)


@dataclass(frozen=True)
class Ideal:
    """A network where all hops are equal and every rank has one port, with a part for each way."""

    ranks: int
    latency_s: float
    bytes_per_s: float

    @property
    def ports(self) -> int:
        """Parts of one for each rank, and one for all switches."""
        return MOST_WAYS * self.ranks + 1

    @property
    def period(self) -> int:
        """Every rank is like every other."""
        return 1

    def hops(self, pairs: Pairs) -> Hops:
        """As `Net`."""
        many = len(pairs.src)
        ports = (np.minimum(MOST_WAYS * end + pairs.way, self.ports - 1) for end in (pairs.src, pairs.dst))
        return Hops(np.full(many, self.latency_s), np.full(many, pairs.ways / self.bytes_per_s), *ports)

    def seconds(self, terms: Sequence[Term]) -> float:
        """Seconds of a closed form: a rank's one port takes all its terms, so none is beside another."""
        return sum(term.steps * (self.latency_s + term.size / self.bytes_per_s) for term in terms)


@dataclass(frozen=True)
class Hop:
    """One way from rank to rank."""

    latency_s: float
    bytes_per_s: float

    def seconds(self, size: float) -> float:
        """Seconds of a message of so many bytes."""
        return self.latency_s + size / self.bytes_per_s


class IslandNet(ABC):
    """`islands` of `near` ranks each, as `Net`; each rank has a port inside and one to the network."""

    islands: int
    near: int
    in_flight = False
    """Whether a closed form counts latencies as `Term.waits` says: a message under way holds no port."""
    sites: tuple[int, ...] = ()
    """The site of each island; empty if links between sites add no latency."""
    site_latency_s: Floats = np.zeros((1, 1))
    """Seconds that links between sites add to a message from one site to another, shape `[sites, sites]`."""

    @property
    @abstractmethod
    def kinds(self) -> Mapping[HopKind, Hop]:
        """Each kind of hop that the group has."""

    @property
    def ports(self) -> int:
        """Parts of two for each rank, and one for all switches."""
        return 2 * MOST_WAYS * self.islands * self.near + 1

    @property
    def period(self) -> int:
        """The ranks of an island; those of several sites have unequal hops."""
        return 0 if self.sites else self.near

    def share_left(self, sends: Sends = None, hop: HopKind = "rail") -> float:
        """The share of the rate of a hop between islands that links leave to messages at the same time."""
        return 1.0

    def hops(self, pairs: Pairs) -> Hops:
        """As `Net`."""
        ranks = self.islands * self.near
        at_switch = np.maximum(pairs.src, pairs.dst) >= ranks
        inside = np.where(at_switch, self.islands == 1, pairs.src // self.near == pairs.dst // self.near)
        hop: HopKind = "striped" if pairs.striped else "rail"
        beyond = self.kinds.get(hop)
        near = self.kinds.get("inside") or beyond
        far = beyond or near
        assert near is not None, "a message needs two ranks"
        assert far is not None
        return Hops(
            np.where(inside, near.latency_s, far.latency_s + self._site_latencies_s(pairs)),
            np.where(inside, 1 / near.bytes_per_s, 1 / far.bytes_per_s / self.share_left(hop=hop)) * pairs.ways,
            self._ports(pairs.src, inside, pairs.way),
            self._ports(pairs.dst, inside, pairs.way),
        )

    def _ports(self, ranks: Ints, inside: np.ndarray, way: int) -> Ints:
        return np.minimum(MOST_WAYS * (2 * ranks + ~inside) + way, self.ports - 1)

    def _site_latencies_s(self, pairs: Pairs) -> Floats:
        """Seconds that links between sites add to each message; a switch is at the farthest site."""
        if not self.sites:
            return np.zeros(len(pairs.src))
        sites, last = np.array(self.sites), self.islands - 1
        src, dst = (sites[np.minimum(end // self.near, last)] for end in (pairs.src, pairs.dst))
        at_switch = np.maximum(pairs.src, pairs.dst) // self.near > last
        return np.where(at_switch, self._largest_site_latency_s(None), self.site_latency_s[src, dst])

    def _largest_site_latency_s(self, sends: Sends) -> float:
        """Seconds that links between sites add to the slowest of messages at the same time."""
        if not self.sites:
            return 0.0
        if isinstance(sends, Pairs):
            return float(self._site_latencies_s(sends).max(initial=0.0))
        return float(self.site_latency_s[np.ix_(self.sites, self.sites)].max())

    def seconds(self, terms: Sequence[Term]) -> float:
        """As `Net`."""
        total_s = last_s = 0.0
        for term in terms:
            own_s = self._term_s(term)
            total_s += max(own_s - last_s, 0.0) if term.beside else own_s
            last_s = own_s
        return total_s

    def _term_s(self, term: Term) -> float:
        site_s = 0.0 if term.site_steps is None else term.site_steps * self._largest_site_latency_s(term.sends)
        if self.in_flight and term.waits is not None:
            waits_s = self._waits_s(term, term.waits) + (site_s if any(term.waits) else 0.0)
            return waits_s + self._steps_s(term, 0.0)
        return self._steps_s(term, 1.0) + site_s

    def _waits_s(self, term: Term, waits: tuple[float, ...]) -> float:
        hops = zip(term.hops, waits, strict=True)
        return sum(wait * self._latency_s(hop, term, self._site_share) for hop, wait in hops if hop in self.kinds)

    @property
    def _site_share(self) -> float:
        """Hops to another site on the way of a block round all islands, over all of its hops but the last.

        Ranks alone on their islands send no block over the last hop, which may be the one that stays in its site.
        """
        crossings = sum(a != b for a, b in pairwise((*self.sites, *self.sites[:1])))
        most = min(crossings, self.islands - 1) if self.near == 1 else crossings
        return most / max(self.islands - 1, 1)

    def _latency_s(self, hop: HopKind, term: Term, site_share: float = 1.0) -> float:
        """Seconds of a hop's latency, of which so large a share are to another site."""
        to_sites = hop != "inside" and term.site_steps is None
        return self.kinds[hop].latency_s + (site_share * self._largest_site_latency_s(term.sends) if to_sites else 0.0)

    def _steps_s(self, term: Term, held: float) -> float:
        """All steps, which take the bytes, and this share of the latency."""
        shares = zip(term.hops, term.shares or (1.0,) * len(term.hops), strict=True)
        hops = [share * self._hop_s(hop, term, held) for hop, share in shares if hop in self.kinds]
        return term.steps * max(hops, default=0.0)

    def _hop_s(self, hop: HopKind, term: Term, held: float) -> float:
        size = term.size if hop == "inside" else term.size / self.share_left(term.sends, hop)
        return held * self._latency_s(hop, term) + size / self.kinds[hop].bytes_per_s
