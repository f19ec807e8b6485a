"""Cost models of the ops of a weight update, one function per kind: what it takes alone and which links it loads.

Forms: copies and broadcasts are latency + bytes / rate (Hockney), the rate being that of the slowest link on the way;
a reload is host work per tensor and the bytes kept through device memory; other host work is constants and counts.
Every number comes from the profile and the stack.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..hardware import Cluster
from ..profile import Parameter, Profile
from ..program import Program
from .collective import RingBroadcast, ring_broadcast
from .costs import Costs, Floats
from .routes import read_route
from .sheet import Ops, Sheet, Term

# Latency and bandwidth overlap in a long pipelined ring: adding them overstates a published 1,024-GPU all-reduce at
# 1 GB by up to 65 %, their p-norm with p about 4 follows it.
_PIPELINE_NORM = 4

# Kinds that are nothing but work of host threads: the parameters that add up, each per entry of the op's shape or once.
_HOST_WORK: dict[str, dict[str, int | None]] = {
    "init_group": {"init_group.s": None, "init_group.rank_s": 0},
    "open_handle": {"open_handle.s": None},
    "wait_worker": {"wait_worker.s": None},
    "sync": {"sync.s": None},
    "send_meta": {"send_meta.s": None, "send_meta.tensor_s": 0},
    "drop_handle": {"drop_handle.s": None},
    "free_buffers": {"free_buffers.s": None},
    "barrier": {"barrier.s": None},
    "destroy_group": {"destroy_group.s": None},
}


def cost_update(program: Program, cluster: Cluster, profile: Profile) -> Costs:
    """The costs of an update Program whose rank r runs on GPU r of the cluster; `profile` holds device and software."""
    pricer = _Pricer(program, cluster, profile)
    host = {kind: partial(pricer.host_work, terms) for kind, terms in _HOST_WORK.items()}
    prices: Mapping[str, Callable[[Ops], None]] = host | {
        "gather_metas": pricer.gather_metas,
        "allocate": pricer.allocate,
        "register": partial(pricer.register, "register"),
        "unregister": partial(pricer.register, "unregister"),
        "h2d": pricer.h2d,
        "read": pricer.read,
        "copy": pricer.copy,
        "agree": pricer.agree,
        "reload": pricer.reload,
        "post_hook": pricer.post_hook,
        "broadcast": pricer.broadcast,  # last: see `_Pricer.watched`
    }
    assert set(program.kinds) <= set(prices), f"no price for {set(program.kinds) - set(prices)}"
    for kind, price in prices.items():
        if kind in program.kinds:
            price(np.flatnonzero(program.of_kind(kind)))
    return pricer.sheet.costs(profile, tuple(link.name for link in cluster.links))


def effective_capacity(cluster: Cluster, profile: Profile) -> Floats:
    """What each link sustains: its line rate times the profile's fraction for its kind (1 where it has none)."""
    fractions = {
        name.removeprefix("link_fraction."): parameter.value
        for name, parameter in profile.parameters.items()
        if name.startswith("link_fraction.")
    }
    return cluster.capacity * np.array([fractions.get(link.kind, 1.0) for link in cluster.links])


@dataclass(frozen=True)
class _Pricer:
    """Prices each kind of op into the sheet."""

    program: Program
    cluster: Cluster
    profile: Profile

    @cached_property
    def capacity(self) -> Floats:
        return effective_capacity(self.cluster, self.profile)

    @cached_property
    def sheet(self) -> Sheet:
        return Sheet(self.program, self.capacity)

    @cached_property
    def hbm(self) -> list[int]:
        """The device-memory link of every GPU."""
        return [self.cluster.hbm(gpu) for gpu in range(self.cluster.n_gpus)]

    def host_work(self, terms: Mapping[str, int | None], ops: Ops) -> None:
        """The parameters of a kind of `_HOST_WORK`."""
        counts = {name: 1.0 if entry is None else self._shape(ops, entry) for name, entry in terms.items()}
        self.sheet.charge(ops, [self._host(name, count) for name, count in counts.items()])

    def gather_metas(self, ops: Ops) -> None:
        """All ranks tell each other of every tensor; between nodes each of them takes longer."""
        tensors, nodes = self._shape(ops, 0), len({self.cluster.node_of(rank) for rank in self.gathered})
        between = self._host("gather.node_tensor_s", tensors * (nodes > 1))
        self.sheet.charge(ops, [self._host("gather.tensor_s", tensors), between])

    def register(self, kind: str, ops: Ops) -> None:
        """Landing buffers become known to the NIC, or are forgotten, by the byte."""
        self.sheet.charge(ops, [self._host(f"{kind}.s"), self._host(f"{kind}.byte_s", self.program.bytes[ops])])

    def allocate(self, ops: Ops) -> None:
        """Planning the buckets tensor by tensor, then device memory by the byte."""
        planning = self._host("allocate.tensor_s", self._shape(ops, 0))
        self.sheet.charge(ops, [planning, self._host("allocate.byte_s", self.program.bytes[ops])])

    def post_hook(self, ops: Ops) -> None:
        """What the engine does to weights after loading depends on their precision."""
        (dtype,) = {self.program.dtypes[dtype] for dtype in self.program.dtype[ops]}
        self.sheet.charge(ops, [self._host("post_hook.fp8_s" if dtype == "fp8" else "post_hook.bf16_s")])

    def agree(self, ops: Ops) -> None:
        """A tree of small messages: up and down once per doubling of the number of islands."""
        doublings = np.log2(self.ring.islands)
        wires = Term(2 * doublings * self.ring.latency_s, self.profile["agree.doubling_s"])
        terms = [self._fixed("agree.latency_s"), self._per("agree.doubling_s", doublings), wires]
        self.sheet.charge(ops, terms)

    def h2d(self, ops: Ops) -> None:
        """The owner's route from its nearest host memory; its slowest link gives the rate."""
        for rank, own in self._by_root(ops):
            route = self.cluster.h2d_route(rank)
            slowest = min(route, key=lambda link: self.capacity[link])
            rate = self.capacity[slowest]
            size = self.program.bytes[own]
            work = Term(size / rate, self._of_link(slowest, bytes=_ends(size)), work=True)
            self.sheet.charge(own, [self._fixed("h2d.latency_s"), work])
            self.sheet.demand(own, [*route, self.hbm[rank]], [rate] * (len(route) + 1))

    def read(self, ops: Ops) -> None:
        """RDMA from the owner's host memory to the receiver's device; the shape holds the owner."""
        owners = self.program.shape.values[self.program.shape.start[ops]]
        for owner, root in np.unique(np.stack([owners, self.program.root[ops]]), axis=1).T.tolist():
            own = ops[(owners == owner) & (self.program.root[ops] == root)]
            route = read_route(self.cluster, owner, root)
            rates = {link: self.one_sided(link) for link in route}
            slowest = min(route, key=rates.__getitem__)
            size, rate = self.program.bytes[own], rates[slowest]
            fraction = self.cluster.links[slowest].kind == "nic"
            basis = self.profile["rdma.nic_fraction"] if fraction else self._of_link(slowest, bytes=_ends(size))
            self.sheet.charge(own, [self._fixed("rdma.latency_s"), Term(size / rate, basis, work=True)])
            self.sheet.demand(own, [*route, self.hbm[root]], [rate] * (len(route) + 1))

    def one_sided(self, link: int) -> float:
        """What RDMA sustains on a link: on a NIC its own fraction of the line rate, elsewhere what anything does."""
        if self.cluster.links[link].kind == "nic":
            return float(self.cluster.capacity[link] * self.profile.value("rdma.nic_fraction"))
        return float(self.capacity[link])

    def copy(self, ops: Ops) -> None:
        """On the owner: reads and writes every byte in device memory."""
        fraction = self.profile["copy.hbm_fraction"]
        for rank, own in self._by_root(ops):
            traffic = fraction.value * self.cluster.capacity[self.hbm[rank]]
            self.sheet.charge(own, [Term(2 * self.program.bytes[own] / traffic, fraction, work=True)])
            self.sheet.demand(own, [self.hbm[rank]], [traffic])

    def reload(self, ops: Ops) -> None:
        """Host work on every tensor, and between it the bytes kept, read and written once.

        These copies are short and far between: their bytes are counted, but they ask too little to be watched.
        """
        kept, fraction = self._shape(ops, 1), self.profile["copy.hbm_fraction"]
        host = [self._host("reload.s"), self._host("reload.tensor_s", self._shape(ops, 0))]
        slowest = fraction.value * min(self.cluster.capacity[self.hbm])
        self.sheet.charge(ops, [*host, Term(2 * kept / slowest, fraction, work=True)])
        everywhere = np.array([len(self.program.places[place].ranks) for place in self._place_of(ops)])
        total = float((2 * kept * everywhere).sum())
        self.sheet.carry(np.array(self.hbm), np.full(len(self.hbm), total / len(self.hbm)))

    def broadcast(self, ops: Ops) -> None:
        """The ring of `collective`; only links that other ops cross are watched, as broadcasts run one at a time."""
        ring, program = self.ring, self.program
        if len(self.world) == 1:
            return  # one rank alone
        island = ring.island_of[np.searchsorted(self.world, program.root[ops])]
        for one in np.unique(island).tolist():
            own = ops[island == one]
            rate, slowest = ring.rate_bytes_per_s(self.capacity, one)
            if self.slowest_hbm[0] / 2 < rate:  # every byte is written where it arrives and read where it goes on
                rate, slowest = self.slowest_hbm[0] / 2, self.slowest_hbm[1]
            seconds = program.bytes[own] / rate
            wire = Term(seconds, self._of_ring(slowest, _ends(program.bytes[own])), work=True)
            self.sheet.charge(own, [self._fixed("broadcast.latency_s"), self._filling(seconds), wire])
            share, size = ring.shares_from(one), float(program.bytes[own].sum())
            watched = self.watched[ring.link] & (share > 0)
            self.sheet.demand(own, ring.link[watched], share[watched] * rate, weight=float(share.max()) * rate)
            self.sheet.carry(ring.link[~watched], share[~watched] * size)
            self.sheet.carry(np.array(self.hbm), np.full(len(self.hbm), 2 * size))

    def _filling(self, seconds: Floats) -> Term:
        """What filling the ring adds to the transfer: both overlap, so their p-norm less the transfer."""
        inside, between = self.ring.hops()
        hop, node_hop = self.profile["broadcast.hop_s"], self.profile["broadcast.node_hop_s"]
        filling = inside * hop.value + between * (node_hop.value + self.ring.latency_s)
        filled = (seconds**_PIPELINE_NORM + filling**_PIPELINE_NORM) ** (1 / _PIPELINE_NORM)
        return Term(filled - seconds, node_hop if between else hop)

    @cached_property
    def watched(self) -> NDArray[np.bool_]:
        """The links that anything but a broadcast loads; asked for when all other kinds are priced."""
        return self.sheet.watched()

    @cached_property
    def slowest_hbm(self) -> tuple[float, int]:
        """What the slowest device memory sustains, and its link."""
        return min((float(self.capacity[link]), link) for link in self.hbm)

    @cached_property
    def world(self) -> tuple[int, ...]:
        """The ranks of the update, which all its collectives span."""
        (world,) = {self.program.groups[group] for group in self.program.group[self.program.of_kind("broadcast")]}
        return world

    @cached_property
    def gathered(self) -> tuple[int, ...]:
        """The ranks that gather metadata: all that own weights."""
        (ranks,) = {self.program.groups[group] for group in self.program.group[self.program.of_kind("gather_metas")]}
        return ranks

    @cached_property
    def ring(self) -> RingBroadcast:
        """The broadcast ring over the world."""
        return ring_broadcast(self.cluster, self.world)

    def _place_of(self, ops: Ops) -> list[int]:
        lanes = self.program.lanes_of
        return [self.program.lanes[lane].place for lane in lanes.values[lanes.start[ops]]]

    def _by_root(self, ops: Ops) -> list[tuple[int, Ops]]:
        roots = self.program.root[ops]
        return [(int(rank), ops[roots == rank]) for rank in np.unique(roots)]

    def _shape(self, ops: Ops, index: int) -> Floats:
        shape = self.program.shape
        return shape.values[shape.start[ops] + index].astype(np.float64)

    def _host(self, name: str, count: NDArray[Any] | float = 1.0) -> Term:
        """Work of a host thread: a slow rank takes longer for it."""
        return Term(count * self.profile.value(name), self.profile[name], work=True)

    def _fixed(self, name: str) -> Term:
        return Term(self.profile.value(name), self.profile[name])

    def _per(self, name: str, count: NDArray[Any] | float) -> Term:
        return Term(count * self.profile.value(name), self.profile[name])

    def _of_ring(self, link: int, size: Floats) -> Parameter:
        """The fraction of the link that bounds a ring: inside an island, or between several."""
        ranks, islands = len(self.world), self.ring.islands
        if self.cluster.links[link].kind == "nic":
            return self._of_link(link, bytes=size, gpus=ranks, nodes=islands)
        return self._of_link(link, bytes=size, gpus=max(ranks // islands, 2))

    def _of_link(self, link: int, **features: object) -> Parameter:
        """What a link sustains, for ops with these features."""
        return self.profile.beyond(f"link_fraction.{self.cluster.links[link].kind}", features)


def _ends(sizes: NDArray[np.int64]) -> Floats:
    """The smallest and the largest: what lies beyond a range shows at its ends."""
    return np.array([sizes.min(), sizes.max()], np.float64)
