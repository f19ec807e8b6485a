"""What ops wait for: other ops, by dependencies and lane orders, and slots of pools; in a deadlock, their cycle.

Nothing here has a clock.
"""

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from ..base.arrays import Ints
from ..program import Program, Ragged, edges


def who_waits(program: Program) -> tuple[Ints, Ints, Ints]:
    """(first, successors, left): the ops `successors[first[i]:first[i + 1]]` wait for op i, and op i for `left[i]` ops.

    Successors by dependency come first, then successors on a lane.
    """
    before, after = edges(program)
    order = np.argsort(before, kind="stable")
    first = np.concatenate(([0], np.cumsum(np.bincount(before, minlength=len(program)))))
    return first, after[order], np.bincount(after, minlength=len(program))


class Waiting:
    """For each op the number of ops for which it still waits: dependencies, and the previous op on each lane."""

    def __init__(self, program: Program):
        first, successors, left = who_waits(program)
        self._start: list[int] = first.tolist()
        self._successors: list[int] = successors.tolist()
        self._left: list[int] = left.tolist()
        self._added: dict[int, list[int]] = {}

    def free(self) -> list[int]:
        """The ops that wait for no other op."""
        return [op for op, left in enumerate(self._left) if not left]

    def release(self, op: int) -> list[int]:
        """Count an op that has ended. Returns the ops that now wait for no other op, in program order."""
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
        """Add a new op with the next number that waits for `before`, none of which has ended.

        Returns whether it waits for no other op.
        """
        assert op == len(self._left), "ops are numbered in order"
        self._start.append(self._start[-1])
        self._left.append(len(before))
        for one in before:
            self._added.setdefault(one, []).append(op)
        return not before


class DeadlockError(RuntimeError):
    """Ops remain but no event does. The message names the cycle, or the op that waits forever."""


def describe(stuck: list[int], waits_for: Callable[[int], tuple[int | None, str]], name: Callable[[int], str]) -> str:
    """Follow the waits from the first stuck op until an op repeats, and describe that cycle.

    `waits_for(op)` returns (the op that blocks it, reason), or (None, reason) if no op can unblock it.
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


class Pools:
    """Free slots and the queues for them, first come, first served. An op takes all its slots or none."""

    def __init__(self, program: Program):
        self.acquires, self.releases = _filled(program.acquires), _filled(program.releases)
        self._free = [pool.slots for pool in program.pools]
        self._queues: list[deque[int]] = [deque() for _ in program.pools]

    def take(self, op: int) -> bool:
        """Take an op's slots, or queue the op. Returns whether it has its slots."""
        needed = self.acquires.get(op)
        if needed is None:
            return True
        ahead = any(self._queues[pool] and self._queues[pool][0] != op for pool in needed)
        if ahead or any(self._free[pool] < needed.count(pool) for pool in needed):
            for pool in dict.fromkeys(needed):
                if op not in self._queues[pool]:
                    self._queues[pool].append(op)
            return False
        for pool in needed:
            self._free[pool] -= 1
        for pool in dict.fromkeys(needed):
            if self._queues[pool]:
                self._queues[pool].popleft()
        return True

    def give(self, op: int) -> list[int]:
        """Give back an op's slots. Returns the queued ops that get their slots now."""
        served: list[int] = []
        changed = list(self.releases.get(op, ()))
        for pool in changed:
            self._free[pool] += 1
        for pool in changed:  # `changed` grows: after an op that leaves a queue, the next one may find its slots free
            while self._queues[pool] and self.take(first := self._queues[pool][0]):
                changed += [other for other in self.acquires[first] if other != pool]
                served.append(first)
        return served

    def copy(self, op: int, original: int) -> None:
        """Add a new op that takes and gives back the same slots as another op."""
        for table in (self.acquires, self.releases):
            if original in table:
                table[op] = table[original]


def _filled(rows: Ragged) -> dict[int, list[int]]:
    """The rows that are not empty."""
    return {int(row): rows[row].tolist() for row in np.flatnonzero(np.diff(rows.start))}
