"""Bruck's algorithms, for any number of ranks: ceil(log2 N) rounds, in which data goes 1, 2, 4, … ranks on.

Bruck et al., IEEE TPDS 1997; Thakur et al., IJHPCA 2005. An all-gather takes `ceil(log2 N) a + (N-1)/N*S/B`: each sends
all that it has to the rank so far before it. An all-to-all takes `log2 N (a + S/2B)`: a block that has o ranks to go
travels in the rounds of the bits of o, so that it is sent again and again.
"""

from collections.abc import Iterator

import numpy as np

from ...base.arrays import Ints
from .messages import Algorithm, Chunks, Group, Pairs, Round, Term, listed, powers_of_two


def _pairs(group: Group, distance: int) -> Pairs:
    return Pairs(group.everyone, (group.everyone + distance) % group.ranks)


def _gathered(group: Group, distance: int) -> Ints:
    """The blocks that ranks send: as many as the distance, from their own on; in the last round those that are left."""
    many = min(distance, group.ranks - distance)
    return (group.everyone[:, None] + np.arange(many)) % group.ranks


def _to_go(group: Group, distance: int) -> Ints:
    """The ways of blocks, in ranks, that have the bit of a distance."""
    ways = np.arange(group.ranks)
    return ways[ways & distance != 0]


def _sent(group: Group, distance: int) -> Ints:
    """The blocks that ranks send: they have come by the lower bits of their way."""
    ways = _to_go(group, distance)
    source = (group.everyone[:, None] - (ways & (distance - 1))) % group.ranks
    return source * group.ranks + (source + ways) % group.ranks


def _all_gather(group: Group) -> Chunks:
    def rounds() -> Iterator[Round]:
        for distance in powers_of_two(group.ranks):
            yield listed(_pairs(group, -distance), _gathered(group, distance))

    return Chunks(group.ranks, rounds)


def _all_to_all(group: Group) -> Chunks:
    def rounds() -> Iterator[Round]:
        for distance in powers_of_two(group.ranks):
            yield listed(_pairs(group, distance), _sent(group, distance))

    return Chunks(group.ranks**2, rounds, buffers=group.ranks)


def _gather_terms(group: Group, size: float) -> list[Term]:
    each = [(distance, min(distance, group.ranks - distance)) for distance in powers_of_two(group.ranks)]
    return [_term(group, -distance, many, size) for distance, many in each]


def _exchange_terms(group: Group, size: float) -> list[Term]:
    each = [(distance, len(_to_go(group, distance))) for distance in powers_of_two(group.ranks)]
    return [_term(group, distance, many, size) for distance, many in each]


def _term(group: Group, distance: int, many: int, size: float) -> Term:
    pairs = _pairs(group, distance)
    return Term(1, size * many / group.ranks, pairs.hops(group), sends=pairs)


BRUCK_ALL_GATHER = Algorithm("all_gather", "bruck", _gather_terms, _all_gather)
BRUCK_ALL_TO_ALL = Algorithm("all_to_all", "bruck", _exchange_terms, _all_to_all)
