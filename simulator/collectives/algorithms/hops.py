"""What messages take on a cluster: the hops of a group's ranks, with the numbers of its profile.

A hop has a latency and a rate. Its rate is what the links of a rank sustain (line rate times the profile's share of
it); ranks of an island send at the same time, so they share its NICs. Its latency is that of a step in the profile's
fitted curves, and at least that of the wires; a hop from site to site adds that of the links between them.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from math import inf
from statistics import harmonic_mean
from typing import NamedTuple

import numpy as np

from ...base.errors import UserError
from ...hardware import Shares
from ...profile import PROVENANCE, Profile
from ..collective import Price, Stages
from ..flows import share_by_flows, tiles
from ..machines import Machine, Machines
from ..networks import Uplinks
from .clock import Hop, IslandNet
from .messages import Algorithm, Group, HopKind, Pairs, Sends, Term
from .shares import Share, share_of

PIECES = tuple(1 << k for k in range(15))
"""Numbers of pieces of which the fastest is taken."""

_UNKNOWN = 0.3
"""Spread of a number that no profile has: as that of a latency read off another op's curve."""


class Wire(NamedTuple):
    """What a library's messages make of hops: a `share` of their rate, and at most so many bytes/s.

    Seconds are added to each hop inside an island and between them, and to a call. `in_flight`: a message under way
    holds no port.
    """

    share: float = 1.0
    inside_s: float = 0.0
    between_s: float = 0.0
    call_s: float = 0.0
    most_bytes_per_s: float = inf
    in_flight: bool = False

    def on(self, hop: Hop, more_s: float) -> Hop:
        """A hop as these messages find it."""
        return Hop(hop.latency_s + more_s, min(hop.bytes_per_s * self.share, self.most_bytes_per_s))


class Formula(NamedTuple):
    """A closed form on a cluster: how data is cut, and seconds with the call; `latency_s`: if messages were empty."""

    group: Group
    terms: list[Term]
    seconds: float
    latency_s: float


class ClusterNet(IslandNet):
    """The hops of ranks on islands of equal size.

    Raises:
        UserError: islands of unequal size, or no way between ranks.
    """

    def __init__(
        self,
        machines: Machines,
        ranks: Sequence[int],
        op: str,
        stages: Stages | None = None,
        loads: tuple[float, ...] = (),
    ):
        self._machines, self._op, self._stages, self._loads = machines, op, stages or {}, loads
        islands: dict[int, list[int]] = {}
        for rank in ranks:
            islands.setdefault(machines.island(rank), []).append(rank)
        self.ranks = tuple(rank for island in islands.values() for rank in island)
        self.islands, self.near = self._shape([len(island) for island in islands.values()])
        self.sites, self.site_latency_s = self._farthest_sites(), machines.cluster.site_latency_s
        self._crowded = False
        self._lefts: dict[object, float] = {}
        self._share, self._wire = Share(), Wire()

    def _shape(self, sizes: Sequence[int]) -> tuple[int, int]:
        """The number of islands, and the size of each."""
        if len(set(sizes)) > 1:
            given = " and ".join(map(str, sorted(set(sizes))))
            raise UserError(f"algorithms need islands of equal size (given: {given})")
        return len(sizes), sizes[0]

    def is_inside(self, a: int, b: int) -> bool:
        """Whether two ranks are on one island."""
        return a // self.near == b // self.near

    def links_inside(self, a: int, b: int) -> Shares:
        """The links that a message between two ranks of an island crosses."""
        return self._machines.crossings.inside(self._island_at(a), self.ranks[a], self.ranks[b])

    def _island_at(self, at: int) -> tuple[int, ...]:
        """The ranks of the island on which one of them is."""
        first = at - at % self.near
        return self.ranks[first : first + self.near]

    def pairs_between(self, a: int, b: int) -> list[tuple[int, int]]:
        """The pairs of ranks whose NICs carry a striped message between the islands of two ranks."""
        first = a - a % self.near, b - b % self.near
        return [(first[0] + k, first[1] + k) for k in range(self.near)]

    def _farthest_sites(self) -> tuple[int, ...]:
        """The sites of its islands, or of the group of its stage whose ring leaves sites most often, as it is slowest.

        Empty if no link between sites adds latency.
        """
        cluster = self._machines.cluster
        if not cluster.site_latency_s.any():
            return ()
        groups = tiles(self.ranks, self._stages.get(self.ranks[0], self.ranks))
        sites = [tuple(map(cluster.site_of, group[:: self.near])) for group in groups]
        most = max(sites, key=lambda own: sum(a != b for a, b in pairwise((*own, own[0]))))
        return most if len(set(most)) > 1 else ()

    def crowded(self) -> "ClusterNet":
        """The same hops at the rate that links between switches leave, if all ranks of the op send at once."""
        other = self._copy()
        other._crowded = not self._machines.cluster.network.is_even
        return other

    def share_left(self, sends: Sends = None, hop: HopKind = "rail") -> float:
        """The share of a hop's rate that links between switches leave; a stage's groups send at the same time.

        They leave a share of what NICs send; what a slot, a library or an algorithm sends less than that stays whole.
        """
        if not self._crowded or self.islands == 1:
            return 1.0
        nics = self.near if hop == "striped" else 1
        most = self._wire.on(Hop(0.0, nics * self._left_bytes_per_s(sends)), 0.0)
        return min(1.0, most.bytes_per_s / self.kinds[hop].bytes_per_s)

    def _left_bytes_per_s(self, sends: Sends) -> float:
        """What links between switches leave the NICs of a rank."""
        key = (*map(bytes, (sends.src, sends.dst)), sends.striped, sends.in_turn) if isinstance(sends, Pairs) else sends
        if key not in self._lefts:
            line_s = self._slowest_s(0.0, 1.0, kind="nic") * self._sustained
            self._lefts[key] = self._left_of_line_rate(sends) / line_s
        return self._lefts[key]

    @property
    def _sustained(self) -> float:
        """The share of their line rate that NICs sustain: links between switches carry all of theirs."""
        cluster = self._machines.cluster
        link = cluster.nic_tx(cluster.nic_of(self.ranks[0]))
        return float(self._machines.capacity[link] / cluster.capacity[link])

    def _left_of_line_rate(self, sends: Sends) -> float:
        cluster, stages = self._machines.cluster, self._stages or dict.fromkeys(self.ranks, self.ranks)
        if not isinstance(sends, Pairs):
            return Uplinks(cluster, stages).share_left(sends or self._op, self.ranks, self.near)
        groups = tiles(self.ranks, stages.get(self.ranks[0], self.ranks))
        ends = list(self._ends(sends))
        at_once = [[(group[a], group[b]) for group in groups for a, b in pairs]
                   for pairs in ([[pair] for pair in ends] if sends.in_turn else [ends])]  # fmt: skip
        return harmonic_mean([share_by_flows(cluster, "messages", pairs, self.near) for pairs in at_once])

    def _ends(self, pairs: Pairs) -> Iterator[tuple[int, int]]:
        """The ranks whose NICs carry messages between islands: of a striped one, all of both islands."""
        for a, b in zip(pairs.src.tolist(), pairs.dst.tolist(), strict=True):
            if not self.is_inside(a, b):
                yield from self.pairs_between(a, b) if pairs.striped else ((a, b),)

    def run_by(self, algorithm: Algorithm) -> "ClusterNet":
        """The same hops at the rate that an algorithm reaches between islands, at its slowest rank."""
        other, machines = self._copy(), self._machines
        other._share = min(
            share_of(algorithm, machines.cluster.device(rank).name, machines.machine_of(rank).profile)
            for rank in self._unlike
        )
        return other

    def under(self, wire: Wire) -> "ClusterNet":
        """The same hops as a library's messages find them."""
        other = self._copy()
        other._wire, other.in_flight = wire, wire.in_flight
        return other

    @property
    def _unlike(self) -> tuple[int, ...]:
        """A rank of each kind, the slowest of which sets a number."""
        return self._machines.one_of_each(self.ranks)

    @property
    def devices(self) -> set[str]:
        """The names of the GPUs."""
        return {self._machines.cluster.device(rank).name for rank in self._unlike}

    @property
    def has_nvlink(self) -> bool:
        """Whether ranks of an island reach each other over NVLink."""
        cluster, starts = self._machines.cluster, self._unlike
        return all(
            cluster.has_nvlink(rank, other) for rank in starts for other in self._machines.near(self.ranks, rank)
        )

    def _copy(self) -> "ClusterNet":
        """The same hops, whose kinds are not known yet."""
        other = copy(self)
        other.__dict__.pop("kinds", None)
        return other

    def group(self, root: int = 0, pieces: int = 1) -> Group:
        """The ranks, island by island."""
        cluster = self._machines.cluster
        nvls = all(cluster.nodes[cluster.node_of(rank)].nvls for rank in self._unlike)
        return Group(self.islands, self.near, root, pieces, nvls, cluster.fabric.sharp, self._loads, self.sites)

    def cut(self, algorithm: Algorithm, size: float, root: int = 0, pieces: int | None = None) -> Group:
        """The ranks, with the number of pieces into which a pipelined algorithm cuts data: by default the fastest.

        There are no more pieces than bytes.
        """
        group = self.group(root)
        if not algorithm.pipelined:
            return group
        net, most = self.run_by(algorithm), max(int(size), 1)
        counts = [count for count in PIECES if count <= most] if pieces is None else [min(pieces, most)]
        cuts = [replace(group, pieces=count) for count in counts]
        return min(cuts, key=lambda cut: net.seconds(algorithm.terms(cut, size)))

    @property
    def launch_s(self) -> float:
        """From the call to the first message."""
        network = [f"{self._op}.network", "all_reduce.network"] if self.islands > 1 else []
        own_s = max(_coefficient(one.profile, "a_s", (*network, self._op, "all_reduce")) for one in self._nodes)
        return own_s + self._wire.call_s

    def formula(self, algorithm: Algorithm, size: float, root: int = 0, pieces: int | None = None) -> Formula:
        """What an algorithm takes by its closed form."""
        group, net = self.cut(algorithm, size, root, pieces), self.run_by(algorithm)
        terms = algorithm.terms(group, size)
        empty_s = net.seconds([term._replace(size=0.0) for term in terms])
        return Formula(group, terms, self.launch_s + net.seconds(terms), self.launch_s + empty_s)

    def basis(self, seconds: float, latency_s: float, curve: Price | None) -> tuple[float, int]:
        """(relative standard deviation, provenance) of a time of which so much is latency.

        Its numbers were read off the op's fitted curve, so it is no surer than the curve is at this size and scale.
        """
        spread = self._spread(min(latency_s / seconds, 1.0) if seconds else 0.0)
        if curve is None:
            return spread, PROVENANCE.index("assumed")
        return max(spread, curve.spread), max(PROVENANCE.index("fitted"), curve.provenance)

    def _spread(self, latency_share: float) -> float:
        links = ("link_fraction.nic",) if self.islands > 1 else ("link_fraction.nvlink", "link_fraction.pcie")
        known = self._machines.profile.parameters
        rate = np.hypot(next((known[name].spread for name in links if name in known), _UNKNOWN), self._share.spread)
        step = known["broadcast.latency_s"].spread if "broadcast.latency_s" in known else _UNKNOWN
        steps = np.hypot(step, self._share.steps_spread)
        return float(np.hypot(latency_share * steps, (1 - latency_share) * rate))

    @cached_property
    def kinds(self) -> dict[HopKind, Hop]:
        """Each kind of hop that the group has, at its slowest rank."""
        wire, found = self._wire, dict[HopKind, Hop]()
        if self.near > 1:
            found["inside"] = wire.on(self._as_run(self._inside), wire.inside_s)
        if self.islands > 1:
            rail = self._as_run(self._rail, self._share.value)
            striped = Hop(rail.latency_s, rail.bytes_per_s * self.near)
            found |= {"rail": wire.on(rail, wire.between_s), "striped": wire.on(striped, wire.between_s)}
        return found

    def _as_run(self, hop: Hop, share: float = 1.0) -> Hop:
        """A hop as its algorithm finds it."""
        return Hop(hop.latency_s * self._share.steps, hop.bytes_per_s * share)

    @property
    def _inside(self) -> Hop:
        kinds = (self._op, "all_reduce", "all_gather")
        latency_s = max(_coefficient(one.profile, "h_s", kinds) for one in self._nodes)
        return Hop(max(latency_s, self._wires_s(inside=True)), 1 / self._slowest_s(inside=1.0, beyond=0.0))

    @property
    def _rail(self) -> Hop:
        steps = (_coefficient(one.profile, "h_s", ("all_reduce.network",)) + one.networks.network("all_reduce").hop_s
                 for one in self._nodes)  # fmt: skip
        return Hop(max(*steps, self._wires_s(inside=False)), 1 / self._slowest_s(0.0, 1.0))

    @property
    def _nodes(self) -> list[Machine]:
        """Each kind of node of its ranks; the slowest one sets a latency."""
        return [self._machines.machine_of(rank) for rank in self._unlike]

    def _slowest_s(self, inside: float, beyond: float, kind: str = "") -> float:
        """Seconds per byte of the slowest rank, while all ranks send; on links of one kind, if it is named."""
        found, capacity = 0.0, self._machines.capacity
        if kind:
            links = self._machines.cluster.links_of_kind(kind)
            capacity = np.full(len(capacity), inf)
            capacity[links] = self._machines.capacity[links]
        for rank in self._unlike:
            stage = self._stages.get(rank, self.ranks)
            wires = self._machines.crossings.collective(self._op, self.ranks, rank, stage, self.islands)
            found = max(found, wires.least_s(inside, beyond, capacity))
        return found

    def _wires_s(self, *, inside: bool) -> float:
        """The latency of the wires to the next rank of the island, or to the same place of the next island.

        Links between sites are left out: `site_latency_s` has theirs.
        """
        cluster, latencies, found = self._machines.cluster, self._machines.cluster.links.columns["latency_s"], 0.0
        for rank in self._unlike:
            other = self._neighbour(self.ranks.index(rank), inside)
            route = cluster.route(cluster.gpu(rank), cluster.gpu(self.ranks[other]))
            found = max(found, float(sum(latencies[link] for link in route if link not in cluster.site_links)))
        return found

    def _neighbour(self, at: int, inside: bool) -> int:
        """The next rank of the island, or the one at the same place of the next island."""
        near = self.near
        return at - at % near + (at + 1) % near if inside else (at + near) % len(self.ranks)


def _coefficient(profile: Profile, name: str, kinds: Sequence[str]) -> float:
    """A coefficient in seconds of the first of these classes that has a fitted one; 0 if none has."""
    found = (profile.coefficient_s(kind, name) for kind in kinds)
    return next((value for value in found if value is not None), 0.0)
