"""Corrections from the network that a profile was measured on to another one: slower messages, lower rates.

A model of exchanges between nodes belongs to one kind of network, InfiniBand for all shipped profiles. For every kind
data/networks.toml states the time of a message and the share of the NICs' line rate that collectives reach.
The difference of the times and the ratio of the shares correct a model, for steps and updates alike.

`Uplinks` finds the share of a NIC's rate that links between switches leave, when all ranks of a stage send at the same
time (`flows`): in a collective each group to the next island or to all others, in ring attention each rank to the next
one of its group, to another stage each rank to its partner. Traffic of several stages at once is not added.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, hypot, inf, log

import numpy as np

from ..base.units import format_seconds
from ..hardware import Cluster, Limits, limits
from ..profile import MEASURED_ON, PROVENANCE, Estimate, Parameter, Profile, load_network
from .flows import share_by_flows, tiles
from .sites import crossings, largest_site_latency_s

_RINGS = ("all_gather", "reduce_scatter", "broadcast", "reduce")

_ROUND = "ring"
"""What is sent from each rank of a group to the next one."""

_BETWEEN = ".network"

_EXTRAPOLATED, _ASSUMED = PROVENANCE.index("extrapolated"), PROVENANCE.index("assumed")


@dataclass(frozen=True)
class Side:
    """Numbers of a kind of network (data/networks.toml) by name, and the line rate of a NIC on it in bytes/s."""

    numbers: Mapping[str, float]
    nic_bytes_per_s: float

    def __getitem__(self, name: str) -> float:
        return self.numbers.get(name, 0.0)

    @property
    def step_s(self) -> float:
        """Seconds of a step of a ring. It waits for the previous host: at least a message."""
        return max(self["network.step_s"], self["network.message_s"])

    @property
    def reach(self) -> float:
        """The share of its line rate that a NIC reaches; work of the host per byte bounds it."""
        return min(self["network.nic_fraction"], self._bound)

    @property
    def bounding(self) -> str:
        """The name of the number that determines the rate of NICs."""
        return "network.byte_s" if self._bound < self["network.nic_fraction"] else "network.nic_fraction"

    @property
    def _bound(self) -> float:
        per_byte = self["network.byte_s"] * self.nic_bytes_per_s
        return 1 / per_byte if per_byte else inf


@dataclass(frozen=True)
class Network:
    """What a network is over another one: `here` is the cluster's, `there` the one that was measured."""

    here: Side
    there: Side

    @property
    def hop_s(self) -> float:
        """Extra seconds of a message here; negative if the profile was measured on a slower network."""
        return self._more("network.message_s")

    @property
    def step_s(self) -> float:
        """Extra seconds of a step of a ring here."""
        return self.here.step_s - self.there.step_s

    @property
    def peer_s(self) -> float:
        """Seconds that each peer in another node adds to an all-to-all."""
        return self._more("network.peer_s")

    @property
    def rate(self) -> float:
        """The share of its line rate that a NIC reaches here over the share there."""
        return self.here.reach / self.there.reach

    def _more(self, name: str) -> float:
        return self.here[name] - self.there[name]

    @property
    def differing(self) -> list[str]:
        """The names of the numbers here that are others there."""
        return [name for name, value in self.here.numbers.items() if value != self.there[name]]


class Networks:
    """A profile's models of exchanges between nodes, corrected for the network of its `network.` parameters.

    Each was measured on a network of its own: a profile takes on from its base what it has not measured.
    """

    def __init__(self, profile: Profile, limits: Limits):
        self.profile, self.limits = profile, limits
        self.parameters: Mapping[str, Parameter] = profile.starting("network.") or load_network(MEASURED_ON).parameters
        self.here = Side(_values(self.parameters), limits.nic_bytes_per_s)

    def network(self, kind: str) -> Network:
        """The network here over the one on which a class of exchanges between nodes was measured."""
        model = self.profile.lender(_between(kind))
        return (
            self._over(MEASURED_ON, self.profile.limits) if model is None else self._over(model.network, model.limits)
        )

    def rate(self, nic_bytes_per_s: float) -> float:
        """The factor from a share of NICs' line rate to that of NICs of this rate here."""
        return replace(self._of_nics, here=replace(self.here, nic_bytes_per_s=nic_bytes_per_s)).rate

    @property
    def _of_nics(self) -> Network:
        """The network here over the one on which the profile's NICs were measured.

        A stack's shares, such as that of one-sided writes, are taken for shares of these NICs.
        """
        share = dict.get(self.profile.parameters, "link_fraction.nic")
        return self._over(share.network if share else MEASURED_ON, self.profile.limits)

    def _over(self, network: str, measured: Limits | None) -> Network:
        nic_bytes_per_s = (measured or self.limits).nic_bytes_per_s
        return Network(self.here, Side(_numbers(network), nic_bytes_per_s))

    @property
    def differing(self) -> list[str]:
        """The names of numbers that differ between here and where any exchange was measured."""
        names = {name for kind in self._exchanges for name in self.network(kind).differing}
        return [name for name in self.parameters if name in names]

    @property
    def _exchanges(self) -> list[str]:
        """The classes between nodes that rest on measurements; any of them for a profile that has none."""
        between = [kind for kind in self.profile.models if kind.endswith(_BETWEEN)]
        return [kind for kind in between if self.profile.lender(kind)] or ["broadcast" + _BETWEEN]

    def estimate(self, kind: str, features: Mapping[str, float]) -> Estimate:
        """The corrected estimate of an op between nodes. Its spread includes the spreads of the network's numbers.

        Numbers that were fitted to the ledger of steps are left out of it: their errors are terms of phases instead.

        Raises:
            UserError: the profile has no such class, or a feature is missing or impossible.
        """
        network = self.network(kind)
        found = self._on(network, kind, features)
        off = {name: self._effect(name, network, kind, features, found) for name in network.differing}
        if not off:
            return found
        most = max(off, key=lambda name: off[name])
        label = _ASSUMED if self.parameters[most].provenance == "assumed" else _EXTRAPOLATED
        spread = np.hypot(found.spread, hypot(*off.values()))
        return replace(found, spread=spread, provenance=np.maximum(found.provenance, label))

    def nic_share(self, share: Parameter) -> Parameter:
        """A share of a NIC's line rate, with the spread and provenance that it has on this network."""
        number = self.parameters[self.here.bounding]
        if self.here.bounding not in self._of_nics.differing:
            return share
        label = "assumed" if "assumed" in (number.provenance, share.provenance) else "extrapolated"
        return replace(share, spread=hypot(share.spread, number.spread), provenance=label)

    def note(self, kind: str) -> str | None:
        """The note of a report on a network other than the measured one; None if nothing differs."""
        if not self.differing:
            return None
        message, rate = self.parameters["network.message_s"], self.parameters[self.here.bounding]
        return (
            f"network {kind}; {self._measured}: "
            f"a message takes {format_seconds(message.value)} ({message.provenance}, ±{message.spread:.0%}), "
            f"NICs reach {self.here.reach:.0%} of their line rate ({rate.provenance}, ±{rate.spread:.0%})"
        )

    @property
    def _measured(self) -> str:
        """Which classes were measured on another network than this one."""
        of = {kind: lender.network for kind in self._exchanges if (lender := self.profile.lender(kind))}
        others = [kind for kind in of if self.network(kind).differing]
        on = " and ".join(dict.fromkeys(of[kind] for kind in others)) or MEASURED_ON
        if len(others) == len(of):
            return f"the profile was measured on {on}"
        return f"the profile has {', '.join(kind.removesuffix(_BETWEEN) for kind in others)} from {on}"

    def _effect(self, name: str, network: Network, kind: str, features: Mapping[str, float], found: Estimate) -> float:
        """The change of ln(seconds) if a number is one standard deviation higher."""
        number = self.parameters[name]
        if number.provenance == "fitted":
            return 0.0
        numbers = {**self.here.numbers, name: number.value * exp(number.spread)}
        other = self._on(replace(network, here=replace(self.here, numbers=numbers)), kind, features)
        return abs(log(float(other.seconds[0] / found.seconds[0])))

    def _on(self, network: Network, kind: str, features: Mapping[str, float]) -> Estimate:
        between = _between(kind)
        op = between.removesuffix(_BETWEEN)
        line = "link_bytes_per_s" if op == "send_recv" else "network_bytes_per_s"
        hop_s = network.step_s if op in _RINGS else network.hop_s
        asked = {**features, line: features[line] * network.rate, "hop_s": hop_s}
        found = self.profile.estimate(between, asked, limits=self.limits)
        if op != "all_to_all" or not network.peer_s:
            return found
        peers = features["gpus"] * (1 - 1 / features["nodes"])
        return replace(found, seconds=found.seconds + network.peer_s * peers)


def _between(kind: str) -> str:
    """The class of an op over nodes, which may be named without it."""
    return kind if kind.endswith(_BETWEEN) else kind + _BETWEEN


@cache
def _numbers(network: str) -> Mapping[str, float]:
    return _values(load_network(network).parameters)


def _values(numbers: Mapping[str, Parameter]) -> dict[str, float]:
    return {name: number.value for name, number in numbers.items()}


def networks_of(cluster: Cluster, profile: Profile, rank: int = 0) -> Networks:
    """The corrections of a profile for a cluster's network, with the limits of a rank's node."""
    return Networks(profile, limits(cluster, rank))


class Uplinks:
    """The links between a cluster's switches; `stage` maps a rank to the ranks that act alike, itself included."""

    def __init__(self, cluster: Cluster, stage: Mapping[int, tuple[int, ...]]):
        self.cluster, self.stage = cluster, stage

    def share_left(self, kind: str, group: Sequence[int], nearby: int) -> float:
        """The share of the NICs' rate that a group keeps; `nearby` is its number of ranks on each island."""
        if self.cluster.network.is_even:
            return 1.0
        if self._goes_round(kind, group):
            kind, nearby = _ROUND, 1
        return share_by_flows(self.cluster, kind, self._groups(kind, group), nearby)

    def site_latency_s(self, kind: str, group: Sequence[int]) -> float:
        """Seconds that links between sites add at least, to the slowest of the groups that send at the same time."""
        if not self.cluster.site_latency_s.any():
            return 0.0
        if self._goes_round(kind, group):
            kind = _ROUND
        ends = [(group[0], group[-1])] if kind == "send_recv" else [group]
        return crossings(kind) * largest_site_latency_s(self.cluster, [*ends, *self._groups(kind, group)])

    def _goes_round(self, kind: str, group: Sequence[int]) -> bool:
        """Whether each rank of a group sends to the next one, as both ends of the send are of one stage."""
        return kind == "send_recv" and group[0] != group[-1] and group[-1] in self._alike(group[0])

    def _groups(self, kind: str, group: Sequence[int]) -> list[tuple[int, ...]]:
        """The groups of its stage that send at the same time as this one."""
        stage = self._alike(group[0])
        if kind == "send_recv":
            return list(zip(stage, self._alike(group[-1]), strict=False))  # a rank of a hand-made Program may have none
        return tiles(group, stage)

    def _alike(self, rank: int) -> tuple[int, ...]:
        return self.stage.get(rank, (rank,))
