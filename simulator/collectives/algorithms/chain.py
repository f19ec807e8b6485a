"""Chains: the root's data goes from rank to rank in pieces, or sums come back to it.

With C pieces a chain takes `(C + N - 2)(a + S/(C*B))`: `S/B + (N-2)*b/B` for pieces of b bytes and no latency
(Thakur et al., IJHPCA 2005). NCCL's broadcast and reduce are such chains along its ring. On islands the
first piece takes each hop once; the others follow it at the pace of the slowest.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from .messages import Algorithm, Chunks, Group, Pairs, Round, Term, fixed


def _rounds(group: Group, *, adds: bool) -> Iterator[Round]:
    """In round t the rank p places from the root sends piece t - p on; or the mirror image of it in time."""
    last = group.pieces + group.ranks - 2
    for t in range(last) if not adds else reversed(range(last)):
        place = np.arange(max(0, t - group.pieces + 1), min(t + 1, group.ranks - 1))
        near, far = (group.root + place) % group.ranks, (group.root + place + 1) % group.ranks
        pairs = Pairs(far, near, striped=True) if adds else Pairs(near, far, striped=True)
        yield Round(pairs, fixed(t - place), adds=adds)


def _chunks(group: Group, *, adds: bool) -> Chunks:
    return Chunks(group.pieces, partial(_rounds, group, adds=adds))


def _terms(group: Group, size: float) -> list[Term]:
    each, between = size / group.pieces, _crossings(group)
    return [
        Term(group.ranks - 1 - between, each, ("inside",)),
        Term(between, each, ("striped",), site_steps=_site_crossings(group)),
        Term(group.pieces - 1, each, group.ring_hops, waits=(0.0,) * len(group.ring_hops)),
    ]


def _crossings(group: Group) -> int:
    """Hops of the chain that lead to another island: it comes back to the root's one if the root is not its first."""
    island = (group.root + group.everyone) % group.ranks // group.near
    return int(np.count_nonzero(np.diff(island)))


def _site_crossings(group: Group) -> int:
    """Hops of the chain that lead to another site."""
    return int(np.count_nonzero(np.diff(group.site_of((group.root + group.everyone) % group.ranks))))


CHAIN_BROADCAST = Algorithm("broadcast", "chain", _terms, partial(_chunks, adds=False), pipelined=True)
CHAIN_REDUCE = Algorithm("reduce", "chain", _terms, partial(_chunks, adds=True), pipelined=True)
