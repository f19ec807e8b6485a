"""Which op can only start once another has ended: what dependencies and lane orders say, whatever ops take."""

import numpy as np
from numpy.typing import NDArray

from .program import Program

Ints = NDArray[np.int64]


def edges(program: Program) -> tuple[Ints, Ints]:
    """Pairs (before, after) of ops: dependencies first, then neighbours on a lane."""
    lanes, deps = program.order, program.deps
    behind = np.ones(len(lanes.values), bool)
    behind[lanes.start[:-1][lanes.start[:-1] < len(behind)]] = False  # the first op of each lane
    before = np.concatenate([deps.values, lanes.values[:-1][behind[1:]]])
    return before, np.concatenate([deps.row_of_value(), lanes.values[behind]])


def may_overlap(program: Program, chain: Ints) -> NDArray[np.bool_]:
    """Mask of the ops that may run beside some op of `chain`, whose ops follow each other in this order.

    An op cannot, if for some number n it starts after the first n ops of the chain have ended, and ends before the
    next one starts. Where ops are not numbered in the order in which they wait, all may.
    """
    before, after = edges(program)
    if (before >= after).any():
        return np.ones(len(program), bool)
    number = np.full(len(program), -1, np.int64)
    number[chain] = np.arange(len(chain))
    ended = _furthest(before, after, (number + 1).tolist())
    still = _furthest(len(program) - 1 - after, len(program) - 1 - before, _from_end(number, len(chain)))
    return np.array(ended) + np.array(still[::-1]) < len(chain)


def _from_end(number: Ints, length: int) -> list[int]:
    """For each op of a chain, the number of ops from its start to the chain's end; all ops in reverse."""
    found: list[int] = np.where(number >= 0, length - number, 0)[::-1].tolist()
    return found


def _furthest(before: Ints, after: Ints, own: list[int]) -> list[int]:
    """Per op the largest of `own` over all ops that come before it, directly or not."""
    reached = [0] * len(own)
    order = np.argsort(after, kind="stable")
    for a, b in zip(before[order].tolist(), after[order].tolist(), strict=True):
        through = own[a] if own[a] > reached[a] else reached[a]
        if through > reached[b]:
            reached[b] = through
    return reached
