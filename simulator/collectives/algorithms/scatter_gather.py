"""A broadcast of large data: scatter it, then gather it everywhere round a ring (Thakur et al., IJHPCA 2005: ~2S/B).

Or by recursive doubling, as MPICH does for messages of medium size: `2 log2 N a + 2(N-1)/N*S/B`. Its mirror image is a
reduce by recursive halving and a gather (Rabenseifner, ICCS 2004). Gloo's reduce scatters the sums round a ring; then
each rank sends its own to the root, which takes one after the other: `2(N-1)(a + S/(N*B))`.
"""

from collections.abc import Iterator

import numpy as np

from .binomial import gather_rounds, part_terms, scatter_rounds
from .direct import rooted_terms
from .messages import Algorithm, Chunks, Group, Pairs, Round, Term, fixed, needs_power_of_two, powers_of_two
from .ring import ring_round


def _chunks(group: Group) -> Chunks:
    """Block i belongs to the rank i places after the root."""

    def rounds() -> Iterator[Round]:
        yield from scatter_rounds(group)
        yield ring_round(group, -group.root, adds=False)

    return Chunks(group.ranks, rounds)


def _terms(group: Group, size: float) -> list[Term]:
    return [*part_terms(group, size), Term(group.ranks - 1, size / group.ranks, group.ring_hops)]


def _partners(group: Group, distance: int) -> Pairs:
    """By their places after the root."""
    place = np.arange(group.ranks)
    return Pairs((group.root + place) % group.ranks, (group.root + (place ^ distance)) % group.ranks)


def _doubling(group: Group) -> Chunks:
    def rounds() -> Iterator[Round]:
        yield from scatter_rounds(group)
        for distance in powers_of_two(group.ranks):
            own = np.arange(group.ranks) & ~(distance - 1)
            yield Round(_partners(group, distance), fixed(own), length=distance)

    return Chunks(group.ranks, rounds)


def _doubling_terms(group: Group, size: float) -> list[Term]:
    exchanged = [(each, _partners(group, each)) for each in powers_of_two(group.ranks)]
    gather = [Term(1, size * each / group.ranks, pairs.hops(group), sends=pairs) for each, pairs in exchanged]
    return [*part_terms(group, size), *gather]


def _halving(group: Group) -> Chunks:
    def rounds() -> Iterator[Round]:
        for distance in reversed(powers_of_two(group.ranks)):
            kept = (np.arange(group.ranks) ^ distance) & ~(distance - 1)
            yield Round(_partners(group, distance), fixed(kept), length=distance, adds=True)
        yield from gather_rounds(group)

    return Chunks(group.ranks, rounds)


def _ring_and_gather(group: Group) -> Chunks:
    """Block i belongs to rank i."""

    def rounds() -> Iterator[Round]:
        yield ring_round(group, -1, adds=True)
        for place in range(1, group.ranks):
            other = np.array([(group.root + place) % group.ranks])
            yield Round(Pairs(other, np.array([group.root])), fixed(other))

    return Chunks(group.ranks, rounds)


def _ring_and_gather_terms(group: Group, size: float) -> list[Term]:
    return [Term(group.ranks - 1, size / group.ranks, group.ring_hops), *rooted_terms(group, size, back=True)]


HALVING_GATHER = Algorithm("reduce", "halving_gather", _doubling_terms, _halving, refuses=needs_power_of_two)
RING_GATHER = Algorithm("reduce", "ring_gather", _ring_and_gather_terms, _ring_and_gather)
SCATTER_DOUBLING = Algorithm("broadcast", "scatter_doubling", _doubling_terms, _doubling, refuses=needs_power_of_two)
SCATTER_ALL_GATHER = Algorithm("broadcast", "scatter_all_gather", _terms, _chunks)
