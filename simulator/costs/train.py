"""Cost models of a training step: kernels and collectives from the profile's models, copies along their routes.

Ops repeat: every distinct (kind, type, group, bytes, shape) is priced once. A rank stands for all of its stage, so an
op asks for the links of that rank: its NIC and PCIe lanes, its NVLink port.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..base.op_kinds import COPY, EXCHANGE, op_kind
from ..hardware import Cluster, Limits, limits
from ..profile import PROVENANCE, Estimate, Profile
from ..program import Place, Program
from .costs import Costs, Floats
from .kernels import Kernels
from .networks import Networks
from .phases import EXCHANGES, OF_LAYERS, PHASES, phase_of_op
from .pricing import effective_capacity
from .sheet import Price, Sheet
from .uplinks import Uplinks
from .wires import Sent, Wires, inside_bytes, sent_bytes, wires_of, wires_of_message


@dataclass(frozen=True, eq=False)
class _Machine:
    """One kind of node: what is known of its GPUs, and what they, their links and NICs may do."""

    profile: Profile
    limits: Limits
    gpus: int
    known: dict[tuple[object, ...], Estimate] = field(default_factory=dict)

    @cached_property
    def kernels(self) -> Kernels:
        return Kernels(self.profile, self.limits)

    @cached_property
    def networks(self) -> Networks:
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
        self._machines: dict[int, _Machine] = {}  # by identity of the node
        self._members: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._islands: dict[int, int] = {}
        self._reaches: dict[tuple[tuple[int, ...], int], _Reach] = {}
        self._stage = {rank: place.ranks for place in places for rank in place.ranks}
        self._uplinks = Uplinks(cluster, self._stage)
        self._kept: dict[tuple[str, tuple[int, ...]], float] = {}
        self._crossed: dict[tuple[bool, tuple[int, ...], int], Wires] = {}

    def costs(self) -> Costs:
        program = self.program
        phase = phase_of_op(program)
        first, which = _distinct(program, phase, self._kinds_of_place())
        prices = [self._by_software(op, PHASES[phase[op]]) for op in first.tolist()]
        sheet = Sheet(program, self.capacity)
        sheet.enter(first, prices)
        return sheet.costs(self.profile, tuple(link.name for link in self.cluster.links), first[which])

    def _by_software(self, op: int, phase: str) -> Price:
        """How long an op takes with this software: a multiple of what the profile says and of host work besides.

        No software sends bytes faster than its wires carry them. It moves as many bytes in that time, or what its links
        carry if they are no faster.
        """
        found, factor = self._price(op), self.profile.given(f"time_factor.{phase}", 1.0)
        if phase == "tp" and self._reach(self._group(op)).islands > 1:
            factor *= self.profile.given("time_factor.tp.network", 1.0)
        if phase in OF_LAYERS:
            factor *= self.profile.given("architecture.factor", 1.0)
        besides = op_kind(self.program.kind_of(op)).besides
        usual, least = found.seconds + (self.profile.given(besides, 0.0) if besides else 0.0), found.least_s
        seconds = max(usual * factor, min(usual, least))
        slower = seconds / found.seconds if found.demand else 1.0
        demand = {link: min(rate / slower, float(self.capacity[link])) for link, rate in found.demand.items()}
        return replace(found, seconds=seconds, demand=demand)

    @cached_property
    def capacity(self) -> Floats:
        return effective_capacity(self.cluster, self.profile)

    def _price(self, op: int) -> Price:
        """An op takes as long as on the slowest of the machines that it stands for."""
        kind, ranks = self.program.kind_of(op), self._ranks(op)
        return max((self._price_at(op, kind, rank) for rank in self._one_of_each(ranks)), key=lambda one: one.seconds)

    def _price_at(self, op: int, kind: str, rank: int) -> Price:
        """Of an op as one rank does it, or takes part in it."""
        form = op_kind(kind).form
        if form == EXCHANGE:
            return self._exchange(op, kind, rank)
        if form == COPY:
            return self._copy(op, kind, rank)
        if form == "host_adam":
            return self._on_host(op, rank)
        if form == "cycle":
            tick = self.profile["fusion.cycle_s"]
            return Price(tick.value, tick.spread, PROVENANCE.index(tick.provenance))
        shape = tuple(self.program.shape[op].tolist())
        if form == "actions":
            return self.actions[shape[0]]
        dtype = self.program.dtypes[self.program.dtype[op]]
        found = self._machine(rank).kernels.estimate(kind, shape, int(self.program.bytes[op]), dtype)
        return Price(float(found.seconds[0]), float(found.spread[0]), int(found.provenance[0]), {})

    # Machines

    def _group(self, op: int) -> tuple[int, ...]:
        return self.program.groups[self.program.group[op]]

    def _ranks(self, op: int) -> tuple[int, ...]:
        """The ranks that an op stands for: those of an exchange, else all of its place."""
        if self.program.kind_of(op) in EXCHANGES:
            return self._group(op)
        return self.program.places[self.program.lanes[self.program.lanes_of[op][0]].place].ranks

    def _machine(self, rank: int) -> _Machine:
        node = self.cluster.node_of(rank)
        key = id(self.cluster.nodes[node])
        if key not in self._machines:
            profile = self.profile.on(self.cluster.device(rank).name)
            self._machines[key] = _Machine(profile, limits(self.cluster, rank), self.cluster.gpus_per_node[node])
        return self._machines[key]

    def _one_of_each(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """The first rank on each kind of node."""
        if ranks not in self._members:
            kinds = self.cluster.nodes if len(set(map(id, self.cluster.nodes))) > 1 else ()
            first = {id(kinds[self.cluster.node_of(rank)]): rank for rank in reversed(ranks)} if kinds else {}
            self._members[ranks] = tuple(sorted(first.values())) or ranks[:1]
        return self._members[ranks]

    def _kinds_of_place(self) -> NDArray[np.int64]:
        """A number for the kinds of node that each place lies on: equal ops take equally long on equal kinds."""
        kinds = dict[tuple[int, ...], int]()
        nodes = self.cluster.nodes
        found = [
            kinds.setdefault(tuple(id(nodes[self.cluster.node_of(rank)]) for rank in self._one_of_each(place.ranks)),
                             len(kinds))
            for place in self.program.places
        ]  # fmt: skip
        return np.array(found, np.int64)

    # Exchanges

    def _exchange(self, op: int, kind: str, rank: int) -> Price:
        group = self._group(op)
        size = float(self.program.bytes[op])
        if len(group) == 1 or size == 0:
            return Price(0.0, 0.0, PROVENANCE.index("exact"), {})
        reach = self._reach(group, rank)
        remote = self.program.shape[op]
        if kind == "all_to_all" and len(remote) and reach.islands > 1:
            return self._passed_on(group, reach, float(remote[0]), size)
        return self._collective(kind, group, reach, size)

    def _passed_on(self, group: tuple[int, ...], reach: "_Reach", remote: float, size: float) -> Price:
        """Bytes that go to each island once, and are passed on inside it meanwhile; a PCIe port may carry both."""
        near = tuple(other for other in group if self._island(other) == self._island(reach.rank))
        once = self._collective("all_to_all", group, reach, remote * len(group) / (len(group) - reach.nearby))
        inside = self._collective("all_to_all", near, self._reach(near, reach.rank), size * (len(near) > 1))
        port = sent_bytes("all_to_all", len(near), 1, len(near), size).port
        wires = self._wires("all_to_all", group, reach)
        return self._over(wires, Sent(port, remote, port), max(once, inside, key=lambda price: price.seconds))

    def _collective(self, kind: str, group: tuple[int, ...], reach: "_Reach", size: float) -> Price:
        """Of all ranks of a group at once, as the machine of one of them would do it; `send_recv` is of two."""
        if not size:
            return Price(0.0, 0.0, PROVENANCE.index("exact"))
        wires, sent = self._wires(kind, group, reach), self._sent(kind, group, reach, size)
        found = self._slowest_part(kind, group, reach, size)
        seconds = float(found.seconds[0]) + self._stall_s(kind, reach)
        return self._over(wires, sent, Price(seconds, float(found.spread[0]), int(found.provenance[0])))

    def _over(self, wires: Wires, sent: Sent, alone: Price) -> Price:
        """A price with what it asks of its wires, and no less time than those take."""
        least = wires.least_s(sent.port_least, sent.nics, self.cluster.capacity)
        seconds = max(alone.seconds, least)
        # A link that it fills, it fills exactly: sums made by a switch send less than a ring.
        moved = wires.bytes(sent.port, sent.nics).items()
        demand = {link: min(moved_bytes / seconds, float(self.capacity[link])) for link, moved_bytes in moved}
        return Price(seconds, alone.spread, alone.provenance, demand, least)

    @staticmethod
    def _sent(kind: str, group: tuple[int, ...], reach: "_Reach", size: float) -> Sent:
        if kind == "send_recv":
            return Sent(size, size, size)
        return sent_bytes(kind, len(group), reach.islands, reach.nearby, size)

    def _slowest_part(self, kind: str, group: tuple[int, ...], reach: "_Reach", size: float) -> Estimate:
        """Over several islands: between them, or inside each, whichever takes longer."""
        machine = self._machine(reach.rank)
        features = {"bytes": size} if kind == "send_recv" else {"bytes": size, "gpus": float(len(group))}
        if reach.islands == 1:
            return machine.inside(kind, features)
        features |= self._network(kind, group, reach)
        if kind == "send_recv":
            return machine.between("send_recv.network", features)
        between = machine.between(kind, features)
        if reach.nearby == 1:
            return between
        near = {"bytes": inside_bytes(kind, len(group), reach.nearby, size), "gpus": float(reach.nearby)}
        inside = machine.inside(kind, near)
        return max(between, inside, key=lambda part: float(part.seconds[0]))

    def _stall_s(self, kind: str, reach: "_Reach") -> float:
        """What software adds to a collective between nodes."""
        if reach.islands == 1 or kind in ("send_recv", "all_to_all"):
            return 0.0
        return self.profile.given("exchange.s", 0.0)

    def _network(self, kind: str, group: tuple[int, ...], reach: "_Reach") -> dict[str, float]:
        """Between islands: how many, and what the NICs that serve a group's ranks on one of them carry."""
        machine = self._machine(reach.rank)
        each = max(machine.limits.nics // machine.gpus, 1)
        nics = machine.limits.nics * reach.nodes / reach.alike
        nic = machine.limits.nic_bytes_per_s * self._beyond_leaves(kind, group, reach)
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

    def _reach(self, group: tuple[int, ...], rank: int | None = None) -> "_Reach":
        """As one rank of a group sees it, the first if none is named."""
        key = group, group[0] if rank is None else rank
        if key not in self._reaches:
            self._reaches[key] = self._reach_of(*key)
        return self._reaches[key]

    def _reach_of(self, group: tuple[int, ...], rank: int) -> "_Reach":
        islands, here = [self._island(one) for one in group], self._island(rank)
        alike = [one for one in self._stage.get(rank, group) if self._island(one) == here]
        nodes = len({self.cluster.node_of(one) for one in alike})
        return _Reach(rank, len(set(islands)), islands.count(here), nodes, len(alike))

    def _wires(self, kind: str, group: tuple[int, ...], reach: "_Reach") -> Wires:
        """The links that one rank of a collective crosses (both ranks of a send)."""
        key = (kind == "send_recv", group, reach.rank)
        if key not in self._crossed:
            if kind == "send_recv":
                self._crossed[key] = wires_of_message(self.cluster, group[0], group[-1], self._stage)
            else:
                stage = self._stage.get(reach.rank, (reach.rank,))
                self._crossed[key] = wires_of(self.cluster, group, reach.rank, stage, reach.islands)
        return self._crossed[key]

    # Copies

    def _copy(self, op: int, kind: str, rank: int) -> Price:
        route = self.cluster.h2d_route(rank) if kind == "h2d" else self.cluster.d2h_route(rank)
        narrowest = min(route, key=lambda link: self.capacity[link])
        rate = float(self.capacity[narrowest])
        profile = self._machine(rank).profile
        parameter = profile[f"link_fraction.{self.cluster.links[narrowest].kind}"]
        start = profile["h2d.latency_s"].value
        seconds = start + float(self.program.bytes[op]) / rate
        demand = dict.fromkeys(route, float(self.program.bytes[op]) / seconds)
        return Price(seconds, parameter.spread, PROVENANCE.index(parameter.provenance), demand)

    def _on_host(self, op: int, rank: int) -> Price:
        """Adam on the host is bound by its memory, which GPUs of a socket share (ZeRO-Offload, arXiv 2101.06840)."""
        memory, near = self.cluster.h2d_route(rank)[0], self.cluster.gpus_of(self.cluster.node_of(rank))
        sharing = sum(self.cluster.h2d_route(other)[0] == memory for other in near)
        parameter = self._machine(rank).profile[f"link_fraction.{self.cluster.links[memory].kind}"]
        seconds = float(self.program.bytes[op]) * sharing / float(self.capacity[memory])
        return Price(seconds, parameter.spread, PROVENANCE.index(parameter.provenance))


@dataclass(frozen=True)
class _Reach:
    """On how many islands a group lies, how many of its ranks are on that of one `rank`, and who else is there.

    `alike` are the ranks of its stage on that island, `nodes` those that they are in: what one group sends, the others
    send at the same time, through the same NICs.
    """

    rank: int
    islands: int
    nearby: int
    nodes: int
    alike: int


def _distinct(
    program: Program, phase: NDArray[np.int64], kind_of_place: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """One op of each set of equal ones, and the set of each op: rows are compared by a hash of 64 bits."""
    hashed = program.kind.astype(np.uint64)
    columns = [phase, program.dtype, program.group, program.bytes]
    if kind_of_place.any():
        places = np.array([lane.place for lane in program.lanes], np.int64)
        columns.append(kind_of_place[places[program.lanes_of.values[program.lanes_of.start[:-1]]]])
    for column in columns:
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
