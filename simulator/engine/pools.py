"""Pools at run time: slots are taken when an op starts and given back when the releasing op ends. Knows no time."""

from collections import deque

import numpy as np

from ..program import Program, Ragged


class Pools:
    """Free slots and the ops that queue for them, first come first served; an op takes all that it asks for or none."""

    def __init__(self, program: Program):
        self.acquires, self.releases = _filled(program.acquires), _filled(program.releases)
        self._free = [pool.slots for pool in program.pools]
        self._queues: list[deque[int]] = [deque() for _ in program.pools]

    def take(self, op: int) -> bool:
        """Take the op's slots, or queue it for them; whether it has them."""
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
        """Give back the op's slots; the ops that have got theirs by that."""
        served: list[int] = []
        changed = list(self.releases.get(op, ()))
        for pool in changed:
            self._free[pool] += 1
        for pool in changed:  # grows: behind who leaves a queue may stand one whose slots are free
            while self._queues[pool] and self.take(first := self._queues[pool][0]):
                changed += [other for other in self.acquires[first] if other != pool]
                served.append(first)
        return served

    def copy(self, op: int, original: int) -> None:
        """A new op asks for what another one asks for."""
        for table in (self.acquires, self.releases):
            if original in table:
                table[op] = table[original]


def _filled(rows: Ragged) -> dict[int, list[int]]:
    """The rows that hold something."""
    return {int(row): rows[row].tolist() for row in np.flatnonzero(np.diff(rows.start))}
