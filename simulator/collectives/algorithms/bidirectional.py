"""Rings in both directions: half of the data goes to the next rank, the other half to the one before, at the same time.

Each half goes as Patarasuk and Yuan's ring does (`ring`), with `2(N-1)` steps of `S/2N` bytes. Where each direction has
a link of its own, as on a torus, the bytes take half as long as round one ring. Where both share a port to a switch, a
message has half of its rate, and they take as long as one ring: `2(N-1)a + 2(N-1)/N*S/B` for an all-reduce.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from .messages import Algorithm, Chunks, Group, Pairs, Round, Term


def _pairs(group: Group, way: int) -> Pairs:
    """Each rank sends to the next one, or to the one before."""
    to = (group.everyone + (-1 if way else 1)) % group.ranks
    return Pairs(group.everyone, to, striped=True, ways=2, way=way)


def _round(group: Group, way: int, begin: int, *, adds: bool) -> Round:
    """N - 1 steps of one direction, which has each second block; the other one is its mirror image."""
    towards, blocks = (-1 if way else 1), group.everyone + (-begin if way else begin)
    return Round(
        _pairs(group, way), lambda k: (blocks - towards * k) % group.ranks * 2 + way, group.ranks - 1,
        adds=adds, reads=way, writes=way,
    )  # fmt: skip


def _chunks(group: Group, *, halves: tuple[tuple[int, bool], ...]) -> Chunks:
    """The halves of an all-reduce: the block with which a rank begins, and whether receivers add."""

    def rounds() -> Iterator[Round]:
        for way in range(2):
            for begin, adds in halves:
                yield _round(group, way, begin, adds=adds)

    return Chunks(2 * group.ranks, rounds, streams=2, ways=2)


def _terms(times: int, group: Group, size: float) -> list[Term]:
    """As a ring: what goes both ways shares a port, but not the links beyond it."""
    both = [_pairs(group, way) for way in range(2)]
    src, dst = (np.concatenate([getattr(one, end) for one in both]) for end in ("src", "dst"))
    sends = Pairs(src, dst, striped=True)
    steps, waits = times * (group.ranks - 1), group.ring_waits(times)
    return [Term(steps, size / group.ranks, group.ring_hops, sends=sends, waits=waits)]


_NAME = "bidirectional_ring"
BOTH_ALL_REDUCE = Algorithm("all_reduce", _NAME, partial(_terms, 2), partial(_chunks, halves=((0, True), (1, False))))
BOTH_REDUCE_SCATTER = Algorithm("reduce_scatter", _NAME, partial(_terms, 1), partial(_chunks, halves=((-1, True),)))
BOTH_ALL_GATHER = Algorithm("all_gather", _NAME, partial(_terms, 1), partial(_chunks, halves=((0, False),)))
