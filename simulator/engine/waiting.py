"""Who waits for whom: dependencies and lane orders as counts that fall to zero, and the cycle where none does.

Knows no time.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..program import Program, edges

Ints = NDArray[np.int64]


def who_waits(program: Program) -> tuple[Ints, Ints, Ints]:
    """`first`, `successors`, `left`: the ops `successors[first[i]:first[i + 1]]` wait for op i, and it for `left[i]`.

    Those that have it among their dependencies come first, then those behind it on a lane.
    """
    before, after = edges(program)
    order = np.argsort(before, kind="stable")
    first = np.concatenate(([0], np.cumsum(np.bincount(before, minlength=len(program)))))
    return first, after[order], np.bincount(after, minlength=len(program))


class Waiting:
    """For each op, how many ops it still waits for: its dependencies and the op before it on each of its lanes."""

    def __init__(self, program: Program):
        first, successors, left = who_waits(program)
        self._start: list[int] = first.tolist()
        self._successors: list[int] = successors.tolist()
        self._left: list[int] = left.tolist()
        self._added: dict[int, list[int]] = {}

    def free(self) -> list[int]:
        """The ops that wait for nothing."""
        return [op for op, left in enumerate(self._left) if not left]

    def release(self, op: int) -> list[int]:
        """Note that the op has ended; the ops that now wait for nothing, in program order."""
        left, free = self._left, []
        successors = self._successors[self._start[op] : self._start[op + 1]]
        if self._added:
            successors += self._added.pop(op, [])
        for successor in successors:
            left[successor] -= 1
            if not left[successor]:
                free.append(successor)
        return free

    def add(self, op: int, before: Sequence[int]) -> bool:
        """A new op, numbered next, waits for `before`, none of which has ended; whether it waits for nothing."""
        assert op == len(self._left), "ops are numbered in order"
        self._start.append(self._start[-1])
        self._left.append(len(before))
        for one in before:
            self._added.setdefault(one, []).append(op)
        return not before


class DeadlockError(RuntimeError):
    """No event is left but ops are; the message names the cycle, or the op that waits for what never comes."""


def describe(stuck: list[int], waits_for: Callable[[int], tuple[int | None, str]], name: Callable[[int], str]) -> str:
    """Follow the waits from the first stuck op until one repeats, and print that cycle.

    `waits_for(op)` gives the op that blocks it and why, or (None, why) if no op can unblock it.
    """
    path: list[tuple[int, str]] = []
    seen: dict[int, int] = {}
    op: int | None = stuck[0]
    while op is not None and op not in seen:
        seen[op] = len(path)
        blocker, why = waits_for(op)
        path.append((op, why))
        op = blocker
    cycle = path[seen[op] :] if op is not None else path[-1:]
    lines = [f"  {name(one)} {why}" for one, why in cycle]
    title = "deadlock" if op is not None else "an op can never start"
    what = "the cycle is" if op is not None else "the first of them"
    return "\n".join([f"{title}: {len(stuck)} ops cannot run; {what}", *lines])
