"""How ops on one rank slow each other apart from links: calibrated pairs of classes, and ranks that run slow.

The rule for several at once: the factors multiply. An op that spans ranks takes its slowest one.
"""

import numpy as np

from ..costs import Costs
from ..program import Program


class Disturbance:
    """Counts the active ops per rank and class; `cap(op)` is the speed they leave to an op."""

    def __init__(self, program: Program, costs: Costs):
        self.program, self.costs = program, costs
        self._count = np.zeros((program.ranks, len(costs.classes)), np.int64)
        self._rank_speed = np.ones(program.ranks)
        self._class_of: list[int] = costs.cost_class.tolist()
        self._ranks: dict[int, np.ndarray] = {}

    @staticmethod
    def involved(costs: Costs) -> np.ndarray:
        """Mask of the classes that disturb or are disturbed."""
        return np.asarray((costs.interference != 1).any(axis=0) | (costs.interference != 1).any(axis=1))

    def set_rank_speed(self, rank: int, speed: float) -> None:
        """From now on the rank works at this fraction of its speed."""
        self._rank_speed[rank] = speed

    def like(self, op: int, original: int) -> None:
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
        own = self._class_of[op]
        others = self._count[self.ranks(op)].copy()
        others[:, own] -= 1
        factors = np.prod(self.costs.interference[own] ** others, axis=1)
        return float((factors * self._rank_speed[self.ranks(op)]).min())
