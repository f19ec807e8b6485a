"""From a checked scenario of kind collective to the seconds of each size and algorithm."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np

from ...base.errors import UserError
from ...base.units import format_bytes
from ...collectives import MEASURED, Collective, Layout, Machines, Measured, Price, longest
from ...collectives.algorithms import algorithms
from ...collectives.algorithms.clock import end_s
from ...collectives.algorithms.hops import ClusterNet
from ...collectives.algorithms.messages import Algorithm, Group, Term
from ...collectives.backends import GLOO, MPI, Asked, Backend, Way
from ...collectives.nccl import Nccl
from ...engine import simulate
from ...hardware import cluster_inputs
from ...profile.forms import BUS_FACTOR
from ..machines import ResolvedScenario, content_hash, release, without_route
from ..tables import FOR_PEOPLE
from .draws import draw
from .lower import Exchange, has_more_messages, lower
from .rows import Row, make_row
from .scenario import CollectiveKeys, CollectiveScenario

BACKENDS: Mapping[str, Backend] = {"nccl": Nccl(), "gloo": GLOO, "mpi": MPI}

_SWITCHES = "its switches have no links of their own, which groups could share"
MOST_FLOWS = 2_000_000
"""Messages that share links one by one; more would take a minute."""


@dataclass(frozen=True)
class ResolvedCollective(ResolvedScenario):
    """A collective with what its names stand for; parts are made on first use."""

    scenario: CollectiveScenario

    @property
    def keys(self) -> CollectiveKeys:
        """The table that says which exchange."""
        return self.scenario.collective

    @cached_property
    def gpus(self) -> int:
        """GPUs of all groups."""
        asked, there = self.keys.gpus or self.cluster.n_gpus, self.cluster.n_gpus
        if asked > there:
            raise self._fault("collective.gpus", asked, f"{self.scenario.nodes} nodes have {there} GPUs")
        if asked % self.keys.groups:
            raise self._fault("collective.groups", self.keys.groups, f"expected a divisor of {asked} GPUs")
        if asked < 2 * self.keys.groups:
            key, value = ("gpus", asked) if self.keys.groups == 1 else ("groups", self.keys.groups)
            raise self._fault(
                f"collective.{key}", value, f"expected 2 GPUs or more in a group (all groups have {asked})"
            )
        if self.keys.root >= asked // self.keys.groups:
            allowed = f"there are {asked // self.keys.groups} ranks in a group, numbered from 0"
            raise self._fault("collective.root", self.keys.root, allowed)
        return asked

    @cached_property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """The GPUs of each group."""
        groups, each = self.keys.groups, self.gpus // self.keys.groups
        gpus, place = np.arange(self.gpus), np.arange(self.gpus)
        node = np.repeat(np.arange(self.cluster.n_nodes), self.cluster.gpus_per_node)[: self.gpus]
        if self.keys.placement == "interleaved":
            turn = np.argsort(self._nodes_across_leaves)  # of each node
            gpus = np.argsort(turn[node], kind="stable")
        of = {"packed": place // each, "interleaved": place // each, "scattered": node % groups, "rails": gpus % groups}
        found = tuple(tuple(gpus[of[self.keys.placement] == number].tolist()) for number in range(groups))
        if {len(one) for one in found} != {each}:
            allowed = f"groups of {' and '.join(str(len(one)) for one in found)} GPUs are not equal"
            raise self._fault("collective.placement", self.keys.placement, allowed)
        return found

    @property
    def _nodes_across_leaves(self) -> list[int]:
        """All nodes: the first of each leaf, in order, then the second of each, and so on."""
        under: dict[tuple[str, ...], list[int]] = {}
        for node, leaves in enumerate(self.cluster.network.leaves):
            under.setdefault(leaves[:1], []).append(node)  # with rails, the leaf of the first one
        return [node for row in zip_longest(*under.values()) for node in row if node is not None]

    @property
    def ranks(self) -> tuple[int, ...]:
        """The GPUs of the first group."""
        return self.members[0]

    @cached_property
    def hardware(self) -> Machines:
        """The machines of the cluster, with their profiles."""
        return Machines(self.cluster, self.profile)

    @cached_property
    def loads(self) -> tuple[float, ...]:
        """What each rank receives of an all-to-all-v, up to a factor; empty for other ops."""
        if self.keys.op == self._kind:
            return ()
        given, ranks = self.keys.loads, len(self.ranks)
        if len(given) not in (1, ranks):
            raise self._fault("collective.loads", list(given), f"expected a number, or one for each of {ranks} ranks")
        return given if len(given) == ranks else (*given, *(1.0,) * (ranks - 1))

    @property
    def _kind(self) -> str:
        """The op whose numbers a profile has: an all-to-all-v has those of an all-to-all."""
        return "all_to_all" if self.keys.op == "all_to_all_v" else self.keys.op

    @cached_property
    def nets(self) -> tuple[ClusterNet, ...]:
        """The hops between the ranks of each group."""
        members, loads, hardware = self.members, self.loads, self.hardware
        try:
            nets = tuple(ClusterNet(hardware, ranks, self._kind, loads=loads) for ranks in members)
        except UserError as error:
            given = self.keys.gpus is not None
            key, value = ("collective.gpus", self.gpus) if given else ("nodes", self.scenario.nodes)
            allowed = f"{error}; level measured does not"
            raise self._fault(key, value, allowed) from None
        if nets[0].islands > 1:
            self._check_nics()
        return nets

    def _check_nics(self) -> None:
        """Islands reach each other through NICs alone."""
        try:
            for rank in self.hardware.one_of_each(self.ranks):
                self.cluster.nic_of(rank)
        except UserError as error:
            raise without_route(self.where, error) from None

    @cached_property
    def net(self) -> ClusterNet:
        """Those of the first group, at the rate that links between switches leave it."""
        return self.nets[0].crowded()

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Each size by each algorithm that is asked for; those that cannot be done here are in `refused`."""
        if self.keys.seeds > 1:
            self._check_hashes()
            return draw(self)
        found = [row for size in self.keys.sizes for row in self._rows_of(size)]
        if not any(row.chosen for row in found) and self.backend is not None:
            raise self._fault("collective.backend", self.keys.backend, self._nothing_chosen)
        if not found:
            raise self._fault("collective.algorithm", self.keys.algorithm, "; ".join(self.refused))
        return tuple(found)

    def _check_hashes(self) -> None:
        """Hashes choose among routes."""
        routing = self.cluster.fabric.routing
        if routing == "spray":
            raise self._fault("collective.seeds", self.keys.seeds, f"is for flows that are hashed (routing: {routing})")

    @property
    def _nothing_chosen(self) -> str:
        """Why a library has no way that is asked for."""
        known = dict.fromkeys(f"{way.algorithm} {way.protocol}".strip() for way in self._ways)
        what = ", ".join(known) or "no algorithm that is known here"
        return f"its {self.keys.op} of these ranks and sizes has {what}"

    @cached_property
    def _ways(self) -> tuple[Way, ...]:
        """All that the library could take, for any of the sizes."""
        asked = [self._asked(size) for size in self.keys.sizes] if self.backend is not None else []
        return tuple(way for one in asked for way in BACKENDS[self.keys.backend or ""].ways(one))

    def _asked(self, size: int) -> Asked:
        return Asked(self.keys.op, size, self.net, self.net.group(), self.keys.channels)

    @cached_property
    def chosen(self) -> tuple[Algorithm, ...]:
        """The algorithms that are asked for and can be done by these ranks."""
        if self.keys.level == MEASURED:
            return ()
        return tuple(one for one in self._candidates if not self._refuses(one))

    def _refuses(self, algorithm: Algorithm) -> str:
        """Why these ranks cannot do an algorithm, or nothing is known of groups that do it; empty if they can."""
        group = self.net.group()
        if reason := algorithm.refuses(group):
            return reason
        meet = self.keys.groups > 1 and self.keys.level == "chunks" and group.islands > 1
        return _SWITCHES if meet and algorithm.in_switches else ""

    @property
    def _candidates(self) -> list[Algorithm]:
        name, known = self.keys.algorithm, algorithms(self.keys.op)
        names = known if self.backend is None else {way.algorithm for way in self._ways}
        return [one for one in known.values() if name in ("all", one.name) and one.name in names]

    @cached_property
    def refused(self) -> tuple[str, ...]:
        """Why algorithms that are asked for cannot be done, one line each; at level measured none is asked for."""
        asked = [] if self.keys.level == MEASURED else self._candidates
        lines = [f"{one.name}: {reason}" for one in asked if (reason := self._refuses(one))]
        return (*lines, *self._not_measured)

    @cached_property
    def _not_measured(self) -> tuple[str, ...]:
        """Why the profile has no curve for the op, if so."""
        if self.keys.op != self._kind:
            return ("measured: fitted curves are of ranks that all receive as much",)
        return (f"measured: {self._no_curve}",) if self._no_curve else ()

    @cached_property
    def _no_curve(self) -> str:
        """Why the profile has no numbers of the op; empty if it has."""
        if self._kind not in BUS_FACTOR:
            return f"profiles have no curves of {self._kind}"
        _ = self.hardware, self.members  # what is wrong with machines or groups is no matter of curves
        try:
            self._curve(1)
        except UserError as error:
            return str(error)
        return ""

    @cached_property
    def _curves(self) -> Measured:
        """Fitted curves, while all ranks of the group send at once."""
        return Measured(self.hardware, Layout(self.hardware.cluster, dict.fromkeys(self.ranks, self.ranks)))

    def _curve(self, size: int) -> Price:
        """What the fitted curve says, seen from the slowest rank."""
        whole = Collective(self._kind, self.ranks, size)
        return longest(self._curves.price(whole, rank) for rank in self._unlike)

    @cached_property
    def _unlike(self) -> tuple[int, ...]:
        """A rank of each kind of node and size of island: a small island has few NICs."""
        sizes, alike = Counter(map(self.hardware.island, self.ranks)), defaultdict[int, list[int]](list)
        for rank in self.ranks:
            alike[sizes[self.hardware.island(rank)]].append(rank)
        return tuple(first for ranks in alike.values() for first in self.hardware.one_of_each(tuple(ranks)))

    @property
    def _takes_curve(self) -> bool:
        wanted = self.keys.level == MEASURED or self.keys.algorithm in ("all", MEASURED)
        return wanted and not self._not_measured

    def _rows_of(self, size: int) -> Iterator[Row]:
        if self._takes_curve:
            yield self._measure(size)
        if self.backend is not None:
            yield from self._choices(self.backend, size)
            return
        for algorithm in self.chosen:
            yield self._predict(algorithm, size, self.net)

    @property
    def backend(self) -> Backend | None:
        """The library that chooses."""
        return None if self.keys.backend is None else BACKENDS[self.keys.backend]

    def _choices(self, backend: Backend, size: int) -> Iterator[Row]:
        """Each way of a library that is asked for, and which one it takes of them."""
        asked = self._asked(size)
        ways = [way for way in backend.ways(asked) if self._asks_for(way)]
        chosen = backend.choose(asked, ways) if ways else None
        for way in ways:
            row = self._predict(algorithms(self.keys.op)[way.algorithm], size, self.net.under(way.wire))
            yield replace(row, protocol=way.protocol, channels=way.channels, chosen=way is chosen)

    def _asks_for(self, way: Way) -> bool:
        return self.keys.algorithm in ("all", way.algorithm) and self.keys.protocol in (None, way.protocol)

    def _measure(self, size: int) -> Row:
        """The fitted curve."""
        price = self._curve(size)
        return make_row(size, MEASURED, MEASURED, price.seconds, (price.spread, price.provenance), self.bus_factor)

    def _predict(self, algorithm: Algorithm, size: int, net: ClusterNet) -> Row:
        """The closed form, or every message."""
        group, _, seconds, latency_s = net.formula(algorithm, size, self.keys.root, self.keys.pieces)
        if self.keys.level == "chunks":
            seconds = net.launch_s + self._simulate(algorithm, group, size)
        basis = net.run_by(algorithm).basis(seconds, latency_s, None if self._no_curve else self._curve(size))
        return make_row(size, algorithm.name, self.keys.level, seconds, basis, self.bus_factor, group.pieces, latency_s)

    def _simulate(self, algorithm: Algorithm, group: Group, size: int) -> float:
        """Seconds until the last message of all groups has ended, on links that they share."""
        if not self._shares_links(algorithm, group):
            net = self.net.run_by(algorithm)
            return end_s(algorithm.chunks(group), group, size, net, fold=not self.keys.every_rank)
        exchanges = [Exchange(algorithm.chunks(group), group, size, net.run_by(algorithm)) for net in self.nets]
        return simulate(*lower(self.cluster, self.hardware.capacity, exchanges)).makespan_s

    def _shares_links(self, algorithm: Algorithm, group: Group) -> bool:
        """Whether messages may fill a link that others use, and are few enough to be flows."""
        chunks = algorithm.chunks(group)
        most = MOST_FLOWS // self.keys.groups
        return self._may_fill_links and not chunks.switches and not has_more_messages(chunks.rounds(), most)

    @property
    def _may_fill_links(self) -> bool:
        """Whether there are other groups, or links between switches that carry less than all NICs."""
        return self.keys.groups > 1 or (self.net.islands > 1 and not self.cluster.period)

    def _cut(self, algorithm: Algorithm, size: int) -> Group:
        """The ranks, with the pieces into which an algorithm cuts the data."""
        return self.net.cut(algorithm, size, self.keys.root, self.keys.pieces)

    @cached_property
    def bus_factor(self) -> float:
        """Bus bandwidth over algorithm bandwidth: nccl-tests doc/PERFORMANCE.md; (N-1)/N of a gather or scatter."""
        ranks, of_root = float(len(self.ranks)), self.keys.op in ("gather", "scatter")
        return (ranks - 1) / ranks if of_root else float(BUS_FACTOR[self._kind](np.array([ranks]))[0])

    @cached_property
    def best(self) -> Row:
        """At the largest size what a library chooses, else the fastest; the fitted curve where there is no other."""
        rows = [row for row in self.rows if row.chosen] or self.rows
        return min(rows, key=lambda row: (-row.bytes, row.algorithm == MEASURED, row.seconds))

    @cached_property
    def best_net(self) -> ClusterNet:
        """The hops of the best one, as its library's messages find them."""
        if self.backend is None or self.best.algorithm == MEASURED:
            return self.net
        is_best, ways = (self.best.algorithm, self.best.protocol), self.backend.ways(self._asked(self.best.bytes))
        (way,) = (way for way in ways if (way.algorithm, way.protocol) == is_best)
        return self.net.under(way.wire)

    @cached_property
    def terms(self) -> list[tuple[Term, float]]:
        """The closed form of the best one, each term with its seconds; empty for a fitted curve."""
        found = algorithms(self.keys.op).get(self.best.algorithm)
        if found is None:
            return []
        net, group = self.best_net.run_by(found), replace(self.net.group(self.keys.root), pieces=self.best.pieces)
        return [(term, net.seconds([term])) for term in found.terms(group, self.best.bytes)]

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Assumptions, for the report."""
        unusual = [f"{one.name}: {note}" for one in self.chosen if (note := one.notes(self.net.group()))]
        left_out = [f"left out: {line}" for line in (*self.refused, *self._sizes_left_out)]
        lines = [*self.scenario.notes, *self.cluster.notes, *left_out, *unusual]
        if self.keys.seeds > 1 and all(row.draws_low_s == row.draws_high_s for row in self.rows):
            lines.append("all draws of hashes take as long: no two flows meet on a link that they fill")
        if self.keys.groups > 1 and self.keys.level != "chunks":
            lines.append("groups share links at level chunks only: this is the first group alone")
        elif self._is_crowded:
            lines.append(
                "links between switches carry less than all NICs: formulas of trees and direct exchanges take a mean "
                "share of them; level chunks follows every message"
            )
        if self.keys.groups > 1 and self.keys.level == "chunks" and self._takes_curve:
            lines.append("measured: the curve is of the first group alone")
        if self.keys.level == "chunks" and self.chosen and self._may_fill_links:
            lines += [f"{one.name}: {reason}" for one in self.chosen if (reason := self._alone(one))]
        if self.keys.level == MEASURED and self.keys.algorithm not in ("all", MEASURED):
            lines.append(f"the fitted curve is of what the library chose there, not of {self.keys.algorithm}")
        return tuple(lines)

    @property
    def _sizes_left_out(self) -> tuple[str, ...]:
        """For how many sizes a library has no algorithm."""
        found, sizes = {row.bytes for row in self.rows if row.chosen}, self.keys.sizes
        left = [size for size in sizes if size not in found]
        if self.backend is None or not left:
            return ()
        which = " to ".join(dict.fromkeys(format_bytes(size) for size in (min(left), max(left))))
        many = f"{len(left)} of {len(sizes)} sizes, {which}"
        return (f"{many}: {self.keys.backend} takes no algorithm there that is asked for and known here",)

    @property
    def _is_crowded(self) -> bool:
        """Whether closed forms share links between switches that carry less than all NICs."""
        has_forms = self.keys.level == "formula" and bool(self.chosen)
        return has_forms and self.net.islands > 1 and not self.cluster.network.is_even

    def _alone(self, algorithm: Algorithm) -> str:
        """Why an algorithm's messages share no links although they might; empty if they do."""
        group = self._cut(algorithm, max(self.keys.sizes))
        if algorithm.chunks(group).switches:
            return "its switches have no links of their own: as if links were shared by none"
        if self._shares_links(algorithm, group):
            return ""
        return f"more than {MOST_FLOWS:,} messages: as if links were shared by none"

    @cached_property
    def hash(self) -> str:
        """The hash of everything that the prediction depends on, runcast's release included."""
        said = self.scenario
        content = {
            "scenario": said.model_dump(mode="json", exclude=_unhashed(said.collective)),
            "profile": self.profile.to_json(),
            "cluster": cluster_inputs(said.cluster, said.nodes, self.where),
            "adds": [*(node.nvls for node in dict.fromkeys(self.cluster.nodes)), self.cluster.fabric.sharp],
            "version": release(),
        }
        return content_hash(content)[:16]


def _unhashed(keys: CollectiveKeys) -> dict[str, Any]:
    """Keys that no prediction depends on, and those that the hash has otherwise; one draw is none, no job too."""
    names = dict.fromkeys((*FOR_PEOPLE, "cluster", "profile", "stack"), True)
    unsaid = {key for key, said in (("seeds", keys.seeds > 1), ("jobs", keys.jobs)) if not said}
    return names | ({"collective": unsaid} if unsaid else {})
