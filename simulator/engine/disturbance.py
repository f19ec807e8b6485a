"""How ops on one rank slow each other apart from links: calibrated pairs of classes, and ranks that run slow.

The rule for several at once: the factors multiply. An op that spans ranks takes its slowest one.
"""

import numpy as np
from numpy.typing import NDArray

from ..costs import Costs
from ..program import Program

Floats = NDArray[np.float64]


def aggressors(interference: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`pairs` and `aggressor`: the classes `aggressor[pairs[c]:pairs[c + 1]]` disturb class c."""
    victim, aggressor = np.nonzero(interference != 1)
    pairs = np.concatenate(([0], np.cumsum(np.bincount(victim, minlength=len(interference)))))
    return pairs, np.ascontiguousarray(aggressor)


def powers(interference: Floats, most: int) -> Floats:
    """`[pair, n]`: the speed that n < `most` ops of its aggressor leave to the victim of each pair.

    Multiplied one by one, as the last bits of a library's power differ between machines.
    """
    factors = interference[interference != 1]
    steps = np.repeat(factors[:, None], most, axis=1)
    steps[:, :1] = 1.0
    return np.multiply.accumulate(steps, axis=1)


class Disturbance:
    """Counts the active ops per rank and class; `cap(op)` is the speed they leave to an op."""

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
        """Mask of the classes that disturb or are disturbed."""
        return np.asarray((costs.interference != 1).any(axis=0) | (costs.interference != 1).any(axis=1))

    def set_rank_speed(self, rank: int, speed: float) -> None:
        """From now on the rank works at this fraction of its speed."""
        self._rank_speed[rank] = speed

    def copy(self, op: int, original: int) -> None:
        """A new op, numbered next, is of the class of another one and runs on its ranks."""
        self._class_of.append(self._class_of[original])
        self._ranks[op] = self.ranks(original)

    def ranks(self, op: int) -> np.ndarray:
        """The ranks on which the op runs."""
        if op not in self._ranks:
            self._ranks[op] = np.array(self.program.ranks_of(op), np.int64)
        return self._ranks[op]

    def enter(self, op: int) -> None:
        """The op starts to work."""
        self._count[self.ranks(op), self._class_of[op]] += 1

    def leave(self, op: int) -> None:
        """The op stops working."""
        self._count[self.ranks(op), self._class_of[op]] -= 1

    def cap(self, op: int) -> float:
        """The speed, at most 1, of an active op beside everything else that is active on its ranks."""
        own, count = self._class_of[op], self._count[self.ranks(op)]
        left = np.ones(len(count))
        for pair in range(self._pairs[own], self._pairs[own + 1]):
            other = self._aggressor[pair]
            left *= self._power[pair, count[:, other] - (other == own)]
        return float((left * self._rank_speed[self.ranks(op)]).min())
