"""Which ops the actions of a step are, by whole arrays over kind, stage and micro-batch.

An action begins at an op, and as its block says which ops from there on wait for its input and which are its output.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from ....schedules import Action, Grid
from ....schedules.grid import BACKWARD, FORWARD, INPUT, KINDS, WEIGHT
from .piece import Ints

_NEEDS = [
    (FORWARD, FORWARD, -1),
    (WEIGHT, INPUT, 0),
    *((kind, *need) for kind in (BACKWARD, INPUT) for need in ((FORWARD, 0), (BACKWARD, 1), (INPUT, 1))),
]
"""What each kind waits for (`schedules.needs`), and how many stages further on: of a backward that is whole or
split, the one that is there."""

At = tuple[int, int, int | Ints]  # number of the kind, stage, micro-batch or micro-batches


class ActionOps:
    """The ops of every action that has been written."""

    def __init__(self, grid: Grid):
        self._stages, shape = grid.stages, (len(KINDS), grid.stages, grid.microbatches)
        self._begin, self._block, self._send, self._rank = (np.full(shape, -1) for _ in range(4))
        self._blocks: dict[tuple[tuple[int, ...], tuple[int, ...], int], int] = {}

    def put(
        self, at: At, begin: int | Ints, heads: Sequence[int], tails: Sequence[int], last: int, rank: int,
        send: int | Ints = -1,
    ) -> None:  # fmt: skip
        """Actions begin at these ops; heads, tails and the last one count from there. `send` sends their output."""
        block = tuple(heads), tuple(tails), last
        self._begin[at], self._send[at], self._rank[at] = begin, send, rank
        self._block[at] = self._blocks.setdefault(block, len(self._blocks))

    def waits(self) -> Iterator[tuple[Ints, Ints]]:
        """Ops, and what each waits for: heads of actions for tails of those that they need, or for their sends."""
        blocks = list(self._blocks)
        for kind, other, by in _NEEDS:
            stages = slice(max(-by, 0), self._stages - max(by, 0))
            into, since = (KINDS.index(kind), stages), (KINDS.index(other), slice(stages.start + by, stages.stop + by))
            both = (self._begin[into] >= 0) & (self._begin[since] >= 0)
            begin, block = self._begin[into][both], self._block[into][both]
            ended, tails_of, sent = (one[since][both] for one in (self._begin, self._block, self._send))
            tails_of = np.where((sent >= 0) & (by != 0), -1, tails_of)
            for own, source, alike in _alike(block, tails_of, len(blocks)):
                after = sent[alike][:, None] if source < 0 else ended[alike][:, None] + np.array(blocks[source][1], int)
                for head in blocks[own][0]:
                    yield np.repeat(begin[alike] + head, after.shape[1]), after.ravel()

    def forwards(self) -> tuple[Ints, Ints, Ints, Ints]:
        """In their order: the first op of each forward, the last of its backward, its rank and its stage."""
        split, whole = (self._ends_by(KINDS.index(kind)) for kind in (WEIGHT, BACKWARD))
        stage, microbatch = np.nonzero(self._begin[0] >= 0)
        heads = np.array([(heads or (0,))[0] for heads, _, _ in self._blocks])[self._block[0]]
        first, last, rank = (
            column[stage, microbatch]
            for column in (self._begin[0] + heads, np.where(split >= 0, split, whole), self._rank[0])
        )
        order = np.argsort(first, kind="stable")
        return first[order], last[order], rank[order], stage[order]

    def _ends_by(self, kind: int) -> Ints:
        """By stage and micro-batch, the last tail of an action of a kind, or its last op; -1 if there is none."""
        ends = np.array([(tails or (last,))[-1] for _, tails, last in self._blocks])
        return np.where(self._begin[kind] >= 0, self._begin[kind] + ends[self._block[kind]], -1)

    def ends(self, action: Action) -> list[int]:
        """The last op of an action, and those that are its output."""
        at = KINDS.index(action.kind), action.stage, action.microbatch
        _, tails, last = list(self._blocks)[self._block[at]]
        return [int(self._begin[at]) + op for op in (last, *tails)]


def _alike(one: Ints, other: Ints, most: int) -> Iterator[tuple[int, int, Ints]]:
    """Pairs of values, -1 to `most`, and where they stand."""
    if not len(one):
        return
    key = one * (most + 1) + other + 1
    order = np.argsort(key, kind="stable")
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    for alike in np.split(order, cuts):
        yield int(one[alike[0]]), int(other[alike[0]]), alike
