"""Exchanges of updates by algorithms that a scenario names: their closed forms, on the links of all their ranks.

What is not named streams round NCCL's ring (`ring`, `transfer`). A closed form says the time of an op alone; the links
of its messages carry their bytes evenly over it, so that it shares them with what runs beside it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Floats
from ..base.errors import Fault, UserError
from ..collectives import Collective, Measured, Price, longest
from ..collectives.algorithms import algorithms
from ..collectives.algorithms.hops import ClusterNet
from ..collectives.algorithms.uneven import net_of
from ..collectives.algorithms.ways import Ways, link_bytes
from ..profile import PROVENANCE, Parameter
from .pricing import Pricing
from .sheet import Ops, Term


class Named:
    """An op's algorithm among some ranks; where several groups do it at once, each of them."""

    def __init__(self, pricing: Pricing, op: str, groups: Sequence[tuple[int, ...]]):
        self._pricing, self._op = pricing, op
        self._algorithm = algorithm = algorithms(op)[dict(pricing.choice)[op]]
        stage = tuple(rank for group in groups for rank in group)
        try:
            self._nets = [net_of(pricing.machines, group, op, stage) for group in groups]
        except UserError as error:
            raise self._fault(str(error)) from None
        if reason := next(filter(None, (algorithm.refuses(net.group()) for net in self._nets)), ""):
            raise self._fault(reason)
        self._ways = Ways(pricing.cluster)

    def _fault(self, reason: str) -> UserError:
        key, name = f"collectives.{self._op}", self._algorithm.name
        return UserError(Fault(f"{key} = {name!r}: {reason}", key, name, reason))

    def terms(self, size: float, root: int | None = None, *, links: bool = True) -> list[Term]:
        """Its latency, and the work of its bytes: at least what the fullest link needs, even if latencies hide it."""
        at = 0 if root is None else self._nets[0].ranks.index(root)
        forms = [net.formula(self._algorithm, size, at) for net in self._nets]
        slowest = max(range(len(forms)), key=lambda number: forms[number].seconds)
        needed_s = size * self._fullest_s(root) if links else 0.0
        seconds = max(forms[slowest].seconds, needed_s)
        latency_s = min(forms[slowest].latency_s, seconds - needed_s)
        parameter = self._basis(self._nets[slowest], size, latency_s, seconds)
        return [Term(latency_s, parameter), Term(seconds - latency_s, parameter, work=True)]

    def share(self, root: int | None = None) -> Floats:
        """Bytes on each link of the cluster for each byte of the op."""
        cluster, ranks = self._pricing.cluster, tuple(net.ranks for net in self._nets)
        key = cluster, self._op, self._algorithm.name, ranks, root
        return self._pricing.memo.get("bytes of messages", key, lambda: self._find_share(root))

    def _find_share(self, root: int | None) -> Floats:
        groups = [(net, net.group(0 if root is None else net.ranks.index(root))) for net in self._nets]
        moved = (link_bytes(self._algorithm.chunks(group), 1.0, net, self._ways) for net, group in groups)
        return np.sum(list(moved), axis=0)

    def _fullest_s(self, root: int | None) -> float:
        """Seconds that the fullest link needs for each byte of the op."""
        return float((self.share(root) / self._pricing.machines.capacity).max())

    def _basis(self, net: ClusterNet, size: float, latency_s: float, seconds: float) -> Parameter:
        """One number whose spread, as that of both parts of the time, is the spread of the whole."""
        spread, provenance = net.run_by(self._algorithm).basis(seconds, latency_s, self._curve(net, size))
        parts = float(np.hypot(latency_s, seconds - latency_s))
        apart = spread * seconds / parts if parts else spread
        return Parameter(1.0, apart, PROVENANCE[provenance], f"{self._op} by {self._algorithm.name}")

    def _curve(self, net: ClusterNet, size: float) -> Price | None:
        """What the fitted curve says; None if the profile has none."""
        pricing = self._pricing
        whole, curves = Collective(self._op, net.ranks, size), Measured(pricing.machines, pricing.layout)
        try:
            return longest(curves.price(whole, rank) for rank in pricing.machines.one_of_each(net.ranks))
        except UserError:
            return None


def is_named(pricing: Pricing, op: str) -> bool:
    """Whether a scenario names the algorithm of an op."""
    return op in dict(pricing.choice)


def charge_broadcasts(
    pricing: Pricing, ops: Ops, group: tuple[int, ...], before: Sequence[Term], only: NDArray[np.bool_]
) -> None:
    """Charge broadcasts of a group by the named algorithm; launches of further messages are `before`."""
    named = Named(pricing, "broadcast", [group])
    for root, own in pricing.group_by_root(ops):
        at = np.isin(ops, own)
        _charge_sizes(pricing, own, named, [term.take(np.flatnonzero(at)) for term in before], only, root)
    memories = np.array(pricing.hbm)[list(group)]
    pricing.sheet.carry(memories, np.full(len(memories), 2 * float(pricing.bytes(ops).sum())))


def charge_gathers(pricing: Pricing, ops: Ops, ranks: tuple[int, ...], each: int, before: Sequence[Term]) -> None:
    """Charge all-gathers of each `each` of the ranks, all at the same time, by the named algorithm."""
    groups = [ranks[first : first + each] for first in range(0, len(ranks), each)]
    only = np.ones(len(pricing.cluster.links), bool)
    _charge_sizes(pricing, ops, Named(pricing, "all_gather", groups), before, only)
    memories = np.array(pricing.hbm)[list(ranks)]
    pricing.sheet.carry(memories, np.full(len(memories), 2 * float(pricing.bytes(ops).sum())))


def _charge_sizes(
    pricing: Pricing, ops: Ops, named: Named, before: Sequence[Term], only: NDArray[np.bool_], root: int | None = None
) -> None:
    """Charge ops size by size; links that are not in `only` can have no other traffic at the same time."""
    sizes, share = pricing.bytes(ops), named.share(root)
    watched, unwatched = (np.flatnonzero((share > 0) & mask[: len(share)]) for mask in (only, ~only))
    for size in np.unique(sizes).tolist():
        at = np.flatnonzero(sizes == size)
        own = named.terms(size, root)
        pricing.sheet.charge(ops[at], [*(term.take(at) for term in before), *own])
        if len(watched) and (work := float(own[-1].seconds)):
            pricing.sheet.demand(ops[at], watched, share[watched] * size / work)
    pricing.sheet.carry(unwatched, share[unwatched] * float(sizes.sum()))


def agreement(pricing: Pricing, group: tuple[int, ...], size: float) -> list[Term]:
    """What an all-reduce of a few bytes takes by the named algorithm, as latency: it asks too little of links."""
    named = Named(pricing, "all_reduce", [group])
    return [Term(term.seconds, term.parameter) for term in named.terms(size, links=False)]
