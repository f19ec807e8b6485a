"""The machines of a cluster: the numbers of each kind of node, the nodes of ranks, the sustained rates of links."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Floats
from ..hardware import Cluster, Limits, limits
from ..profile import Estimate, Profile
from ..program import Place
from .collective import Price
from .networks import Networks, networks_of
from .wires import Crossings, Sent, Wires


@dataclass(frozen=True, eq=False)
class Machine:
    """One kind of node: the profile of its GPUs, the data-sheet limits of GPUs, links and NICs, and the GPU count."""

    profile: Profile
    limits: Limits
    gpus: int
    known: dict[tuple[object, ...], Estimate] = field(default_factory=dict)

    @cached_property
    def networks(self) -> Networks:
        """Corrections of this node's profile for the cluster's network."""
        return Networks(self.profile, self.limits)

    def price_inside(self, kind: str, features: Mapping[str, float]) -> Estimate:
        """The estimate of an exchange inside an island; cached, because it is equal for all groups."""
        key = ("inside", kind, *features.items())
        return self.once(key, lambda: self.profile.estimate(kind, features, limits=self.limits))

    def price_between(self, kind: str, features: Mapping[str, float]) -> Estimate:
        """The estimate of an exchange between islands; cached."""
        return self.once(("between", kind, *features.items()), lambda: self.networks.estimate(kind, features))

    def once(self, key: tuple[object, ...], find: Callable[[], Estimate]) -> Estimate:
        """The cached estimate of this key; `find` computes a missing one."""
        if key not in self.known:
            self.known[key] = find()
        return self.known[key]


class Machines:
    """The machines of a cluster, by rank."""

    def __init__(self, cluster: Cluster, profile: Profile):
        self.cluster, self.profile = cluster, profile
        self._known: dict[int, Machine] = {}  # by id of the node object
        self._members: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._islands: dict[int, int] = {}

    @cached_property
    def crossings(self) -> Crossings:
        """The links that exchanges of ranks cross."""
        return Crossings(self.cluster)

    @cached_property
    def networks(self) -> Networks:
        """Corrections from the network that the profile was measured on to the cluster's network."""
        return networks_of(self.cluster, self.profile)

    @cached_property
    def capacity(self) -> Floats:
        """The sustained rate of every link in bytes/s."""
        return effective_capacity(self.cluster, self.profile)

    @cached_property
    def one_sided(self) -> Floats:
        """The rate of one-sided reads and writes on every link in bytes/s: fractions of their own on NICs and NVLink.

        Elsewhere it is `capacity`, on NVLink too where no profile has measured a GPU's copy to another.
        """
        nics = _of_nics(self.cluster, self.networks, self.profile.value("rdma.nic_fraction"))
        others, peer = self.capacity, self.profile.parameters.get("copy.p2p_fraction")
        if peer is not None:
            nvlink, others = self.cluster.links_of_kind("nvlink"), others.copy()
            others[nvlink] = peer.value * self.cluster.capacity[nvlink]
        return np.where(nics > 0, nics * self.cluster.capacity, others)

    @cached_property
    def link_names(self) -> tuple[str, ...]:
        """The names of all links."""
        return tuple(self.cluster.links.columns["name"].tolist())

    def machine_of(self, rank: int) -> Machine:
        """The machine of a rank."""
        node = self.cluster.node_of(rank)
        key = id(self.cluster.nodes[node])
        if key not in self._known:
            profile = self.profile.device_profile(self.cluster.device(rank).name)
            self._known[key] = Machine(profile, limits(self.cluster, rank), self.cluster.gpus_per_node[node])
        return self._known[key]

    def one_of_each(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """The first of these ranks on each kind of node."""
        if ranks not in self._members:
            kinds = self.cluster.nodes if self.cluster.is_mixed else ()
            first = {id(kinds[self.cluster.node_of(rank)]): rank for rank in reversed(ranks)} if kinds else {}
            self._members[ranks] = tuple(sorted(first.values())) or ranks[:1]
        return self._members[ranks]

    def kinds_of(self, places: Sequence[Place]) -> NDArray[np.int64]:
        """A number for each place; places on the same kinds of nodes share it: equal ops take equal time there."""
        kinds = dict[tuple[int, ...], int]()
        nodes = self.cluster.nodes
        found = [
            kinds.setdefault(tuple(id(nodes[self.cluster.node_of(rank)]) for rank in self.one_of_each(place.ranks)),
                             len(kinds))
            for place in places
        ]  # fmt: skip
        return np.array(found, np.int64)

    def island(self, rank: int) -> int:
        """The number of a rank's island: the ranks that it reaches without a NIC."""
        if rank not in self._islands:
            self._islands[rank] = self.cluster.island(rank)
        return self._islands[rank]

    def near(self, group: Sequence[int], rank: int) -> tuple[int, ...]:
        """The ranks of a group on the island of one of them."""
        return tuple(other for other in group if self.island(other) == self.island(rank))

    @cached_property
    def nic_lines(self) -> Floats:
        """The line rate of every NIC in bytes/s; all other links count as endless."""
        nics = self.cluster.links_of_kind("nic")
        lines = np.full(len(self.cluster.links), np.inf)
        lines[nics] = self.cluster.capacity[nics]
        return lines

    @cached_property
    def lanes(self) -> Floats:
        """What lanes of PCIe and other links of a host sustain, in bytes/s; of NVLink and NICs the line rate."""
        measured = np.concatenate([self.cluster.links_of_kind(kind) for kind in ("nvlink", "nic")])
        found = self.capacity.copy()
        found[measured] = self.cluster.capacity[measured]
        return found

    def on_links(self, alone: Price, wires: Wires, sent: Sent, left: float = 1.0) -> Price:
        """Add the rates on links to a price, and raise its time to the least time that the links allow.

        Curves were measured on NVLink and NICs, so what these sustain is in the price; what lanes of PCIe do is not.
        Links between switches leave the share `left` of what NICs could send.
        """
        own_s = wires.least_s(sent.port_least, sent.nics, self.cluster.capacity)
        least = max(own_s, wires.least_s(0.0, sent.nics, self.nic_lines) / left)
        work = max(alone.work_s, least, wires.least_s(sent.port_least, sent.nics, self.lanes))
        # Cap rates at the capacity: with sums computed in the switch, the curve is faster than a ring's bytes allow.
        moved = wires.bytes(sent.port, sent.nics).items()
        demand = {link: min(moved_bytes / work, float(self.capacity[link])) for link, moved_bytes in moved}
        return replace(alone, seconds=work + alone.latency_s, demand=demand, least_s=least)

    def islands(self, group: Sequence[int]) -> int:
        """The number of islands on which a group lies."""
        return len({self.island(rank) for rank in group})


def effective_capacity(cluster: Cluster, profile: Profile) -> Floats:
    """The sustained rate of each link in bytes/s: line rate times the fraction in its node's profile (default 1)."""
    fraction = _link_fractions(cluster, profile, 0)
    for device, other in profile.others.items():
        nodes = [node.device.name == device for node in cluster.nodes]
        there = np.array([*nodes, False])[cluster.node_of_link]  # the network's links have node -1
        first = cluster.gpus_of(nodes.index(True))[0] if any(nodes) else 0
        fraction = np.where(there, _link_fractions(cluster, other, first), fraction)
    return cluster.capacity * fraction


def _link_fractions(cluster: Cluster, profile: Profile, rank: int) -> Floats:
    """The sustained fraction of every link's line rate, by the profile of a rank's node and the cluster's network."""
    found = profile.starting("link_fraction.").items()
    fractions = {name.removeprefix("link_fraction."): parameter.value for name, parameter in found}
    nics = _of_nics(cluster, networks_of(cluster, profile, rank), fractions.get("nic", 1.0))
    others = np.ones(len(cluster.links))
    for kind, fraction in fractions.items():
        others[cluster.links_of_kind(kind)] = fraction
    return np.where(nics > 0, nics, others)


def _of_nics(cluster: Cluster, networks: Networks, share: float) -> Floats:
    """The share of its line rate that each NIC reaches here, given its `share` where measured; 0 for other links."""
    found, nics = np.zeros(len(cluster.links)), cluster.links_of_kind("nic")
    rates, which = np.unique(cluster.capacity[nics], return_inverse=True)
    found[nics] = np.array([min(share * networks.rate(rate), 1.0) for rate in rates.tolist()])[which]
    return found
