"""Where the ranks of exchanges are: what follows from a cluster and its stages alone, whatever a profile says.

Prices of one Program with many profiles share a Layout, so that each fact about a group is found once.
"""

from dataclasses import dataclass
from functools import cached_property

from ..hardware import Cluster
from .collective import Stages
from .networks import Uplinks
from .wires import Crossings, Wires


@dataclass(frozen=True)
class Reach:
    """The place of `rank` in its group: the number of islands, and `nearby`, the ranks of the group on its island."""

    rank: int
    islands: int
    nearby: int


class Layout:
    """The groups of a cluster with these stages: positions of ranks, links, what uplinks leave."""

    def __init__(self, cluster: Cluster, stages: Stages):
        self.cluster, self.stages = cluster, stages
        self._uplinks = Uplinks(cluster, stages)
        self._reaches: dict[tuple[tuple[int, ...], int], Reach] = {}
        self._left: dict[tuple[str, tuple[int, ...]], float] = {}
        self._site_latency_s: dict[tuple[str, tuple[int, ...]], float] = {}
        self._wires: dict[tuple[str, tuple[int, ...], int], Wires] = {}

    @cached_property
    def crossings(self) -> Crossings:
        """The links that exchanges of ranks cross."""
        return Crossings(self.cluster)

    def share_left(self, kind: str, group: tuple[int, ...], reach: Reach) -> float:
        """The share of a NIC's rate that uplinks of leaf switches leave."""
        key = (kind, group)
        if key not in self._left:
            self._left[key] = self._uplinks.share_left(kind, group, reach.nearby)
        return self._left[key]

    def site_latency_s(self, kind: str, group: tuple[int, ...]) -> float:
        """Seconds that links between sites add at least."""
        key = (kind, group)
        if key not in self._site_latency_s:
            self._site_latency_s[key] = self._uplinks.site_latency_s(kind, group)
        return self._site_latency_s[key]

    def reach(self, group: tuple[int, ...], rank: int | None = None) -> Reach:
        """The position of a rank in its group (default: the group's first rank)."""
        key = group, group[0] if rank is None else rank
        if key not in self._reaches:
            self._reaches[key] = self._reach_of(*key)
        return self._reaches[key]

    def _reach_of(self, group: tuple[int, ...], rank: int) -> Reach:
        islands, here = [self.cluster.island(one) for one in group], self.cluster.island(rank)
        return Reach(rank, len(set(islands)), islands.count(here))

    def wires(self, kind: str, group: tuple[int, ...], reach: Reach) -> Wires:
        """The links that one rank of a collective crosses; for a send, those of both ranks.

        The ranks of its stage cross them at the same time; where it has none, those of its group.
        """
        key = (kind, group, reach.rank)
        if key not in self._wires:
            if kind == "send_recv":
                self._wires[key] = self.crossings.message(group[0], group[-1], self.stages)
            else:
                stage = self.stages.get(reach.rank, group)
                self._wires[key] = self.crossings.collective(kind, group, reach.rank, stage, reach.islands)
        return self._wires[key]

    def port_bytes_per_s(self, kind: str, group: tuple[int, ...], reach: Reach) -> float:
        """The line rate at which a rank sends to those of its group on its island; for a send, that of its route."""
        if kind == "send_recv":
            return 1 / self.wires(kind, group, reach).least_s(1.0, 0.0, self.cluster.capacity)
        here = self.cluster.island(reach.rank)
        near = tuple(rank for rank in group if self.cluster.island(rank) == here)
        return self.crossings.port_bytes_per_s(near, reach.rank)
