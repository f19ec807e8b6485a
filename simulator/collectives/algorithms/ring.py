"""Rings: each rank sends to the next one, as many steps as it takes for every block to go round.

Patarasuk and Yuan, JPDC 2009: an all-reduce takes `2(N-1)a + 2(N-1)/N*S/B`, of which a reduce-scatter and an all-gather
are half each. A step takes as long as the slowest hop.
"""

from functools import partial

from .messages import Algorithm, Chunks, Group, Pairs, Round, Term


def next_ranks(group: Group) -> Pairs:
    """Each rank sends to the next."""
    return Pairs(group.everyone, (group.everyone + 1) % group.ranks, striped=True)


def ring_round(group: Group, begin: int, *, adds: bool) -> Round:
    """N - 1 steps of a ring, in which rank r sends block `r + begin` first and then those before it."""
    blocks = group.everyone + begin
    return Round(next_ranks(group), lambda k: (blocks - k) % group.ranks, group.ranks - 1, adds=adds)


def _all_reduce(group: Group) -> Chunks:
    return Chunks(group.ranks, lambda: iter((ring_round(group, 0, adds=True), ring_round(group, 1, adds=False))))


def _once(group: Group, begin: int, *, adds: bool) -> Chunks:
    return Chunks(group.ranks, lambda: iter((ring_round(group, begin, adds=adds),)))


def _terms(times: int, group: Group, size: float) -> list[Term]:
    waits = group.ring_waits(times)
    return [Term(times * (group.ranks - 1), size / group.ranks, group.ring_hops, waits=waits)]


RING_ALL_REDUCE = Algorithm("all_reduce", "ring", partial(_terms, 2), _all_reduce)
RING_REDUCE_SCATTER = Algorithm("reduce_scatter", "ring", partial(_terms, 1), partial(_once, begin=-1, adds=True))
RING_ALL_GATHER = Algorithm("all_gather", "ring", partial(_terms, 1), partial(_once, begin=0, adds=False))
