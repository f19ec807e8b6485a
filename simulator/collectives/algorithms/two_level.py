"""Two levels: reduce-scatter inside each island, all-reduce between ranks of equal place, all-gather inside.

Thakur et al., IJHPCA 2005: the sum of three rings, of which the middle one has `S/G` bytes for islands of G ranks. As
NCCL does, data may go in pieces: while one is exchanged between islands, the next is reduced inside and the one before
is gathered. With times I inside and R between of each of P pieces, ports inside take `P*I`; those between take `P*R`,
after the first reduce-scatter and before the last all-gather: `I + max((P-1)I, P*R)`.
"""

from collections.abc import Iterator

import numpy as np

from .messages import Algorithm, Chunks, Group, Pairs, Round, Term


class Levels:
    """Places of all ranks: their island, and their number in it; in each piece a place has so many `blocks`.

    A piece has a stream of its own: it waits for no other one but at ports.
    """

    def __init__(self, group: Group, blocks: int):
        self.group, self.blocks = group, blocks
        self.island, self.local = np.divmod(group.everyone, group.near)
        self.inside = Pairs(group.everyone, self.island * group.near + (self.local + 1) % group.near)
        self.between = Pairs(group.everyone, (group.everyone + group.near) % group.ranks)

    def reduce_scatter_inside(self, piece: int) -> Round:
        """A ring in each island, of all blocks of a place at a time."""
        return self._ring_inside(piece, -1, adds=True)

    def all_gather_inside(self, piece: int) -> Round:
        """As the reduce-scatter, of results."""
        return self._ring_inside(piece, 0, adds=False)

    def all_reduce_between(self, piece: int) -> Iterator[Round]:
        """Two rings of the ranks of each place, over the blocks that belong to the place."""
        yield self._ring_between(piece, 0, adds=True)
        yield self._ring_between(piece, 1, adds=False)

    def first_block(self, piece: int) -> int:
        """Of a piece."""
        return piece * self.group.near * self.blocks

    def _ring_inside(self, piece: int, begin: int, *, adds: bool) -> Round:
        near, each, first = self.group.near, self.blocks, self.first_block(piece)
        blocks = self.local + begin
        return Round(
            self.inside, lambda k: first + (blocks - k) % near * each, near - 1,
            length=each, adds=adds, reads=piece, writes=piece,
        )  # fmt: skip

    def _ring_between(self, piece: int, begin: int, *, adds: bool) -> Round:
        islands = self.group.islands
        own, blocks = self.first_block(piece) + self.local * islands, self.island + begin
        return Round(
            self.between, lambda k: own + (blocks - k) % islands, islands - 1, adds=adds, reads=piece, writes=piece
        )


def inside_terms(group: Group, size: float) -> list[Term]:
    """What ports inside take: of the first reduce-scatter and the last all-gather, and of all others."""
    steps, each = 2 * (group.near - 1), size / group.near / group.pieces
    return [Term(steps, each, ("inside",)), Term((group.pieces - 1) * steps, each, ("inside",))]


def _chunks(group: Group) -> Chunks:
    levels, pieces = Levels(group, group.islands), group.pieces

    def rounds() -> Iterator[Round]:
        for piece in range(pieces + 2):
            if piece < pieces:
                yield levels.reduce_scatter_inside(piece)
            if 1 <= piece <= pieces:
                yield from levels.all_reduce_between(piece - 1)
            if piece >= 2:
                yield levels.all_gather_inside(piece - 2)

    return Chunks(group.ranks * pieces, rounds, streams=pieces)


def _terms(group: Group, size: float) -> list[Term]:
    steps, each = 2 * (group.islands - 1) * group.pieces, size / group.ranks / group.pieces
    return [*inside_terms(group, size), Term(steps, each, ("rail",), beside=True)]


TWO_LEVEL = Algorithm("all_reduce", "two_level", _terms, _chunks, pipelined=True)
