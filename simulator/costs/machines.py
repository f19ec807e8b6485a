"""The machines of a cluster: what is known of each kind of node, and which ranks are on which."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..hardware import Cluster, Limits, limits
from ..profile import Estimate, Profile
from ..program import Place
from .kernels import Kernels
from .networks import Networks


@dataclass(frozen=True, eq=False)
class Machine:
    """One kind of node: what is known of its GPUs, and what they, their links and NICs may do."""

    profile: Profile
    limits: Limits
    gpus: int
    known: dict[tuple[object, ...], Estimate] = field(default_factory=dict)

    @cached_property
    def kernels(self) -> Kernels:
        """Its kernels."""
        return Kernels(self.profile, self.limits)

    @cached_property
    def networks(self) -> Networks:
        """The network between nodes as it sees it."""
        return Networks(self.profile, self.limits)

    def inside(self, kind: str, features: Mapping[str, float]) -> Estimate:
        """Of an exchange inside an island; equal ones of other groups take equally long."""
        return self._once("inside", kind, features, lambda: self.profile.estimate(kind, features, limits=self.limits))

    def between(self, kind: str, features: Mapping[str, float]) -> Estimate:
        """Of one between islands."""
        return self._once("between", kind, features, lambda: self.networks.estimate(kind, features))

    def _once(self, where: str, kind: str, features: Mapping[str, float], find: Callable[[], Estimate]) -> Estimate:
        key = (where, kind, *features.items())
        if key not in self.known:
            self.known[key] = find()
        return self.known[key]


class Machines:
    """Those of a cluster, by rank."""

    def __init__(self, cluster: Cluster, profile: Profile):
        self.cluster, self.profile = cluster, profile
        self._known: dict[int, Machine] = {}  # by identity of the node
        self._members: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._islands: dict[int, int] = {}

    def of(self, rank: int) -> Machine:
        """That of a rank."""
        node = self.cluster.node_of(rank)
        key = id(self.cluster.nodes[node])
        if key not in self._known:
            profile = self.profile.on(self.cluster.device(rank).name)
            self._known[key] = Machine(profile, limits(self.cluster, rank), self.cluster.gpus_per_node[node])
        return self._known[key]

    def one_of_each(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """The first rank on each kind of node."""
        if ranks not in self._members:
            kinds = self.cluster.nodes if len(set(map(id, self.cluster.nodes))) > 1 else ()
            first = {id(kinds[self.cluster.node_of(rank)]): rank for rank in reversed(ranks)} if kinds else {}
            self._members[ranks] = tuple(sorted(first.values())) or ranks[:1]
        return self._members[ranks]

    def kinds_of(self, places: Sequence[Place]) -> NDArray[np.int64]:
        """A number for the kinds of node that each place lies on: equal ops take equally long on equal kinds."""
        kinds = dict[tuple[int, ...], int]()
        nodes = self.cluster.nodes
        found = [
            kinds.setdefault(tuple(id(nodes[self.cluster.node_of(rank)]) for rank in self.one_of_each(place.ranks)),
                             len(kinds))
            for place in places
        ]  # fmt: skip
        return np.array(found, np.int64)

    def island(self, rank: int) -> int:
        """A number for the ranks that it reaches without a NIC."""
        if rank not in self._islands:
            self._islands[rank] = self.cluster.island(rank)
        return self._islands[rank]

    def islands(self, group: Sequence[int]) -> int:
        """On how many islands a group lies."""
        return len({self.island(rank) for rank in group})
