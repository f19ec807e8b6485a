"""What all price functions use: a Program and its machines, rates of links, terms, transfers along routes.

Every form of op has its own price function; `forms` lists them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Floats
from ..base.memo import Memo
from ..base.op_kinds import EXCHANGE, OpKind, op_kind
from ..collectives import CURVES, Choice, Collective, Layout, Machines, Networks, Pricer, pricer
from ..collectives.sites import crossings, largest_site_latency_s
from ..hardware import Cluster, Route, Shares
from ..profile import Parameter, Profile
from ..program import Place, Program
from .costs import Costs
from .sheet import Ops, Prices, Sheet, Term

LAYOUT = "layout"
"""What a Memo calls a Layout: no profile changes it."""


@dataclass(frozen=True)
class Store:
    """A shared file system: its total write and read rates in bytes per second."""

    write_bytes_per_s: float
    read_bytes_per_s: float


@dataclass(frozen=True)
class Pricing:
    """A Program, the cluster (GPU r runs rank r), the profile, and the sheet that price functions fill."""

    program: Program
    cluster: Cluster
    profile: Profile
    store: Store | None = None
    memo: Memo = field(default_factory=Memo)
    actions: Prices | None = None
    places: Sequence[Place] = ()
    choice: Choice = CURVES

    @cached_property
    def machines(self) -> Machines:
        """Kinds of nodes, sustained link rates and positions of ranks; cached by cluster and profile.

        The cached object keeps its profile alive, so the id in the key stays unique.
        """
        key = self.cluster, id(self.profile)
        return self.memo.get("machines", key, lambda: Machines(self.cluster, self.profile))

    @cached_property
    def layout(self) -> Layout:
        """Where the ranks of exchanges are; cached by cluster and stages, and shared by Programs and profiles."""
        key = self.cluster, tuple(place.ranks for place in self.places)
        return self.memo.get(LAYOUT, key, lambda: Layout(self.cluster, self.stage_of))

    @cached_property
    def capacity(self) -> Floats:
        """Sustained bytes per second of every link: the cluster's links, then write and read of the store, if any."""
        own, store = self.machines.capacity, self.store
        return own if store is None else np.append(own, [store.write_bytes_per_s, store.read_bytes_per_s])

    @property
    def networks(self) -> Networks:
        """Corrections from the network that the profile was measured on to the cluster's network."""
        return self.machines.networks

    @property
    def link_names(self) -> tuple[str, ...]:
        """The names of all links, in the order of `capacity`."""
        return self.machines.link_names + (("store<", "store>") if self.store else ())

    @cached_property
    def sheet(self) -> Sheet:
        """The sheet to which price functions write."""
        return Sheet(self.program, self.capacity)

    def costs(self, like: Ops | slice) -> Costs:
        """The finished Costs; op i gets the price of op `like[i]`."""
        return self.sheet.costs(self.profile, self.link_names, like)

    @cached_property
    def hbm(self) -> list[int]:
        """The device-memory link of every GPU."""
        return [self.cluster.hbm(gpu) for gpu in range(self.cluster.n_gpus)]

    def copy_share(self, kind: str) -> float:
        """The rate of copies of this direction ("h2d" or "d2h") over what their links sustain for "h2d"."""
        return self.profile.value_or("copy.d2h_fraction", 1.0) if kind == "d2h" else 1.0

    def host_route(self, kind: str, rank: int) -> Route:
        """The links of a copy between a GPU and its nearest host memory; `kind` is "h2d" or "d2h"."""
        return self.cluster.h2d_route(rank) if kind == "h2d" else self.cluster.d2h_route(rank)

    # Terms

    def host(self, name: str, count: NDArray[Any] | float = 1.0) -> Term:
        """A term of host work: `count` times a parameter in seconds. Slow ranks take longer for it."""
        return Term(count * self.profile.value(name), self.profile[name], work=True)

    def latency_of(self, name: str, count: NDArray[Any] | float = 1.0) -> Term:
        """A term of latency: `count` times a parameter in seconds."""
        return Term(count * self.profile.value(name), self.profile[name])

    def memory_term(self, size_bytes: Floats, of: str = "copy.hbm_fraction") -> Term:
        """A term of traffic in device memory, at the rate of the slowest rank.

        `of` names the share of the peak bandwidth; where nothing is known of it, that of long copies counts.
        """
        fraction = self.profile.parameters.get(of) or self.profile["copy.hbm_fraction"]
        slowest = fraction.value * float(min(self.cluster.capacity[self.hbm]))
        return Term(size_bytes / slowest, fraction, work=True)

    def pass_term(self, size_bytes: Floats, kernel: str) -> Term:
        """A term of traffic in device memory as a kernel of this class moves it, where the profile has measured it."""
        if not self.profile.is_measured(kernel):
            return self.memory_term(size_bytes)
        limits = self.machines.machine_of(0).limits
        found = self.profile.estimate(kernel, {"bytes": np.maximum(size_bytes, 1.0)}, limits=limits)
        most = int(found.seconds.argmax())
        basis = Parameter(1.0, float(found.spread.max()), found.labels()[most], kernel)
        return Term(found.seconds, basis, work=True)

    def sustain(self, link: int, **features: object) -> Parameter:
        """The share of its line rate that a link sustains, for ops with these features."""
        kind = self.cluster.links[link].kind
        found = self.profile.parameter_at(f"link_fraction.{kind}", features)
        return self.networks.nic_share(found) if kind == "nic" else found

    @property
    def one_sided_nic(self) -> Parameter:
        """The share of a NIC's line rate that one-sided reads and writes reach."""
        return self.networks.nic_share(self.profile["rdma.nic_fraction"])

    # What ops say

    def kind_of(self, op: int) -> OpKind:
        """The kind of an op."""
        return op_kind(self.program.kind_of(op))

    def kind(self, ops: Ops) -> OpKind:
        """The kind of these ops, which must all be of one kind."""
        return self.kind_of(int(ops[0]))

    def group(self, op: int) -> tuple[int, ...]:
        """The ranks of an exchange."""
        return self.program.groups[self.program.group[op]]

    @cached_property
    def exchanges(self) -> Pricer:
        """What prices exchanges."""
        return pricer(self.choice, self.machines, self.layout)

    def collective(self, op: int) -> Collective:
        """The exchange that an op is: kind, ranks and bytes."""
        program = self.program
        beyond = program.shape[op]
        size = float(program.bytes[op])
        return Collective(program.kind_of(op), self.group(op), size, float(beyond[0]) if len(beyond) else None)

    def surroundings(self, op: int) -> tuple[int, int]:
        """Two numbers that are equal for groups with the same relative layout.

        The first is for the ranks of an exchange, relative to its first rank. The second is for the stages (ranks that
        act alike at the same time) of its first and last rank.
        """
        return self._relative[self.program.group[op]]

    @cached_property
    def _relative(self) -> list[tuple[int, int]]:
        """The `surroundings` of every group."""
        number: dict[object, int] = {}

        def shape(ranks: Sequence[int]) -> int:
            return number.setdefault(tuple([rank - ranks[0] for rank in ranks]), len(number))

        home = {rank: i for i, place in enumerate(self.places) for rank in place.ranks}
        shapes = [shape(place.ranks) for place in self.places]

        def stage(rank: int, first: int) -> tuple[int, int]:
            at = home.get(rank)
            return (-1, rank - first) if at is None else (shapes[at], self.places[at].ranks[0] - first)

        found = []
        for group in self.program.groups:
            ends = tuple([stage(rank, group[0]) for rank in (*group[:1], *group[-1:])])
            found.append((shape(group), number.setdefault(ends, len(number))))
        return found

    @cached_property
    def stage_of(self) -> Mapping[int, tuple[int, ...]]:
        """For each rank the ranks of its stage, which act alike at the same time."""
        return {rank: place.ranks for place in self.places for rank in place.ranks}

    def ranks(self, op: int) -> tuple[int, ...]:
        """The ranks that an op represents: those of an exchange, else all ranks of its place."""
        if self.kind_of(op).form == EXCHANGE:
            return self.group(op)
        return self.program.places[self.program.lanes[self.program.lanes_of[op][0]].place].ranks

    def shape(self, ops: Ops, index: int) -> Floats:
        """Entry `index` of the shape of each op."""
        shape = self.program.shape
        return shape.values[shape.start[ops] + index].astype(np.float64)

    def bytes(self, ops: Ops) -> Floats:
        """The bytes of each op."""
        return self.program.bytes[ops].astype(np.float64)

    def ranks_at(self, ops: Ops) -> Floats:
        """The number of ranks on which each op runs."""
        sizes = np.array([len(self.program.places[lane.place].ranks) for lane in self.program.lanes])
        lanes = self.program.lanes_of
        return np.array([sizes[lanes[op]].sum() for op in ops], np.float64)

    def group_by_root(self, ops: Ops) -> Iterator[tuple[int, Ops]]:
        """(root rank, ops) for every root."""
        roots = self.program.root[ops]
        yield from ((int(rank), ops[roots == rank]) for rank in np.unique(roots))

    def group_by_ranks(self, ops: Ops) -> Iterator[tuple[tuple[int, ...], Ops]]:
        """(ranks, ops) for every group."""
        groups = self.program.group[ops]
        yield from ((self.program.groups[group], ops[groups == group]) for group in np.unique(groups))

    # Along routes

    def route(
        self,
        ops: Ops,
        routes: Sequence[Shares],
        latency: Sequence[Term],
        rates: Floats,
        basis: Mapping[str, Parameter],
        *,
        trips: int = 1,
    ) -> None:
        """Charge ops that move their bytes along all routes at the same time; the most crowded link sets the rate.

        A route has the share of its bytes on each link.

        `rates` are the sustained rates of links in bytes/s. `basis` replaces the parameter of a kind of link. Ops wait
        `trips` times for the latency of links between sites.
        """
        links, which = np.unique([link for route in routes for link in route], return_inverse=True)
        shares = np.bincount(which, [share for route in routes for share in route.values()])
        per_route = rates[links] / shares
        slowest, rate = int(links[per_route.argmin()]), float(per_route.min())
        size = self.bytes(ops)
        parameter = basis.get(self.cluster.links[slowest].kind) or self.sustain(slowest, bytes=ends(size))
        far = self._site_terms(trips * max(self._site_latency_s(route) for route in routes))
        self.sheet.charge(ops, [*latency, *far, Term(size / rate, parameter, work=True)])
        self.sheet.demand(ops, links, (shares * rate).astype(np.float64))

    def _site_latency_s(self, route: Shares) -> float:
        """Seconds that links between sites add to bytes along a route."""
        far = self.cluster.site_links & route.keys()
        return sum(route[link] * self.cluster.links[link].latency_s for link in far)

    @staticmethod
    def _site_terms(seconds: Floats | float) -> list[Term]:
        return [Term(seconds, Parameter(1.0, 0.0, "exact", "cluster.site_latency"))] if np.any(seconds) else []

    def site_terms(self, kind: str, group: Sequence[int]) -> list[Term]:
        """The latency that links between sites add to an exchange of a group; none if all its ranks are at one."""
        return self.site_terms_each(kind, [group])

    def site_terms_each(self, kind: str, groups: Sequence[Sequence[int]]) -> list[Term]:
        """The same for as many ops as there are groups, or for all ops where there is one."""
        if not self.cluster.site_latency_s.any():
            return []
        far = np.array([largest_site_latency_s(self.cluster, [group]) for group in groups])
        return self._site_terms(crossings(kind) * far)

    def route_own(
        self, ops: Ops, ranks: Ops, routes: Sequence[Route], latency: Sequence[Term], share: float = 1.0
    ) -> None:
        """Charge ops that move their bytes along the route of their own rank; `share` of its slowest link's rate.

        `ranks` is ascending, with a route for each. Routes have equal length and cross no link twice.
        """
        which, links = np.searchsorted(ranks, self.program.root[ops]), np.sort(np.array(routes, np.int64), axis=1)
        narrowest = self.capacity[links].argmin(axis=1)
        slowest = links[np.arange(len(ranks)), narrowest]
        rate, size = share * self.capacity[slowest], self.bytes(ops)
        for parameter, mine in self.group_by_parameter(slowest, which, size, lambda kind: {}):
            seconds = size[mine] / rate[which[mine]]
            self.sheet.charge(ops[mine], [*latency, Term(seconds, parameter, work=True)])
        self.sheet.demand_each(ops, which, links, np.repeat(rate[:, None], links.shape[1], axis=1))

    def group_by_parameter(
        self, links: Ops, which: Ops, size: Floats, features_of: Callable[[str], Mapping[str, int]]
    ) -> Iterator[tuple[Parameter, Ops]]:
        """(sustained share of the line rate, ops) for every kind of link and distance from the measured sizes.

        Op i crosses `links[which[i]]` with `size[i]` bytes. All ops of a link get the distance of the farthest one.
        `features_of` gives the other features of ops on a kind of link.
        """
        kinds = [self.cluster.links[link].kind for link in links.tolist()]
        low, high = np.full(len(links), np.inf), np.zeros(len(links))
        np.minimum.at(low, which, size)
        np.maximum.at(high, which, size)
        for kind in dict.fromkeys(kinds):
            mine = np.flatnonzero([one == kind for one in kinds] & (high > 0))
            if not len(mine):
                continue  # no op crosses these links
            own, sizes = features_of(kind), np.stack([low[mine], high[mine]])
            growth = self.profile.growth_of(f"link_fraction.{kind}", {"bytes": sizes, **own})
            for more in np.unique(growth):
                first = int(mine[growth == more][0])
                found = self.sustain(int(links[first]), bytes=np.array([low[first], high[first]]), **own)
                yield found, np.flatnonzero(np.isin(which, mine[growth == more]))


def ends(sizes: NDArray[Any]) -> Floats:
    """The smallest and the largest size: if any size is outside a range, one of these is."""
    return np.array([sizes.min(), sizes.max()], np.float64)
