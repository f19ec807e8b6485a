"""Two levels: reduce-scatter inside each island, all-reduce between ranks of equal place, all-gather inside.

Thakur et al., IJHPCA 2005: the sum of three rings, of which the middle one has `S/G` bytes for islands of G ranks.
"""

from collections.abc import Iterator

import numpy as np

from .messages import Algorithm, Chunks, Group, Pairs, Round, Term


class Levels:
    """Places of all ranks: their island, and their number in it; each place has so many `blocks`."""

    def __init__(self, group: Group, blocks: int):
        self.group, self.blocks = group, blocks
        self.island, self.local = np.divmod(group.everyone, group.near)
        self.inside = Pairs(group.everyone, self.island * group.near + (self.local + 1) % group.near)
        self.between = Pairs(group.everyone, (group.everyone + group.near) % group.ranks)

    def ring_inside(self, begin: int, *, adds: bool) -> Round:
        """A ring in each island, of all blocks of a place at a time."""
        near, each = self.group.near, self.blocks
        blocks = self.local + begin
        return Round(self.inside, lambda k: (blocks - k) % near * each, near - 1, length=each, adds=adds)

    def ring_between(self, begin: int, *, adds: bool) -> Round:
        """A ring of the ranks of each place, over the blocks that belong to the place."""
        islands, own = self.group.islands, self.local * self.group.islands
        blocks = self.island + begin
        return Round(self.between, lambda k: own + (blocks - k) % islands, islands - 1, adds=adds)


def _chunks(group: Group) -> Chunks:
    levels = Levels(group, group.islands)

    def rounds() -> Iterator[Round]:
        yield levels.ring_inside(-1, adds=True)
        yield levels.ring_between(0, adds=True)
        yield levels.ring_between(1, adds=False)
        yield levels.ring_inside(0, adds=False)

    return Chunks(group.ranks, rounds)


def _terms(group: Group, size: float) -> list[Term]:
    share = size / group.near
    inside, between = (
        Term(group.near - 1, share, ("inside",)),
        Term(group.islands - 1, share / group.islands, ("rail",)),
    )
    return [inside, between._replace(steps=2 * between.steps), inside]


TWO_LEVEL = Algorithm("all_reduce", "two_level", _terms, _chunks)
