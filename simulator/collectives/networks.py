"""Corrections from the network that a profile was measured on to another one: slower messages, lower rates.

A profile's models of exchanges between nodes belong to one kind of network, InfiniBand for all shipped profiles. For
every kind data/networks.toml states the time of a message and the share of the NICs' line rate that collectives reach.
The difference of the times and the ratio of the shares correct a model, for steps and updates alike.

`Uplinks` finds the share of a NIC's rate that oversubscribed leaf switches leave, when all ranks of a stage send at the
same time. They act alike, so all of them that send beyond a leaf share its uplinks. The share of a rank's bytes that
leaves the leaf depends on the exchange: all bytes of a message to another pod; in a ring only those of the last node
under a leaf; in an all-to-all those for peers elsewhere. Traffic between rails first moves to another GPU inside the
node (NCCL's PXN), so a NIC's peers are on its own rail. Traffic of several stages at once is not added. In fabrics with
real switches above the leaves, the routes of a stage's flows decide (`flows`).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, inf, log
from typing import NamedTuple

import numpy as np

from ..base.units import format_seconds
from ..hardware import Cluster, Limits, limits
from ..profile import PROVENANCE, Estimate, Parameter, Profile, load_network
from .flows import ALL_TO_ALLS, share_by_flows, tiles
from .sites import crossings, largest_site_latency_s

MEASURED_ON = "infiniband"
"""The network of profiles that do not name theirs."""

_RINGS = ("all_gather", "reduce_scatter", "broadcast", "reduce")

_EXTRAPOLATED, _ASSUMED = PROVENANCE.index("extrapolated"), PROVENANCE.index("assumed")


@dataclass(frozen=True)
class Network:
    """Numbers of data/networks.toml by name: `here` is the cluster's network, `there` the profile's."""

    here: Mapping[str, float]
    there: Mapping[str, float]
    nic_bytes_per_s: float

    @property
    def hop_s(self) -> float:
        """Extra seconds of a message here; negative if the profile was measured on a slower network."""
        return self._more("network.message_s")

    @property
    def step_s(self) -> float:
        """Extra seconds of a step of a ring here. A step waits for the previous host: at least a message."""
        return _step(self.here) - _step(self.there)

    @property
    def peer_s(self) -> float:
        """Seconds that each peer in another node adds to an all-to-all."""
        return self._more("network.peer_s")

    @property
    def rate(self) -> float:
        """The rate that a NIC reaches here over the rate there; work of the host per byte bounds it."""
        return self.rate_of(self.nic_bytes_per_s)

    def rate_of(self, nic_bytes_per_s: float) -> float:
        """As `rate`, for a NIC of this line rate."""
        per_byte = self.here.get("network.byte_s", 0.0) * nic_bytes_per_s
        fraction = min(self.here["network.nic_fraction"], 1 / per_byte if per_byte else inf)
        return fraction / self.there["network.nic_fraction"]

    def _more(self, name: str) -> float:
        return self.here.get(name, 0.0) - self.there.get(name, 0.0)


class Networks:
    """A profile's models of exchanges between nodes, corrected for the network of its `network.` parameters."""

    def __init__(self, profile: Profile, limits: Limits):
        there = load_network(str(profile.about.get("network", MEASURED_ON))).parameters
        self.profile, self.limits = profile, limits
        self.parameters: Mapping[str, Parameter] = {**there, **profile.starting("network.")}
        self.network = Network(_values(self.parameters), _values(there), limits.nic_bytes_per_s)

    @property
    def differing(self) -> list[str]:
        """The names of numbers that differ between here and where the profile was measured."""
        there = self.network.there
        return [name for name, number in self.parameters.items() if number.value != there.get(name, 0.0)]

    def estimate(self, kind: str, features: Mapping[str, float]) -> Estimate:
        """The corrected estimate of an op between nodes. Its spread includes the spreads of the network's numbers.

        Numbers that were fitted to the ledger of steps are left out of it: their errors are terms of phases instead.

        Raises:
            UserError: the profile has no such class, or a feature is missing or impossible.
        """
        found = self._on(self.network, kind, features)
        off = {name: self._effect(name, kind, features, found) for name in self.differing}
        if not off:
            return found
        most = max(off, key=lambda name: off[name])
        label = _ASSUMED if self.parameters[most].provenance == "assumed" else _EXTRAPOLATED
        spread = np.hypot(found.spread, hypot(*off.values()))
        return replace(found, spread=spread, provenance=np.maximum(found.provenance, label))

    def nic_share(self, share: Parameter) -> Parameter:
        """A share of a NIC's line rate, with the spread and provenance that it has on this network."""
        number = self.parameters[self._bounding]
        if self._bounding not in self.differing:
            return share
        label = "assumed" if "assumed" in (number.provenance, share.provenance) else "extrapolated"
        return replace(share, spread=hypot(share.spread, number.spread), provenance=label)

    @property
    def _bounding(self) -> str:
        """The name of the number that determines the rate of NICs here."""
        line = self.network.here["network.nic_fraction"] / self.network.there["network.nic_fraction"]
        return "network.nic_fraction" if self.network.rate == line else "network.byte_s"

    def note(self, kind: str) -> str | None:
        """The note of a report on a network other than the measured one; None if nothing differs."""
        if not self.differing:
            return None
        message, rate = self.parameters["network.message_s"], self.parameters[self._bounding]
        reach = self.network.rate * self.network.there["network.nic_fraction"]
        return (
            f"network {kind}; the profile was measured on {self.profile.about.get('network', MEASURED_ON)}: "
            f"a message takes {format_seconds(message.value)} ({message.provenance}, ±{message.spread:.0%}), "
            f"NICs reach {reach:.0%} of their line rate ({rate.provenance}, ±{rate.spread:.0%})"
        )

    def _effect(self, name: str, kind: str, features: Mapping[str, float], found: Estimate) -> float:
        """The change of ln(seconds) if a number is one standard deviation higher."""
        number = self.parameters[name]
        if number.provenance == "fitted":
            return 0.0
        here = {**self.network.here, name: number.value * exp(number.spread)}
        other = self._on(replace(self.network, here=here), kind, features)
        return abs(log(float(other.seconds[0] / found.seconds[0])))

    def _on(self, network: Network, kind: str, features: Mapping[str, float]) -> Estimate:
        line = "link_bytes_per_s" if kind == "send_recv.network" else "network_bytes_per_s"
        hop_s = network.step_s if kind in _RINGS else network.hop_s
        asked = {**features, line: features[line] * network.rate, "hop_s": hop_s}
        found = self.profile.estimate(kind, asked, limits=self.limits)
        if kind != "all_to_all" or not network.peer_s:
            return found
        peers = features["gpus"] * (1 - 1 / features["nodes"])
        return replace(found, seconds=found.seconds + network.peer_s * peers)


def _step(numbers: Mapping[str, float]) -> float:
    return max(numbers.get("network.step_s", 0.0), numbers["network.message_s"])


def _values(numbers: Mapping[str, Parameter]) -> dict[str, float]:
    return {name: number.value for name, number in numbers.items()}


def networks_of(cluster: Cluster, profile: Profile, rank: int = 0) -> Networks:
    """The corrections of a profile for a cluster's network, with the limits of a rank's node."""
    return Networks(profile, limits(cluster, rank))


class Uplinks:
    """The uplinks of a cluster's leaf switches; `stage` maps a rank to the ranks that act alike, itself included."""

    def __init__(self, cluster: Cluster, stage: Mapping[int, tuple[int, ...]]):
        self.cluster, self.stage = cluster, stage
        self._nics: dict[int, list[_Uplink]] = {}
        self._leaves: dict[tuple[int, str], str] = {}

    def share_left(self, kind: str, group: Sequence[int], nearby: int) -> float:
        """The share of the NICs' rate that a group keeps; `nearby` is its number of ranks on each island."""
        if self.cluster.network.is_even:
            return 1.0
        if not self.cluster.network.is_ideal:
            return share_by_flows(self.cluster, kind, self._groups(kind, group), nearby)
        beyond = self._message(group) if kind == "send_recv" else self._collective(kind, group, nearby)
        sends: dict[_Uplink, float] = {}
        for rank, share in beyond.items():
            sends |= {nic: max(share, sends.get(nic, 0.0)) for nic in self._nics_of(rank)}
        load: dict[str, float] = defaultdict(float)
        for nic, share in sends.items():
            load[nic.leaf] += share * nic.bytes_per_s
        return min([1.0, *(self.cluster.uplink_bytes_per_s(leaf) / asked for leaf, asked in load.items() if asked)])

    def site_latency_s(self, kind: str, group: Sequence[int]) -> float:
        """Seconds that links between sites add at least, to the slowest of the groups that send at the same time."""
        if not self.cluster.site_latency_s.any():
            return 0.0
        ends = [(group[0], group[-1])] if kind == "send_recv" else [group]
        return crossings(kind) * largest_site_latency_s(self.cluster, [*ends, *self._groups(kind, group)])

    def _nics_of(self, rank: int) -> "list[_Uplink]":
        if rank not in self._nics:
            cluster = self.cluster
            self._nics[rank] = [
                _Uplink(nic, cluster.leaf_of(nic), float(cluster.capacity[cluster.nic_tx(nic)]))
                for nic in cluster.nics_of_gpu(rank)
            ]
        return self._nics[rank]

    def _groups(self, kind: str, group: Sequence[int]) -> list[tuple[int, ...]]:
        """The groups of its stage that send at the same time as this one."""
        stage = self._alike(group[0])
        if kind == "send_recv":
            return list(zip(stage, self._alike(group[-1]), strict=False))
        return tiles(group, stage)

    def _message(self, pair: Sequence[int]) -> dict[int, float]:
        """For each rank of the sender's stage, the share of its message that leaves its leaf: 1 or 0."""
        senders, receivers = self._alike(pair[0]), self._alike(pair[-1])
        pairs = zip(senders, receivers, strict=False)  # a rank of a hand-made Program may have no stage
        return {a: float(self._apart(a, b)) for a, b in pairs}

    def _collective(self, kind: str, group: Sequence[int], nearby: int) -> dict[int, float]:
        """For every rank of the stage the mean share of the group's members under its leaf."""
        own = self._in_all_to_all(group, kind) if kind in ALL_TO_ALLS else self._in_ring(group, nearby)
        under: dict[str, list[float]] = {}
        for rank, share in own.items():
            under.setdefault(self._leaf(rank), []).append(share)
        means = {leaf: sum(shares) / len(shares) for leaf, shares in under.items()}
        return {rank: means.get(self._leaf(rank), 0.0) for rank in self._alike(group[0])}

    def _in_ring(self, group: Sequence[int], nearby: int) -> dict[int, float]:
        """For each rank the share of ring traffic that leaves its leaf; a NIC sends to the next node's same NIC."""
        return {a: float(self._apart(a, group[(i + nearby) % len(group)])) for i, a in enumerate(group)}

    def _in_all_to_all(self, group: Sequence[int], kind: str) -> dict[int, float]:
        """For each rank the share of all-to-all traffic that leaves its leaf; it sends equally to all other islands."""
        nodes = {rank: self.cluster.island(rank) for rank in group}
        found = {}
        for a in group:
            far = [b for b in group if nodes[b] != nodes[a]]
            leaves = [self._leaf(a) != self._leaf(b) if kind == "direct" else self._apart(a, b) for b in far]
            found[a] = sum(leaves) / max(len(far), 1)
        return found

    def _apart(self, a: int, b: int) -> bool:
        """Whether the NIC of b's rail in a's node and b's own NIC are under different leaves."""
        theirs = self._nics_of(b)[0]
        rail = theirs.name.partition(".")[2]
        key = self.cluster.node_of(a), rail
        if key not in self._leaves:
            self._leaves[key] = self.cluster.leaf_of(f"n{key[0]}.{rail}")
        return self._leaves[key] != theirs.leaf

    def _alike(self, rank: int) -> tuple[int, ...]:
        return self.stage.get(rank, (rank,))

    def _leaf(self, rank: int) -> str:
        return self._nics_of(rank)[0].leaf


class _Uplink(NamedTuple):
    """A NIC, the leaf switch in which its cable ends, and its line rate."""

    name: str
    leaf: str
    bytes_per_s: float
