"""Pools at run time: an op takes slots when it starts, and the releasing op gives them back when it ends. No clock."""

from collections import deque

import numpy as np

from ..program import Program, Ragged


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
