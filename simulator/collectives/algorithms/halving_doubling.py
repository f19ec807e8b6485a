"""Recursive halving and doubling: partners at distances 1, 2, 4, … exchange, so latency grows with log2 N.

Rabenseifner, ICCS 2004; Thakur et al., IJHPCA 2005. With P, the largest power of two of the N ranks, and R = N - P:

    recursive doubling all-reduce   log2 P (a + S/B)
    halving-doubling all-reduce     2 log2 P a + 2(P-1)/P*S/B
    half of it for a reduce-scatter or an all-gather

If R > 0, R ranks first give their data to a neighbour and get the result from it: `2(a + S/B)` more.
"""

from collections.abc import Iterator

import numpy as np

from ...base.arrays import Ints
from .messages import Algorithm, Chunks, Group, Pairs, Round, Term, fixed, needs_power_of_two, powers_of_two


class _Folded:
    """The largest power of two of a group's ranks; the others have given their data to a neighbour."""

    def __init__(self, group: Group):
        self.ranks = 1 << (group.ranks.bit_length() - 1)
        self.rest = group.ranks - self.ranks
        self.number = np.arange(self.ranks)
        self._real = np.concatenate([np.arange(self.rest) * 2 + 1, np.arange(2 * self.rest, group.ranks)])

    def pairs(self, distance: int) -> Pairs:
        """Each with the partner at this distance."""
        return Pairs(self._real, self._real[self.number ^ distance])

    def fold(self, blocks: int) -> Iterator[Round]:
        """Even ones of the first 2R ranks give all they have to the odd ones."""
        if self.rest:
            even = np.arange(self.rest) * 2
            yield Round(Pairs(even, even + 1), fixed(np.zeros_like(even)), length=blocks, adds=True)

    def unfold(self, blocks: int) -> Iterator[Round]:
        """And get the result."""
        if self.rest:
            even = np.arange(self.rest) * 2
            yield Round(Pairs(even + 1, even), fixed(np.zeros_like(even)), length=blocks)


def _doubling_all_reduce(group: Group) -> Chunks:
    folded = _Folded(group)

    def rounds() -> Iterator[Round]:
        yield from folded.fold(1)
        for distance in powers_of_two(folded.ranks):
            yield Round(folded.pairs(distance), fixed(np.zeros_like(folded.number)), adds=True)
        yield from folded.unfold(1)

    return Chunks(1, rounds)


def _halving(folded: _Folded) -> Iterator[Round]:
    """A reduce-scatter: each sends the half of its range that its partner keeps."""
    for distance in reversed(powers_of_two(folded.ranks)):
        first = _range_at(folded.number ^ distance, distance)
        yield Round(folded.pairs(distance), fixed(first), length=distance, adds=True)


def _doubling(folded: _Folded) -> Iterator[Round]:
    """An all-gather: each sends all that it has."""
    for distance in powers_of_two(folded.ranks):
        yield Round(folded.pairs(distance), fixed(_range_at(folded.number, distance)), length=distance)


def _range_at(number: Ints, blocks: int) -> Ints:
    """The first block of the range of so many blocks in which a number lies."""
    return number & ~(blocks - 1)


def _all_reduce(group: Group) -> Chunks:
    folded = _Folded(group)

    def rounds() -> Iterator[Round]:
        yield from folded.fold(folded.ranks)
        yield from _halving(folded)
        yield from _doubling(folded)
        yield from folded.unfold(folded.ranks)

    return Chunks(folded.ranks, rounds)


def _reduce_scatter(group: Group) -> Chunks:
    return Chunks(group.ranks, lambda: _halving(_Folded(group)))


def _all_gather(group: Group) -> Chunks:
    return Chunks(group.ranks, lambda: _doubling(_Folded(group)))


def _fold_terms(group: Group, size: float) -> list[Term]:
    return [Term(2, size, one.pairs.hops(group), sends=one.pairs) for one in _Folded(group).fold(1)]


def _doubling_terms(group: Group, size: float) -> list[Term]:
    folded = _Folded(group)
    return [*(_term(group, folded, each, size) for each in powers_of_two(folded.ranks)), *_fold_terms(group, size)]


def _all_reduce_terms(group: Group, size: float) -> list[Term]:
    halves = [term._replace(steps=2 * term.steps) for term in _half_terms(group, size)]
    return [*halves, *_fold_terms(group, size)]


def _half_terms(group: Group, size: float) -> list[Term]:
    folded = _Folded(group)
    return [_term(group, folded, each, size * each / folded.ranks) for each in powers_of_two(folded.ranks)]


def _term(group: Group, folded: _Folded, distance: int, size: float) -> Term:
    pairs = folded.pairs(distance)
    return Term(1, size, pairs.hops(group), sends=pairs)


def _remainder(group: Group) -> str:
    folded = _Folded(group)
    if not folded.rest:
        return ""
    return f"{folded.rest} of {group.ranks} ranks are beyond a power of two: they give all data to a neighbour first"


RECURSIVE_DOUBLING = Algorithm(
    "all_reduce", "recursive_doubling", _doubling_terms, _doubling_all_reduce, notes=_remainder
)
HALVING_DOUBLING = Algorithm("all_reduce", "halving_doubling", _all_reduce_terms, _all_reduce, notes=_remainder)
RECURSIVE_HALVING = Algorithm(
    "reduce_scatter", "recursive_halving", _half_terms, _reduce_scatter, refuses=needs_power_of_two
)
GATHER_DOUBLING = Algorithm("all_gather", "recursive_doubling", _half_terms, _all_gather, refuses=needs_power_of_two)
