"""Every rank sends to every other: in turn, in pairs, or first inside the island to the rank on the receiver's rail.

nccl-tests doc/PERFORMANCE.md: `(N-1)a + (N-1)/N*S/B`. The hierarchical all-to-all is NCCL's PXN: fewer, larger messages
between islands, for more bytes inside them. A block of an all-to-all is what one rank sends to one other.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from ...base.arrays import Ints
from .messages import Algorithm, Chunks, Group, Pairs, Round, Term, fixed, needs_power_of_two


def _shifts(group: Group) -> Iterator[Ints]:
    """The receivers of each round: first those of the own island, then those of the islands 1, 2, … places further."""
    island, local = np.divmod(group.everyone, group.near)
    for k in range(1, group.ranks):
        islands, places = divmod(k, group.near)
        yield (island + islands) % group.islands * group.near + (local + places) % group.near


def _partners(group: Group) -> Iterator[Ints]:
    """The receivers of each round, which send to their senders at the same time."""
    yield from (group.everyone ^ k for k in range(1, group.ranks))


def _all_to_all(group: Group, receivers: Callable[[Group], Iterator[Ints]]) -> Chunks:
    return _exchange(group, receivers, lambda to: group.everyone * group.ranks + to, buffers=group.ranks)


def _all_gather(group: Group) -> Chunks:
    return _exchange(group, _shifts, lambda _: group.everyone)


def _reduce_scatter(group: Group) -> Chunks:
    return _exchange(group, _shifts, lambda to: to, adds=True)


def _exchange(
    group: Group,
    receivers: Callable[[Group], Iterator[Ints]],
    block: Callable[[Ints], Ints],
    *,
    buffers: int = 1,
    adds: bool = False,
) -> Chunks:
    """Each sends the block of each receiver, which is its own: it waits for nobody."""

    def rounds() -> Iterator[Round]:
        for to in receivers(group):
            yield Round(Pairs(group.everyone, to), fixed(block(to)), adds=adds, writes=1)

    return Chunks(buffers * group.ranks, rounds, buffers, streams=2)


def _passed_on(group: Group) -> Chunks:
    """Inside, each rank collects what goes to its own place of other islands; then places exchange."""
    near, islands, ranks = group.near, group.islands, group.ranks
    island, local = np.divmod(group.everyone, near)

    def rounds() -> Iterator[Round]:
        for k in range(1, near):
            place = (local + k) % near
            pairs = Pairs(group.everyone, island * near + place)
            yield Round(pairs, fixed(group.everyone * ranks + place), length=islands, stride=near)
        for k in range(1, islands):
            there = (island + k) % islands
            first = island * near * ranks + there * near + local
            yield Round(Pairs(group.everyone, there * near + local), fixed(first), length=near, stride=ranks)

    return Chunks(ranks**2, rounds, buffers=ranks)


def _root_and_others(group: Group, *, back: bool) -> Pairs:
    """The root sends to every other rank in turn, or they to it, in the order of their places after the root."""
    others = (group.root + np.arange(1, group.ranks)) % group.ranks
    root = np.full_like(others, group.root)
    return Pairs(others, root, in_turn=True) if back else Pairs(root, others, in_turn=True)


def _to_root(group: Group, *, back: bool) -> Chunks:
    """The root and every other rank in turn. Block i belongs to the rank i places after the root."""

    def rounds() -> Iterator[Round]:
        root = np.array([group.root])
        for place in range(1, group.ranks):
            other = (root + place) % group.ranks
            yield Round(Pairs(other, root) if back else Pairs(root, other), fixed(np.array([place])), writes=1)

    return Chunks(group.ranks, rounds, streams=2)


def _terms(group: Group, size: float) -> list[Term]:
    each = size / group.ranks
    inside = Term(group.near - 1, each, ("inside",))
    return [inside, Term(group.ranks - group.near, each, ("rail",), beside=True, sends="direct")]


def _pairwise_terms(group: Group, size: float) -> list[Term]:
    """Partners of a round lie equally far, so some rounds stay inside sites."""
    inside, between = _terms(group, size)
    sites = np.array(group.sites)
    ways = [sites[np.arange(len(sites)) ^ way] != sites for way in range(len(sites))]
    return [inside, between._replace(site_steps=group.near * sum(bool(way.any()) for way in ways))]


def rooted_terms(group: Group, size: float, *, back: bool) -> list[Term]:
    """Of messages between the root and each other rank in turn, those of ranks at other sites take longer."""
    inside, between = _terms(group, size)
    sends = _root_and_others(group, back=back)
    return [inside, between._replace(sends=sends, site_steps=_ranks_at_other_sites(group))]


def _ranks_at_other_sites(group: Group) -> int:
    """Ranks at other sites than the root's."""
    sites = group.site_of(group.everyone)
    return int(np.count_nonzero(sites != sites[group.root]))


def _passed_on_terms(group: Group, size: float) -> list[Term]:
    between = Term(group.islands - 1, size / group.islands, ("rail",))
    return [Term(group.near - 1, size / group.near, ("inside",)), between]


DIRECT_ALL_TO_ALL = Algorithm("all_to_all", "direct", _terms, partial(_all_to_all, receivers=_shifts))
PAIRWISE = Algorithm(
    "all_to_all", "pairwise", _pairwise_terms, partial(_all_to_all, receivers=_partners), refuses=needs_power_of_two
)
HIERARCHICAL = Algorithm("all_to_all", "hierarchical", _passed_on_terms, _passed_on)
DIRECT_ALL_GATHER = Algorithm("all_gather", "direct", _terms, _all_gather)
DIRECT_REDUCE_SCATTER = Algorithm("reduce_scatter", "direct", _terms, _reduce_scatter)
DIRECT_GATHER = Algorithm("gather", "direct", partial(rooted_terms, back=True), partial(_to_root, back=True))
DIRECT_SCATTER = Algorithm("scatter", "direct", partial(rooted_terms, back=False), partial(_to_root, back=False))
