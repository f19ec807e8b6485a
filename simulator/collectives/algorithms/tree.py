"""A double binary tree: sums go up two trees, each with half of the data, and results come down again.

Sanders et al., Parallel Computing 35 (2009): `2 log2(N) a + 2S/B` for small pieces, since a rank that has children in
one tree is a leaf of the other, so that it sends and receives twice its data. Colours of two make this exact: messages
of a colour take every second step, and no port has two of them. As NCCL does, the trees join islands; inside an island
data goes along a chain.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from ...base.arrays import Ints
from .clock import Hop, IslandNet, end_s
from .messages import Algorithm, Chunks, Group, HopKind, Pairs, Round, Term, fixed

_FEW = (3, 4)
"""Pieces of each tree, after which each further one takes as long as the one before."""

_BOTH: tuple[HopKind, HopKind] = ("inside", "striped")


@dataclass(frozen=True, eq=False)
class _Trees:
    """Edges of both trees from child to parent, and the step in which each takes the first piece up."""

    islands: int
    near: int

    @cached_property
    def child(self) -> Ints:
        """The lower rank of each edge; those of the first tree come first."""
        return np.array([edge[0] for edge in self._edges])

    @cached_property
    def parent(self) -> Ints:
        """The upper rank of each edge."""
        return np.array([edge[1] for edge in self._edges])

    @cached_property
    def tree(self) -> Ints:
        """0 or 1."""
        return np.arange(len(self._edges)) // (len(self._edges) // 2)

    @cached_property
    def begin(self) -> Ints:
        """An edge's first step: after those of the edges below it, and of its colour."""
        begin = np.zeros(len(self._edges), np.int64)
        below: dict[tuple[int, int], int] = defaultdict(lambda: -1)
        for edge in self._upwards:
            child, parent, tree = *self._edges[edge], int(self.tree[edge])
            first = below[child, tree] + 1
            begin[edge] = first + (first + self._colours[edge]) % 2
            below[parent, tree] = max(below[parent, tree], int(begin[edge]))
        return begin

    @cached_property
    def _edges(self) -> list[tuple[int, int]]:
        chain = [(i * self.near + k, i * self.near + k - 1) for i in range(self.islands) for k in range(1, self.near)]
        heads = [[(a * self.near, b * self.near) for a, b in tree] for tree in _two_trees(self.islands)]
        return [*chain, *heads[0], *chain, *heads[1]]

    @property
    def _upwards(self) -> list[int]:
        """Edges in an order in which those below come first."""
        above = {(child, int(tree)): parent for (child, parent), tree in zip(self._edges, self.tree, strict=True)}

        def depth(edge: int) -> int:
            at, tree, steps = self._edges[edge][1], int(self.tree[edge]), 0
            while (at, tree) in above:
                at, steps = above[at, tree], steps + 1
            return -steps

        return sorted(range(len(self._edges)), key=depth)

    @cached_property
    def _colours(self) -> list[int]:
        """0 or 1 for each edge, so that edges of one port differ: at most two share one, so they form lines, rings."""
        ports: dict[tuple[str, int, bool], list[int]] = defaultdict(list)
        for edge, (child, parent) in enumerate(self._edges):
            beyond = child // self.near != parent // self.near
            ports["send", child, beyond].append(edge)
            ports["receive", parent, beyond].append(edge)
        beside = defaultdict(list)
        for a, b in (port for port in ports.values() if len(port) == 2):
            beside[a].append(b)
            beside[b].append(a)
        colours: dict[int, int] = {}
        for start in range(len(self._edges)):
            todo = [(start, 0)]
            while todo:
                edge, colour = todo.pop()
                if edge not in colours:
                    colours[edge] = colour
                    todo += [(other, 1 - colour) for other in beside[edge]]
        return [colours[edge] for edge in range(len(self._edges))]


def _two_trees(ranks: int) -> list[list[tuple[int, int]]]:
    """(child, parent) of two trees: whoever has two children in one is a leaf of the other.

    The second is the first one read from behind, or for odd numbers of ranks moved on by one.
    """
    one = [(rank, _parent(rank, ranks)) for rank in range(1, ranks)]
    other = [(ranks - 1 - a, ranks - 1 - b) if ranks % 2 == 0 else ((a + 1) % ranks, (b + 1) % ranks) for a, b in one]
    return [one, other]


def _parent(rank: int, ranks: int) -> int:
    """In the tree in which a rank lies as high as its lowest bit; 0 is above all."""
    bit = rank & -rank
    above = (rank ^ bit) | (bit << 1)
    return above if above < ranks else rank ^ bit


@lru_cache(maxsize=32)
def _trees(islands: int, near: int) -> _Trees:
    return _Trees(islands, near)


def _pieces(group: Group) -> int:
    """Of each tree."""
    return max(group.pieces // 2, 1)


class _Steps(IslandNet):
    """A network on which a step inside an island, between islands, and to another site takes 1 second or none."""

    def __init__(self, group: Group, inside: int, between: int, site: int):
        self.islands, self.near = group.islands, group.near
        self._seconds = {"inside": inside, "striped": between}
        if site:
            self.sites, self.site_latency_s = group.sites, 1 - np.eye(1 + max(group.sites, default=0))

    @property
    def kinds(self) -> Mapping[HopKind, Hop]:
        """As `IslandNet`."""
        return {hop: Hop(float(self._seconds[hop]), float("inf")) for hop in _BOTH}


@lru_cache(maxsize=256)
def _steps(group: Group, inside: int = 1, between: int = 1, site: int = 0) -> int:
    """Steps of the longest way through all pieces: those of a few pieces, and as many again for each further one.

    Steps inside an island, or between islands, are counted so many times; those to another site so many times more.
    """
    if _pieces(group) <= _FEW[1]:
        return round(end_s(_chunks(group), group, 1.0, _Steps(group, inside, between, site)))
    few = replace(group, pieces=2 * _FEW[1])
    return _steps(few, inside, between, site) + (_pieces(group) - _FEW[1]) * _pace(group, inside, between, site)


def _pace(group: Group, inside: int = 1, between: int = 1, site: int = 0) -> int:
    """Steps of each further piece."""
    few, more = (_steps(replace(group, pieces=2 * count), inside, between, site) for count in _FEW)
    return more - few


def _site_steps(group: Group) -> int:
    """Steps to another site on the longest way."""
    return _steps(group, inside=0, between=0, site=1) if group.sites else 0


def _chunks(group: Group) -> Chunks:
    trees, pieces = _trees(group.islands, group.near), _pieces(group)
    last = int(trees.begin.max()) + 2 * pieces - 1

    def messages(step: int, *, up: bool) -> Round:
        piece, wait = np.divmod(step - trees.begin, 2)
        now = (wait == 0) & (piece >= 0) & (piece < pieces)
        child, parent = trees.child[now], trees.parent[now]
        pairs = Pairs(child, parent, striped=True) if up else Pairs(parent, child, striped=True)
        return Round(pairs, fixed(trees.tree[now] * pieces + piece[now]), adds=up)

    def rounds() -> Iterator[Round]:
        yield from (messages(step, up=True) for step in range(last))
        yield from (messages(step, up=False) for step in reversed(range(last)))

    return Chunks(2 * pieces, rounds)


def _terms(group: Group, size: float) -> list[Term]:
    """The way of a first piece, up and down, and then the other pieces, which each port takes as often as it must.

    If messages under way hold no port, it waits for no colour: up and down a chain and log2 of the islands.
    """
    each, alone = size / (2 * _pieces(group)), replace(group, pieces=2)
    first, between = _steps(alone), _steps(alone, inside=0)
    pace = {"inside": _pace(group, between=0), "striped": _pace(group, inside=0)}
    most, trees = max(pace.values()), _trees(group.islands, group.near)
    site_steps = _site_steps(alone)
    up = Pairs(trees.child, trees.parent, striped=True)
    return [
        Term(first - between, each, ("inside",), waits=(2.0 * (group.near - 1),)),
        Term(
            between,
            each,
            ("striped",),
            sends=up,
            waits=(2.0 * (group.islands - 1).bit_length(),),
            site_steps=site_steps,
        ),
        Term(
            _steps(group) - first,
            each,
            _BOTH,
            shares=tuple(pace[hop] / most for hop in _BOTH),
            sends=up,
            waits=(0.0, 0.0),
            site_steps=_site_steps(group) - site_steps,
        ),
    ]


TREE = Algorithm("all_reduce", "tree", _terms, _chunks, pipelined=True)
