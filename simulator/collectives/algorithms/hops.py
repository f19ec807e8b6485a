"""What messages take on a cluster: the hops of a group's ranks, with the numbers of its profile.

A hop has a latency and a rate. Its rate is what the links of a rank sustain (line rate times the profile's share of
it); ranks of an island send at the same time, so they share its NICs. Its latency is that of a step in the profile's
fitted curves, and at least that of the wires.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...base.arrays import Ints
from ...base.errors import UserError
from ...profile import PROVENANCE, Profile
from ..collective import Price, Stages
from ..machines import Machine, Machines
from ..networks import Uplinks
from .clock import Hops
from .messages import Algorithm, Group, HopKind, Pairs, Term


@dataclass(frozen=True)
class Hop:
    """One way from rank to rank."""

    latency_s: float
    bytes_per_s: float

    def seconds(self, size: float) -> float:
        """Seconds of a message of so many bytes."""
        return self.latency_s + size / self.bytes_per_s


_PIECES = tuple(1 << k for k in range(15))
"""Numbers of pieces of which the fastest is taken."""

_UNKNOWN = 0.3
"""Spread of a number that no profile has: as that of a latency read off another op's curve."""


class Formula(NamedTuple):
    """A closed form on a cluster: how data is cut, and seconds with the call; `latency_s`: if messages were empty."""

    group: Group
    terms: list[Term]
    seconds: float
    latency_s: float


class ClusterNet:
    """The hops of ranks on islands of equal size, as `clock.Net`; each rank has a port inside and one to the network.

    Raises:
        UserError: islands of unequal size, or no way between ranks.
    """

    def __init__(self, machines: Machines, ranks: Sequence[int], op: str, stages: Stages | None = None):
        self._machines, self._op, self._stages = machines, op, stages or {}
        islands: dict[int, list[int]] = {}
        for rank in ranks:
            islands.setdefault(machines.island(rank), []).append(rank)
        sizes = {len(island) for island in islands.values()}
        if len(sizes) > 1:
            raise UserError(f"algorithms need islands of equal size (given: {' and '.join(map(str, sorted(sizes)))})")
        self.ranks = tuple(rank for island in islands.values() for rank in island)
        self.islands, self.near = len(islands), sizes.pop()
        self._left = 1.0  # of the NICs' rate

    @property
    def ports(self) -> int:
        """Two for each rank, and one for all switches."""
        return 2 * len(self.ranks) + 1

    @property
    def period(self) -> int:
        """The ranks of an island."""
        return self.near

    def crowded(self) -> "ClusterNet":
        """The same hops at the rate that links between switches leave, if all ranks of the op send at once."""
        other = copy(self)
        other.__dict__.pop("kinds", None)
        stages = self._stages or dict.fromkeys(self.ranks, self.ranks)
        other._left = Uplinks(self._machines.cluster, stages).share_left(self._op, self.ranks, self.near)
        return other

    def group(self, root: int = 0, pieces: int = 1) -> Group:
        """The ranks, island by island."""
        cluster = self._machines.cluster
        nvls = all(cluster.nodes[cluster.node_of(rank)].nvls for rank in self._machines.one_of_each(self.ranks))
        return Group(self.islands, self.near, root, pieces, nvls, cluster.fabric.sharp)

    def cut(self, algorithm: Algorithm, size: float, root: int = 0, pieces: int | None = None) -> Group:
        """The ranks, with the number of pieces into which a pipelined algorithm cuts data: by default the fastest."""
        group = self.group(root)
        if not algorithm.pipelined:
            return group
        counts = _PIECES if pieces is None else (pieces,)
        cuts = [replace(group, pieces=count) for count in counts if count <= max(size, 1)]
        return min(cuts, key=lambda cut: self.seconds(algorithm.terms(cut, size)))

    @property
    def launch_s(self) -> float:
        """From the call to the first message."""
        network = [f"{self._op}.network", "all_reduce.network"] if self.islands > 1 else []
        return max(_coefficient(one.profile, "a_s", (*network, self._op, "all_reduce")) for one in self._nodes)

    def formula(self, algorithm: Algorithm, size: float, root: int = 0, pieces: int | None = None) -> Formula:
        """What an algorithm takes by its closed form."""
        group = self.cut(algorithm, size, root, pieces)
        terms = algorithm.terms(group, size)
        empty_s = self.seconds([term._replace(size=0.0) for term in terms])
        return Formula(group, terms, self.launch_s + self.seconds(terms), self.launch_s + empty_s)

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
        rate = next((known[name].spread for name in links if name in known), _UNKNOWN)
        steps = known["broadcast.latency_s"].spread if "broadcast.latency_s" in known else _UNKNOWN
        return float(np.hypot(latency_share * steps, (1 - latency_share) * rate))

    @cached_property
    def kinds(self) -> dict[HopKind, Hop]:
        """Each kind of hop that the group has, at its slowest rank."""
        found: dict[HopKind, Hop] = {"inside": self._inside} if self.near > 1 else {}
        if self.islands > 1:
            rail = replace(self._rail, bytes_per_s=self._rail.bytes_per_s * self._left)
            found |= {"rail": rail, "striped": Hop(rail.latency_s, rail.bytes_per_s * self.near)}
        return found

    @property
    def _inside(self) -> Hop:
        kinds = (self._op, "all_reduce", "all_gather")
        latency_s = max(_coefficient(one.profile, "h_s", kinds) for one in self._nodes)
        return Hop(max(latency_s, self._wires_s(inside=True)), 1 / self._slowest_s(inside=1.0, beyond=0.0))

    @property
    def _rail(self) -> Hop:
        steps = (_coefficient(one.profile, "h_s", ("all_reduce.network",)) + one.networks.network.hop_s
                 for one in self._nodes)  # fmt: skip
        return Hop(max(*steps, self._wires_s(inside=False)), 1 / self._slowest_s(0.0, 1.0))

    @property
    def _nodes(self) -> list[Machine]:
        """Each kind of node of its ranks; the slowest one sets a latency."""
        return [self._machines.machine_of(rank) for rank in self._machines.one_of_each(self.ranks)]

    def _slowest_s(self, inside: float, beyond: float) -> float:
        """Seconds per byte of the slowest rank, while all ranks send."""
        found = 0.0
        for rank in self._machines.one_of_each(self.ranks):
            stage = self._stages.get(rank, self.ranks)
            wires = self._machines.crossings.collective(self.ranks, rank, stage, self.islands)
            found = max(found, wires.least_s(inside, beyond, self._machines.capacity))
        return found

    def _wires_s(self, *, inside: bool) -> float:
        """The latency of the wires to the next rank of the island, or to the same place of the next island."""
        cluster, near = self._machines.cluster, self.near
        latencies, found = cluster.links.columns["latency_s"], 0.0
        for rank in self._machines.one_of_each(self.ranks):
            at = self.ranks.index(rank)
            other = at - at % near + (at + 1) % near if inside else (at + near) % len(self.ranks)
            route = cluster.route(cluster.gpu(rank), cluster.gpu(self.ranks[other]))
            found = max(found, float(sum(latencies[link] for link in route)))
        return found

    def hops(self, pairs: Pairs) -> Hops:
        """As `clock.Net`."""
        ranks = len(self.ranks)
        at_switch = np.maximum(pairs.src, pairs.dst) >= ranks
        inside = np.where(at_switch, self.islands == 1, pairs.src // self.near == pairs.dst // self.near)
        beyond = self.kinds.get("striped" if pairs.striped else "rail")
        near = self.kinds.get("inside") or beyond
        far = beyond or near
        assert near is not None, "a message needs two ranks"
        assert far is not None
        return Hops(
            np.where(inside, near.latency_s, far.latency_s),
            np.where(inside, 1 / near.bytes_per_s, 1 / far.bytes_per_s),
            self._ports(pairs.src, inside),
            self._ports(pairs.dst, inside),
        )

    def _ports(self, ranks: Ints, inside: np.ndarray) -> Ints:
        return np.minimum(2 * ranks + ~inside, self.ports - 1)

    def seconds(self, terms: Sequence[Term]) -> float:
        """As `clock.Net`."""
        total_s = last_s = 0.0
        for term in terms:
            own_s = self._term_s(term)
            total_s += max(own_s - last_s, 0.0) if term.beside else own_s
            last_s = own_s
        return total_s

    def _term_s(self, term: Term) -> float:
        hops = [self.kinds[hop] for hop in term.hops if hop in self.kinds]
        return term.steps * max((hop.seconds(term.size) for hop in hops), default=0.0)


def _coefficient(profile: Profile, name: str, kinds: Sequence[str]) -> float:
    """A coefficient in seconds of the first of these classes that has a fitted one; 0 if none has."""
    found = (profile.coefficient_s(kind, name) for kind in kinds)
    return next((value for value in found if value is not None), 0.0)
