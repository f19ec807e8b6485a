"""Binomial trees: in each round, every rank that has data sends it to one that has none, or the mirror image of it.

Thakur et al., IJHPCA 2005: broadcast and reduce take `ceil(log2 N)(a + S/B)`; scatter and gather send only what belongs
to the receiver's branch, `ceil(log2 N) a + (N-1)/N*S/B`.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from ...base.arrays import Ints
from .messages import Algorithm, Chunks, Group, Pairs, Round, Term, fixed, powers_of_two


def scatter_rounds(group: Group) -> Iterator[Round]:
    """The root's blocks go to the ranks that own them. Block i belongs to the rank i places after the root."""
    for distance in reversed(powers_of_two(group.ranks)):
        yield _round(group, distance, parts=True)


def gather_rounds(group: Group) -> Iterator[Round]:
    """The mirror image: the blocks that ranks own go to the root."""
    for distance in powers_of_two(group.ranks):
        yield _round(group, distance, parts=True, back=True)


def _pairs(group: Group, distance: int) -> Pairs:
    """From ranks at multiples of twice the distance from the root, so far away from it."""
    place = _places(group, distance)
    return Pairs((group.root + place) % group.ranks, (group.root + place + distance) % group.ranks)


def _places(group: Group, distance: int) -> Ints:
    return np.arange(0, group.ranks - distance, 2 * distance)


def _round(group: Group, distance: int, *, parts: bool, back: bool = False, adds: bool = False) -> Round:
    """The messages of one distance: all or what belongs there, down the tree or back."""
    place, pairs = _places(group, distance), _pairs(group, distance)
    first = place + distance if parts else np.zeros_like(place)
    length = np.minimum(distance, group.ranks - first) if parts else 1
    return Round(Pairs(pairs.dst, pairs.src) if back else pairs, fixed(first), length=length, adds=adds)


def _down(group: Group, *, parts: bool) -> Chunks:
    distances = powers_of_two(group.ranks)[::-1]
    blocks = group.ranks if parts else 1
    return Chunks(blocks, lambda: (_round(group, each, parts=parts) for each in distances))


def _up(group: Group, *, parts: bool) -> Chunks:
    distances = powers_of_two(group.ranks)
    blocks = group.ranks if parts else 1
    return Chunks(blocks, lambda: (_round(group, each, parts=parts, back=True, adds=not parts) for each in distances))


def _whole(group: Group, size: float) -> list[Term]:
    return [_term(group, each, size) for each in powers_of_two(group.ranks)]


def _term(group: Group, distance: int, size: float) -> Term:
    pairs = _pairs(group, distance)
    return Term(1, size, pairs.hops(group), sends=pairs)


def part_terms(group: Group, size: float) -> list[Term]:
    """Of a scatter or gather: the root's messages, one after the other."""
    ranks = group.ranks
    return [_term(group, each, min(each, ranks - each) / ranks * size) for each in powers_of_two(ranks)]


BINOMIAL_BROADCAST = Algorithm("broadcast", "binomial", _whole, partial(_down, parts=False))
BINOMIAL_REDUCE = Algorithm("reduce", "binomial", _whole, partial(_up, parts=False))
BINOMIAL_SCATTER = Algorithm("scatter", "binomial", part_terms, partial(_down, parts=True))
BINOMIAL_GATHER = Algorithm("gather", "binomial", part_terms, partial(_up, parts=True))
