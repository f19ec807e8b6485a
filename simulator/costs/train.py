"""Cost models of a training step: kernels and collectives from the profile's models, copies along their routes.

Ops repeat: every distinct (kind, type, group, bytes, shape) is priced once. A rank stands for all of its stage, so an
op asks for the links of that rank: its NIC and PCIe lanes, its NVLink port.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import log2

import numpy as np
from numpy.typing import NDArray

from ..forms import BUS_FACTOR
from ..hardware import Cluster, limits
from ..profile import PROVENANCE, Profile
from ..program import Place, Program, Ragged
from .costs import Costs, Floats, bytes_by_link
from .kernels import Kernels
from .phases import EXCHANGES, PHASES, phase_of_op
from .pricing import effective_capacity
from .uplinks import Uplinks

_FAMILY = {  # whose interference a kind of op takes and makes
    **dict.fromkeys(("gemm", "dgrad", "wgrad", "experts", "experts_dgrad", "experts_wgrad"), "gemm"),
    **dict.fromkeys(("attention", "attention_backward"), "attention"),
}
_NOT_MEMORY = {*_FAMILY, *EXCHANGES, "h2d", "d2h", "issue", "host_adam", "actions", "cycle"}


_BESIDES = {"adamw": "optimizer.s", "issue": "layer.s"}
"""Seconds of host work besides what a kind of op takes."""


@dataclass(frozen=True)
class Price:
    """Of one distinct op; `provenance` indexes PROVENANCE, `demand` is bytes/s by link at full speed."""

    seconds: float
    spread: float
    provenance: int
    demand: Mapping[int, float] = field(default_factory=dict)


def cost_train(
    program: Program,
    cluster: Cluster,
    profile: Profile,
    actions: Sequence[Price] = (),
    places: Sequence[Place] | None = None,
) -> Costs:
    """How long each op of a training step takes alone, and what it asks of links.

    `actions` are the prices of whole actions, by number, of a step at the coarser level. Ranks of one of `places`
    (those of the Program if not given) do the same at the same time.

    Raises:
        UserError: the profile has no model for something that is computed, or the cluster no route.
    """
    return _Pricer(program, cluster, profile, actions, program.places if places is None else places).costs()


class _Pricer:
    """Prices a Program, one distinct op after another."""

    def __init__(
        self,
        program: Program,
        cluster: Cluster,
        profile: Profile,
        actions: Sequence[Price],
        places: Sequence[Place],
    ):
        self.program, self.cluster, self.profile, self.actions = program, cluster, profile, actions
        self.limits = limits(cluster)
        self.kernels = Kernels(profile, self.limits)
        self._islands: dict[int, int] = {}
        self._reaches: dict[tuple[int, ...], _Reach] = {}
        self._stage = {rank: place.ranks for place in places for rank in place.ranks}
        self._uplinks = Uplinks(cluster, self._stage)
        self._kept: dict[tuple[str, tuple[int, ...]], float] = {}

    def costs(self) -> Costs:
        program = self.program
        phase = phase_of_op(program)
        first, which = _distinct(program, phase)
        prices = [self._by_software(op, PHASES[phase[op]]) for op in first.tolist()]
        work = np.array([price.seconds for price in prices])[which]
        demand = Ragged.of([list(price.demand) for price in prices])
        rates = np.array([rate for price in prices for rate in price.demand.values()], np.float64)
        families = tuple(dict.fromkeys(_family(kind) for kind in program.kinds))
        family = np.array([families.index(_family(kind)) for kind in program.kinds], np.int64)
        links = self.cluster.links
        return Costs(
            latency_s=np.zeros(len(program)),
            work_s=work,
            row=which,
            demand=demand,
            rate_bytes_per_s=rates,
            capacity_bytes_per_s=self.capacity,
            link_bytes=bytes_by_link(work, which, demand, rates, len(links)),
            link_names=tuple(link.name for link in links),
            classes=families,
            cost_class=family[program.kind],
            provenance=np.array([price.provenance for price in prices], np.int64)[which],
            spread=np.array([price.spread for price in prices])[which],
            interference=_interference(families, self.profile),
        )

    def _by_software(self, op: int, phase: str) -> Price:
        """How long an op takes with this software: a multiple of what the profile says and of host work besides.

        It moves as many bytes in that time, or what its links carry if they are no faster.
        """
        found, factor = self._price(op), self.profile.given(f"time_factor.{phase}", 1.0)
        if phase == "tp" and self._reach(self.program.groups[self.program.group[op]]).islands > 1:
            factor *= self.profile.given("time_factor.tp.network", 1.0)
        besides = _BESIDES.get(self.program.kind_of(op))
        seconds = (found.seconds + (self.profile.given(besides, 0.0) if besides else 0.0)) * factor
        demand = {link: min(rate / factor, float(self.capacity[link])) for link, rate in found.demand.items()}
        return replace(found, seconds=seconds, demand=demand)

    @cached_property
    def capacity(self) -> Floats:
        return effective_capacity(self.cluster, self.profile)

    def _price(self, op: int) -> Price:
        kind = self.program.kind_of(op)
        if kind in EXCHANGES:
            return self._exchange(op, "broadcast" if kind == "reduce" else kind)  # the same ring, backwards
        if kind == "cycle":
            tick = self.profile["fusion.cycle_s"]
            return Price(tick.value, tick.spread, PROVENANCE.index(tick.provenance))
        if kind in ("h2d", "d2h"):
            return self._copy(op, kind)
        if kind == "host_adam":
            return self._on_host(op)
        shape = tuple(self.program.shape[op].tolist())
        if kind == "actions":
            return self.actions[shape[0]]
        dtype = self.program.dtypes[self.program.dtype[op]]
        found = self.kernels.estimate(kind, shape, int(self.program.bytes[op]), dtype)
        return Price(float(found.seconds[0]), float(found.spread[0]), int(found.provenance[0]), {})

    # Exchanges

    def _exchange(self, op: int, kind: str) -> Price:
        group = self.program.groups[self.program.group[op]]
        size = float(self.program.bytes[op])
        if len(group) == 1 or size == 0:
            return Price(0.0, 0.0, PROVENANCE.index("exact"), {})
        reach = self._reach(group)
        remote = self.program.shape[op]
        if kind == "all_to_all" and len(remote) and reach.islands > 1:
            near = tuple(rank for rank in group if self._island(rank) == self._island(group[0]))
            once = self._collective(kind, group, reach, float(remote[0]) * len(group) / (len(group) - reach.nearby))
            passed_on = self._collective(kind, near, self._reach(near), size * (len(near) > 1))
            return _at_once(once, passed_on)
        return self._collective(kind, group, reach, size)

    def _collective(self, kind: str, group: tuple[int, ...], reach: "_Reach", size: float) -> Price:
        """Of all ranks of a group at once; `send_recv` is of two."""
        if not size:
            return Price(0.0, 0.0, PROVENANCE.index("exact"))
        features = {"bytes": size}
        if kind != "send_recv":
            features |= {"gpus": float(len(group))}
        if reach.islands > 1:
            features |= self._network(kind, group, reach)
        cost_class = f"{kind}.network" if kind == "send_recv" and reach.islands > 1 else kind
        found = self.profile.estimate(cost_class, features, limits=self.limits)
        seconds = float(found.seconds[0]) + self._beyond_s(kind, len(group), reach)
        demand = self._links(kind, group, reach, size, seconds)
        return Price(seconds, float(found.spread[0]), int(found.provenance[0]), demand)

    def _beyond_s(self, kind: str, ranks: int, reach: "_Reach") -> float:
        """What networks with slower messages add: to an exchange, and to each step of its ring, or of its tree."""
        if reach.islands == 1 or kind in ("send_recv", "all_to_all"):
            return 0.0
        steps = 2 * log2(reach.islands) if kind == "all_reduce" else ranks - 1
        return self.profile.given("network.exchange_s", 0.0) + steps * self.profile.given("network.hop_s", 0.0)

    def _network(self, kind: str, group: tuple[int, ...], reach: "_Reach") -> dict[str, float]:
        """Between islands: how many, and what the NICs that serve a group's ranks on one of them carry."""
        each = max(self.limits.nics // self.cluster.gpus_per_node[0], 1)
        nics = self.limits.nics * reach.nodes / reach.alike
        nic = self.limits.nic_bytes_per_s * self._beyond_leaves(kind, group, reach)
        if kind == "send_recv":
            return {"link_bytes_per_s": nic * min(each, nics)}
        return {"nodes": float(reach.islands), "network_bytes_per_s": nic * reach.nearby * min(each, nics)}

    def _beyond_leaves(self, kind: str, group: tuple[int, ...], reach: "_Reach") -> float:
        """What uplinks leave of a NIC's rate."""
        key = (kind, group)
        if key not in self._kept:
            self._kept[key] = self._uplinks.kept(kind, group, reach.nearby)
        return self._kept[key]

    def _island(self, rank: int) -> int:
        if rank not in self._islands:
            self._islands[rank] = self.cluster.island(rank)
        return self._islands[rank]

    def _reach(self, group: tuple[int, ...]) -> "_Reach":
        if group not in self._reaches:
            self._reaches[group] = self._reach_of(group)
        return self._reaches[group]

    def _reach_of(self, group: tuple[int, ...]) -> "_Reach":
        islands = [self._island(rank) for rank in group]
        nearby = islands.count(islands[0])
        stage = self._stage.get(group[0], group)
        alike = [rank for rank in stage if self._island(rank) == islands[0]]
        return _Reach(len(set(islands)), nearby, len({self.cluster.node_of(rank) for rank in alike}), len(alike))

    def _links(
        self, kind: str, group: tuple[int, ...], reach: "_Reach", size: float, seconds: float
    ) -> dict[int, float]:
        """Bytes/s on the links of the first rank (of both ranks of a send); a link that it fills, it fills exactly."""
        a, b = group[0], group[-1]
        if kind == "send_recv":
            near = dict.fromkeys(self.cluster.route(self.cluster.gpu(a), self.cluster.gpu(b)), size)
            moved = near if reach.islands == 1 else self._out(a, size) | self._into(b, size)
        else:
            inside, outside = _traffic(kind, len(group), reach, size)
            moved = dict.fromkeys(self._nvlink(group), inside)
            if reach.islands > 1:
                moved |= self._out(a, outside) | self._into(a, outside)
        return {link: min(b / seconds, float(self.capacity[link])) for link, b in moved.items() if b and seconds}

    def _out(self, rank: int, size: float) -> dict[int, float]:
        """Bytes on the links from a GPU to the network, spread over its NICs, which carry those of its like too."""
        nics = self.cluster.nics_of_gpu(rank)
        each = size / len(nics)
        inside = {link: each for nic in nics for link in self.cluster.nic_out_route(rank, nic)}
        return inside | {self.cluster.nic_tx(nic): each * self._through(rank, nic) for nic in nics}

    def _into(self, rank: int, size: float) -> dict[int, float]:
        """The same from the network to a GPU."""
        nics = self.cluster.nics_of_gpu(rank)
        each = size / len(nics)
        inside = {link: each for nic in nics for link in self.cluster.nic_in_route(rank, nic)}
        return inside | {self.cluster.nic_rx(nic): each * self._through(rank, nic) for nic in nics}

    def _through(self, rank: int, nic: str) -> int:
        """How many ranks of a stage, which do the same at the same time, a NIC serves."""
        near = set(self.cluster.gpus_of(self.cluster.node_of(rank)))
        return sum(nic in self.cluster.nics_of_gpu(other) for other in self._stage.get(rank, (rank,)) if other in near)

    def _nvlink(self, group: tuple[int, ...]) -> tuple[int, ...]:
        """The ports of the first rank, both ways."""
        near = [rank for rank in group[1:] if self._island(rank) == self._island(group[0])]
        if not near:
            return ()
        me, peer = self.cluster.gpu(group[0]), self.cluster.gpu(near[0])
        out, back = self.cluster.route(me, peer), self.cluster.route(peer, me)
        return (out[0], back[-1])

    # Copies

    def _copy(self, op: int, kind: str) -> Price:
        rank = self.program.groups[self.program.group[op]][0]
        route = self.cluster.h2d_route(rank) if kind == "h2d" else self.cluster.d2h_route(rank)
        narrowest = min(route, key=lambda link: self.capacity[link])
        rate = float(self.capacity[narrowest])
        parameter = self.profile[f"link_fraction.{self.cluster.links[narrowest].kind}"]
        start = self.profile["h2d.latency_s"].value
        seconds = start + float(self.program.bytes[op]) / rate
        demand = dict.fromkeys(route, float(self.program.bytes[op]) / seconds)
        return Price(seconds, parameter.spread, PROVENANCE.index(parameter.provenance), demand)

    def _on_host(self, op: int) -> Price:
        """Adam on the host is bound by its memory, which GPUs of a socket share (ZeRO-Offload, arXiv 2101.06840)."""
        rank = self.program.groups[self.program.group[op]][0]
        memory, near = self.cluster.h2d_route(rank)[0], self.cluster.gpus_of(self.cluster.node_of(rank))
        sharing = sum(self.cluster.h2d_route(other)[0] == memory for other in near)
        parameter = self.profile[f"link_fraction.{self.cluster.links[memory].kind}"]
        seconds = float(self.program.bytes[op]) * sharing / float(self.capacity[memory])
        return Price(seconds, parameter.spread, PROVENANCE.index(parameter.provenance))


def _at_once(one: Price, other: Price) -> Price:
    """Two exchanges beside each other as one that ends with the slower of them."""
    slower = max(one, other, key=lambda price: price.seconds)
    shares = [(link, rate * p.seconds / slower.seconds) for p in (one, other) for link, rate in p.demand.items()]
    links = dict.fromkeys(link for link, _ in shares)
    return replace(slower, demand={of: max(rate for link, rate in shares if link == of) for of in links})


@dataclass(frozen=True)
class _Reach:
    """On how many islands a group lies, how many of its ranks are on the first, and who else is there.

    `alike` are the ranks of its stage on that island, `nodes` those that they are in: what one group sends, the others
    send at the same time, through the same NICs.
    """

    islands: int
    nearby: int
    nodes: int
    alike: int


def _traffic(kind: str, ranks: int, reach: _Reach, size: float) -> tuple[float, float]:
    """Bytes that one rank puts on its NVLink port and on its NIC."""
    if kind == "all_to_all":
        return size * (reach.nearby - 1) / ranks, size * (ranks - reach.nearby) / ranks
    whole = float(BUS_FACTOR[kind](np.array([float(ranks)]))[0]) * size
    return whole * (reach.nearby > 1), whole / reach.nearby


def _distinct(program: Program, phase: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """One op of each set of equal ones, and the set of each op: rows are compared by a hash of 64 bits."""
    hashed = program.kind.astype(np.uint64)
    for column in (phase, program.dtype, program.group, program.bytes):
        hashed = _mixed(hashed, column.astype(np.uint64))
    shape = program.shape
    position = np.arange(len(shape.values), dtype=np.uint64) - np.repeat(shape.start[:-1], np.diff(shape.start)).astype(
        np.uint64
    )
    terms = _mixed(position, shape.values.astype(np.uint64))
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)))
    hashed = _mixed(hashed, sums[shape.start[1:]] - sums[shape.start[:-1]])
    _, first, which = np.unique(hashed, return_index=True, return_inverse=True)
    return first, which


def _mixed(hashed: NDArray[np.uint64], value: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64]:
    """A multiply-xorshift step (splitmix64's constants)."""
    mixed = (hashed + np.uint64(0x9E3779B97F4A7C15)) ^ (value * np.uint64(0xBF58476D1CE4E5B9))
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(29))


def _family(kind: str) -> str:
    return _FAMILY.get(kind) or (kind if kind in _NOT_MEMORY else "memory")


def _interference(families: tuple[str, ...], profile: Profile) -> Floats:
    factors = np.ones((len(families), len(families)))
    for name, parameter in profile.parameters.items():
        head, *pair = name.split(".")
        if head == "interference" and set(pair) <= set(families):
            factors[families.index(pair[0]), families.index(pair[1])] = parameter.value
    return factors
