"""In-network reduction: switches add what ranks send, and send the sum to all of them.

Graham et al., COMHPC 2016 (SHARP): `S/B + a`, as each rank sends and receives its data once. Data goes in pieces: a
switch sends the sum of one while it receives the next. Between islands, ranks of equal place add their shards, after a
reduce-scatter and before an all-gather inside, which go on beside it (`two_level`); switches above each other count as
one.

NVLS, inside an NVSwitch domain, takes the sums through the GPUs: each reads its own Nth of them (`multimem.ld_reduce`,
for which the switch reads all N GPUs: NCCL issue 828) and stores it to all (`multimem.st`). NCCL issue 1506 gives both
halves: S in one direction, S/N in the other. So every port carries `S(N+1)/N` each way, the "N+1 sends, N+1 receives"
of NVIDIA's Hot Chips 34 talk on NVSwitch (nccl-tests issue 238).
"""

from collections.abc import Callable, Iterator

import numpy as np

from ...base.arrays import Ints
from .messages import Algorithm, Chunks, Group, Pairs, Round, Term, fixed
from .two_level import Levels, inside_terms


def _nvls(group: Group) -> Chunks:
    """One switch, which all ranks reach. Streams: data, each rank's own sums, all sums."""
    ranks, pieces = group.ranks, group.pieces
    switch = np.full(ranks, ranks)
    up, down = Pairs(group.everyone, switch), Pairs(switch, group.everyone)

    def whole(piece: int) -> Callable[[int], Ints]:
        return fixed(np.full(ranks, piece * ranks))

    def own(piece: int) -> Callable[[int], Ints]:
        return fixed(group.everyone + piece * ranks)

    def rounds() -> Iterator[Round]:
        for piece in range(pieces + 1):
            before = piece - 1
            if piece < pieces:
                yield Round(up, whole(piece), length=ranks, adds=True)
            if piece:
                yield Round(up, own(before), reads=1, writes=1)
            if piece < pieces:
                yield Round(down, own(piece), writes=1)
            if piece:
                yield Round(down, whole(before), length=ranks, reads=1, writes=2)

    return Chunks(pieces * ranks, rounds, streams=3, switches=1)


def _sharp(group: Group) -> Chunks:
    """A switch for each place, which adds what the ranks of that place have after a reduce-scatter inside."""
    levels, pieces = Levels(group, 1), group.pieces
    switch = group.ranks + levels.local
    up, down = Pairs(group.everyone, switch), Pairs(switch, group.everyone)

    def between(pairs: Pairs, piece: int, *, adds: bool = False) -> Round:
        block = fixed(levels.first_block(piece) + levels.local)
        return Round(pairs, block, adds=adds, reads=piece, writes=piece)

    def rounds() -> Iterator[Round]:
        for piece in range(pieces + 3):
            if piece < pieces:
                yield levels.reduce_scatter_inside(piece)
            if 1 <= piece <= pieces:
                yield between(up, piece - 1, adds=True)
            if 2 <= piece <= pieces + 1:
                yield between(down, piece - 2)
            if piece >= 3:
                yield levels.all_gather_inside(piece - 3)

    return Chunks(group.near * pieces, rounds, streams=pieces, switches=group.near)


def _nvls_terms(group: Group, size: float) -> list[Term]:
    """A piece and the sums of the one before share a port; one piece alone waits for its sums on both ways."""
    each = size / group.pieces
    whole, own = (2, 2) if group.pieces == 1 else (group.pieces + 2, group.pieces - 1)
    return [Term(whole, each, ("inside",)), Term(own, each / group.ranks, ("inside",))]


def _sharp_terms(group: Group, size: float) -> list[Term]:
    between = Term(group.pieces + 1, size / group.near / group.pieces, ("rail",), beside=True)
    return [*inside_terms(group, size), between]


def _no_nvls(group: Group) -> str:
    if group.islands > 1:
        return f"NVLS adds inside one NVSwitch domain (given: ranks of {group.islands} such domains)"
    return "" if group.nvls else "needs an NVSwitch that adds (nvls = true in the cluster)"


def _no_sharp(group: Group) -> str:
    if group.islands == 1:
        return "SHARP adds between nodes (given: ranks of one)"
    return "" if group.sharp else "needs a fabric of InfiniBand switches that add (sharp = true in the cluster)"


NVLS = Algorithm("all_reduce", "nvls", _nvls_terms, _nvls, refuses=_no_nvls, pipelined=True, in_switches=True)
SHARP = Algorithm("all_reduce", "sharp", _sharp_terms, _sharp, refuses=_no_sharp, pipelined=True, in_switches=True)
