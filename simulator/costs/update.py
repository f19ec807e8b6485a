"""Cost models of the ops of a weight update, one function per kind: what it takes alone and which links it loads.

Forms: copies and broadcasts are latency + bytes / rate (Hockney), the rate being that of the slowest link on the way;
a reload is host work per tensor, then the bytes kept through device memory (systems study 1.3); host ops are constants
and counts. Every number comes from the profile and the stack.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..hardware import Cluster
from ..profile import Parameter, Profile
from ..program import Program
from .collective import ring_broadcast
from .costs import Costs, Floats
from .sheet import Ops, Sheet, Term

_PIPELINE_NORM = 4  # latency and bandwidth overlap in a long ring: p-norm with p about 4 (costs study, section 3)


def cost_update(program: Program, cluster: Cluster, profile: Profile) -> Costs:
    """The costs of an update Program whose rank r runs on GPU r of the cluster; `profile` holds device and software."""
    pricer = _Pricer(program, cluster, profile)
    for kind in sorted(program.kinds, key=lambda kind: kind == "broadcast"):  # broadcasts last: see `_Pricer.broadcast`
        ops = np.flatnonzero(program.of_kind(kind))
        getattr(pricer, kind)(ops)
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

    def gather_metas(self, ops: Ops) -> None:
        self.sheet.charge(ops, [self._per("gather.tensor_s", self._shape(ops, 0))])

    def init_group(self, ops: Ops) -> None:
        self.sheet.charge(ops, [self._fixed("init_group.s"), self._per("init_group.rank_s", self._shape(ops, 0))])

    def allocate(self, ops: Ops) -> None:
        sizes = self.program.bytes[ops]
        planning = self._per("allocate.tensor_s", self._shape(ops, 0))
        self.sheet.charge(ops, [planning, self._per("allocate.byte_s", sizes)])

    def open_handle(self, ops: Ops) -> None:
        self.sheet.charge(ops, [self._fixed("open_handle.s")])

    def wait_worker(self, ops: Ops) -> None:
        self.sheet.charge(ops, [self._fixed("wait_worker.s")])

    def sync(self, ops: Ops) -> None:
        self.sheet.charge(ops, [self._fixed("sync.s")])

    def send_meta(self, ops: Ops) -> None:
        self.sheet.charge(ops, [self._fixed("send_meta.s"), self._per("send_meta.tensor_s", self._shape(ops, 0))])

    def drop_handle(self, ops: Ops) -> None:
        self.sheet.charge(ops, [self._fixed("drop_handle.s")])

    def free_buffers(self, ops: Ops) -> None:
        self.sheet.charge(ops, [self._fixed("free_buffers.s")])

    def post_hook(self, ops: Ops) -> None:
        dtype = self.program.dtypes[self.program.dtype[ops[0]]]
        self.sheet.charge(ops, [self._fixed("post_hook.fp8_s" if dtype == "fp8" else "post_hook.bf16_s")])

    def barrier(self, ops: Ops) -> None:
        self.sheet.charge(ops, [self._fixed("barrier.s")])

    def destroy_group(self, ops: Ops) -> None:
        self.sheet.charge(ops, [self._fixed("destroy_group.s")])

    def agree(self, ops: Ops) -> None:
        doublings = np.log2(self.cluster.n_nodes)
        self.sheet.charge(ops, [self._fixed("agree.latency_s"), self._per("agree.doubling_s", doublings)])

    def h2d(self, ops: Ops) -> None:
        """The owner's route from its nearest host memory; its slowest link gives the rate."""
        for rank, own in self._by_root(ops):
            route = self.cluster.h2d_route(rank)
            slowest = min(route, key=lambda link: self.capacity[link])
            rate = self.capacity[slowest]
            work = Term(self.program.bytes[own] / rate, self._of_link(slowest), work=True)
            self.sheet.charge(own, [self._fixed("h2d.latency_s"), work])
            self.sheet.demand(own, [*route, self.hbm[rank]], [rate] * (len(route) + 1))

    def copy(self, ops: Ops) -> None:
        """On the owner: reads and writes every byte in device memory."""
        for rank, own in self._by_root(ops):
            self._through_hbm(own, self.program.bytes[own], (rank,), [])

    def reload(self, ops: Ops) -> None:
        """Host work on every tensor, then the bytes kept are read and written."""
        host = [self._fixed("reload.s"), self._per("reload.tensor_s", self._shape(ops, 0))]
        lanes = self.program.lanes_of
        place = np.array([self.program.lanes[lane].place for lane in lanes.values[lanes.start[ops]]])
        for one in np.unique(place):
            own, pick = ops[place == one], place == one
            terms = [Term(np.broadcast_to(term.seconds, ops.shape)[pick], term.parameter) for term in host]
            self._through_hbm(own, self._shape(own, 1), self.program.places[one].ranks, terms)

    def broadcast(self, ops: Ops) -> None:
        """The ring of `collective`; only links that other ops cross are watched, as broadcasts run one at a time."""
        ranks = self.program.groups[self.program.group[ops[0]]]
        ring = ring_broadcast(self.cluster, ranks)
        rate = ring.rate_bytes_per_s(self.capacity)
        slowest = int(ring.link[(self.capacity[ring.link] / ring.limit).argmin()]) if len(ring.link) else 0
        seconds = self.program.bytes[ops] / rate
        inside, between = ring.hops()
        hop, node_hop = self.profile["broadcast.hop_s"], self.profile["broadcast.node_hop_s"]
        filling = inside * hop.value + between * node_hop.value
        filled = (seconds**_PIPELINE_NORM + filling**_PIPELINE_NORM) ** (1 / _PIPELINE_NORM) - seconds
        fill = Term(filled, node_hop if between else hop)
        self.sheet.charge(
            ops, [self._fixed("broadcast.latency_s"), fill, Term(seconds, self._of_link(slowest), work=True)]
        )
        if not len(ring.link):
            return  # one rank alone
        watched = self.sheet.watched()
        hbm = np.array([self.hbm[rank] for rank in ranks], np.int64)
        island = ring.island_of[np.searchsorted(ranks, self.program.root[ops])]
        for one in np.unique(island):
            own = ops[island == one]
            links, shares = ring.shares_from(int(np.flatnonzero(ring.island_of == one)[0]))
            sizes = float(self.program.bytes[own].sum())
            seen = watched[links]
            self.sheet.carry(links[~seen], shares[~seen] * sizes)
            rates = np.concatenate([shares[seen] * rate, np.full(len(hbm), 2 * rate)])
            widest = float(shares.max())  # device memory is no part of the stream's share
            self.sheet.demand(own, np.concatenate([links[seen], hbm]), rates, weight=widest * rate)

    def _through_hbm(self, ops: Ops, sizes_bytes: NDArray[Any], ranks: tuple[int, ...], terms: list[Term]) -> None:
        fraction = self.profile["copy.hbm_fraction"]
        links = [self.hbm[rank] for rank in ranks]
        traffic = fraction.value * min(self.cluster.capacity[link] for link in links)
        self.sheet.charge(ops, [*terms, Term(2 * sizes_bytes / traffic, fraction, work=True)])
        self.sheet.demand(ops, links, [traffic] * len(links))

    def _by_root(self, ops: Ops) -> list[tuple[int, Ops]]:
        roots = self.program.root[ops]
        return [(int(rank), ops[roots == rank]) for rank in np.unique(roots)]

    def _shape(self, ops: Ops, index: int) -> Floats:
        shape = self.program.shape
        return shape.values[shape.start[ops] + index].astype(np.float64)

    def _fixed(self, name: str) -> Term:
        return Term(self.profile.value(name), self.profile[name])

    def _per(self, name: str, count: NDArray[Any] | float) -> Term:
        return Term(count * self.profile.value(name), self.profile[name])

    def _of_link(self, link: int) -> Parameter:
        name = f"link_fraction.{self.cluster.links[link].kind}"
        return self.profile.parameters.get(name) or Parameter(1.0, 0.1, "datasheet", "the line rate of the catalogue")
