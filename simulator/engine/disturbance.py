"""Interference of ops on one rank, apart from links: calibrated factors for pairs of classes, and slow ranks.

Several factors multiply. An op over several ranks runs at the speed of its slowest rank.
"""

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Floats
from ..costs import Costs
from ..program import Program


def aggressors(interference: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`pairs` and `aggressor`: the classes `aggressor[pairs[c]:pairs[c + 1]]` disturb class c."""
    victim, aggressor = np.nonzero(interference != 1)
    pairs = np.concatenate(([0], np.cumsum(np.bincount(victim, minlength=len(interference)))))
    return pairs, np.ascontiguousarray(aggressor)


def powers(interference: Floats, most: int) -> Floats:
    """`[pair, n]`: the speed of the victim of each pair beside n < `most` ops of its aggressor.

    Factors are multiplied one by one, because the last bits of a library's power differ between machines.
    """
    factors = interference[interference != 1]
    steps = np.repeat(factors[:, None], most, axis=1)
    steps[:, :1] = 1.0
    return np.multiply.accumulate(steps, axis=1)


class Disturbance:
    """Counts the active ops per rank and class; `cap(op)` is the highest speed that they allow an op."""

    def __init__(self, program: Program, costs: Costs):
        self.program, self.costs = program, costs
        self._count = np.zeros((program.ranks, len(costs.classes)), np.int64)
        self._rank_speed = np.ones(program.ranks)
        self._class_of: list[int] = costs.cost_class.tolist()
        self._ranks: dict[int, np.ndarray] = {}
        self._pairs, self._aggressor = aggressors(costs.interference)
        self._power = powers(costs.interference, len(program.lanes) + 1)

    @staticmethod
    def disturbing_classes(costs: Costs) -> np.ndarray:
        """A mask of the classes that disturb other classes or are disturbed."""
        return np.asarray((costs.interference != 1).any(axis=0) | (costs.interference != 1).any(axis=1))

    def set_rank_speed(self, rank: int, speed: float) -> None:
        """Let a rank work at this fraction of its speed from now on."""
        self._rank_speed[rank] = speed

    def copy(self, op: int, original: int) -> None:
        """Add a new op with the next number, with the class and the ranks of another op."""
        self._class_of.append(self._class_of[original])
        self._ranks[op] = self.ranks(original)

    def ranks(self, op: int) -> np.ndarray:
        """The ranks on which the op runs."""
        if op not in self._ranks:
            self._ranks[op] = np.array(self.program.ranks_of(op), np.int64)
        return self._ranks[op]

    def enter(self, op: int) -> None:
        """Count an op that starts to work."""
        self._count[self.ranks(op), self._class_of[op]] += 1

    def leave(self, op: int) -> None:
        """Count an op that stops working."""
        self._count[self.ranks(op), self._class_of[op]] -= 1

    def cap(self, op: int) -> float:
        """The highest speed (at most 1) of an active op beside all other active ops on its ranks."""
        own, count = self._class_of[op], self._count[self.ranks(op)]
        left = np.ones(len(count))
        for pair in range(self._pairs[own], self._pairs[own + 1]):
            other = self._aggressor[pair]
            left *= self._power[pair, count[:, other] - (other == own)]
        return float((left * self._rank_speed[self.ranks(op)]).min())
