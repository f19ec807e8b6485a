"""The ops of all actions of a step, as arrays over kind, stage and micro-batch.

For each action they hold its first op and its block. The block says which ops after it wait for the action's input, and
which are its output.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....base.arrays import Ints
from ....schedules import Action, Grid
from ....schedules.grid import BACKWARD, FORWARD, INPUT, KINDS, WEIGHT

_NEEDS = [
    (FORWARD, FORWARD, -1),
    (WEIGHT, INPUT, 0),
    *((kind, *need) for kind in (BACKWARD, INPUT) for need in ((FORWARD, 0), (BACKWARD, 1), (INPUT, 1))),
]
"""(kind, the kind that it waits for, how many stages further on), as `schedules.needs`. A stage has either whole or
split backwards; only the existing ones count."""


class Blocks(NamedTuple):
    """Blocks of ops, one per kind of piece: `heads`, `tails` and `last` op of each, as offsets from its first op.

    Rows are padded with -1.
    """

    heads: Ints  # [blocks, most heads]
    tails: Ints
    last: Ints

    @classmethod
    def build(cls, heads: Sequence[Sequence[int]], tails: Sequence[Sequence[int]], last: Sequence[int]) -> "Blocks":
        """The blocks with these heads, tails and last ops."""
        return cls(_padded(heads), _padded(tails), np.array(last, np.int64))


def _padded(rows: Sequence[Sequence[int]]) -> Ints:
    most = max(map(len, rows), default=0)
    return np.array([[*row, *[-1] * (most - len(row))] for row in rows], np.int64).reshape(len(rows), most)


class ActionOps:
    """The ops of every action of a step.

    `actions` is (index of the kind, stage, micro-batch) of each, `begin` its first op, `block` its index in `blocks`,
    `rank` its pipeline rank, and `send` the op that sends its output, or -1.
    """

    def __init__(self, grid: Grid, actions: Ints, begin: Ints, block: Ints, blocks: Blocks, rank: Ints, send: Ints):
        self._stages, self._blocks = grid.stages, blocks
        shape, at = (len(KINDS), grid.stages, grid.microbatches), tuple(actions.T)
        self._begin, self._block, self._rank, self._send = (np.full(shape, -1) for _ in range(4))
        for table, column in zip(
            (self._begin, self._block, self._rank, self._send), (begin, block, rank, send), strict=True
        ):
            table[at] = column

    def waits(self) -> Iterator[tuple[Ints, Ints]]:
        """(ops, the op for which each waits).

        Sends wait for the tails of their action. Heads wait for the tails of the actions that they need, or for their
        sends.
        """
        tails, sent = self._ops(self._blocks.tails, ..., self._send >= 0), self._send[self._send >= 0]
        yield from ((sent[tail >= 0], tail[tail >= 0]) for tail in tails.T)
        for kind, other, by in _NEEDS:
            stages = slice(max(-by, 0), self._stages - max(by, 0))
            into, since = (KINDS.index(kind), stages), (KINDS.index(other), slice(stages.start + by, stages.stop + by))
            both = (self._begin[into] >= 0) & (self._begin[since] >= 0)
            if not both.any():
                continue
            heads, tails = (
                self._ops(table, one, both) for table, one in ((self._blocks.heads, into), (self._blocks.tails, since))
            )
            if by:
                sent = self._send[since][both][:, None]
                tails = np.where(sent < 0, tails, -1)
                tails = np.concatenate([tails, sent], axis=1)
            for head in heads.T:
                for tail in tails.T:
                    there = (head >= 0) & (tail >= 0)
                    yield head[there], tail[there]

    def _ops(self, table: Ints, at: Any, which: NDArray[np.bool_]) -> Ints:
        """The heads or tails of some actions, padded with -1."""
        begin, relative = self._begin[at][which], table[self._block[at][which]]
        return np.where(relative >= 0, begin[:, None] + relative, -1)

    def forwards(self) -> tuple[Ints, Ints, Ints, Ints]:
        """(first op, last op of its backward, rank, stage) of each forward, in order."""
        split, whole = (self._ends_by(KINDS.index(kind)) for kind in (WEIGHT, BACKWARD))
        stage, microbatch = np.nonzero(self._begin[0] >= 0)
        heads = np.maximum(self._blocks.heads[:, :1], 0).sum(axis=1)
        first, last, rank = (
            column[stage, microbatch]
            for column in (
                self._begin[0] + heads[self._block[0]], np.where(split >= 0, split, whole), self._rank[0]
            )
        )  # fmt: skip
        order = np.argsort(first, kind="stable")
        return first[order], last[order], rank[order], stage[order]

    def _ends_by(self, kind: int) -> Ints:
        """By stage and micro-batch: the last tail (or else the last op) of the action of this kind; -1 if none."""
        tails, last = self._blocks.tails, self._blocks.last
        ends = np.where((tails >= 0).any(axis=1), _last(tails), last)
        return np.where(self._begin[kind] >= 0, self._begin[kind] + ends[self._block[kind]], -1)

    def ends(self, action: Action) -> list[int]:
        """The last op of an action and its tails."""
        at = KINDS.index(action.kind), action.stage, action.microbatch
        block = self._block[at]
        tails = self._blocks.tails[block]
        return (self._begin[at] + np.concatenate([self._blocks.last[block, None], tails[tails >= 0]])).tolist()


def _last(rows: Ints) -> Ints:
    """The last entry of each padded row."""
    many = (rows >= 0).sum(axis=1)
    padded = np.concatenate([np.full((len(rows), 1), -1), rows], axis=1)
    return padded[np.arange(len(rows)), many]
