"""The ranks of a run that is under way: how fast they are now, which nodes are missing, and which are spare."""

from collections.abc import Iterable
from dataclasses import replace
from heapq import heappop, heappush
from math import inf

import numpy as np
from numpy.typing import NDArray

from ....base.arrays import Floats
from ..speed import Crew, Speed
from .elastic import Elastic


class Ranks:
    """Ranks in the order of nodes and workers; `crew` are those that train now."""

    def __init__(self, crew: Crew, workers: int, nodes: int, spares: int, speed: Speed, elastic: Elastic | None):
        self._start, self._all, self._nodes, self._speed, self._elastic = crew, workers, nodes, speed, elastic
        self._at_start = crew.balanced().shares if speed.balance != "even" else None
        self._free, self._returns = spares, list[float]()
        self.turned: dict[int, float] = {}
        self.gaps: set[int] = set()
        self._size = self._missing()
        self.unbalanced = False
        self._refresh()

    # Speeds

    def turn(self, rank: int, factor: float) -> None:
        """From now on a rank takes this many times longer than at the start; 1: it is as it was."""
        self.turned.pop(rank, None)
        if factor != 1:
            self.turned[rank] = factor
        self.unbalanced = self._speed.balance == "dynamic"
        self._refresh()

    def renew(self, node: int) -> None:
        """A failed node is replaced or restarted: its ranks are as fast as at the start."""
        for rank in [rank for rank in self.turned if self.node_of(rank) == node]:
            self.turn(rank, 1.0)

    @property
    def first_node(self) -> int:
        """The first node that is there; 0 if none is."""
        return next((node for node in range(self._nodes) if node not in self.gaps), 0)

    def rank_of(self, node: int) -> int:
        """The first rank of a node."""
        return node * self._start.ranks // self._nodes

    def node_of(self, rank: int) -> int:
        """The (first) node of a rank."""
        return rank * self._nodes // self._start.ranks

    # Nodes that are missing

    def send_away(self, node: int, until_s: float) -> None:
        """A node is away until then; its place is a gap."""
        self.gaps.add(node)
        heappush(self._returns, until_s)
        self._refresh()

    def fill(self, now_s: float) -> None:
        """Spare nodes, and those that have returned, fill gaps."""
        while self._returns and self._returns[0] <= now_s:
            heappop(self._returns)
            self._free += 1
        while self._free and self.gaps:
            self.gaps.remove(min(self.gaps))
            self._free -= 1
        self._refresh()

    @property
    def next_return_s(self) -> float:
        """When the next node is repaired; never, if none is away."""
        return self._returns[0] if self._returns else inf

    @property
    def can_go_on(self) -> bool:
        """Whether what is there can train."""
        if not self.gaps:
            return True
        if self._elastic is None:
            return False
        if self._elastic.mode == "drop":
            return self.workers >= self._elastic.least
        return max(self._missing().values()) < self._nodes // self._all

    def is_needed(self, node: int) -> bool:
        """Whether training stands without a node that is there: not if all its workers have left, and others train."""
        idle = self._drops and not set(self._workers_of(node)).isdisjoint(self._missing())
        return not (idle and self.can_go_on)

    @property
    def is_resized(self) -> bool:
        """Whether the number or size of workers is another one than when they were settled before."""
        return self._size != self._missing()

    def settle(self) -> None:
        """The job has taken the workers that there are now."""
        self._size = self._missing()

    @property
    def workers(self) -> int:
        """Workers that train now."""
        return self._all - (len(self._missing()) if self._drops else 0)

    @property
    def fed(self) -> int:
        """Of how many workers samples are trained on in a step."""
        return self._all if self._elastic is None or self._elastic.batch == "fixed" else self.workers

    @property
    def _drops(self) -> bool:
        return self._elastic is not None and self._elastic.mode == "drop"

    def _missing(self) -> dict[int, int]:
        """Missing nodes of each worker that misses any."""
        found: dict[int, int] = {}
        for node in self.gaps:
            for worker in self._workers_of(node):
                found[worker] = found.get(worker, 0) + 1
        return found

    def _workers_of(self, node: int) -> Iterable[int]:
        """The worker of a node, or all of them that share it."""
        first = node * self._all // self._nodes
        return range(first, max((node + 1) * self._all // self._nodes, first + 1))

    def _refresh(self) -> None:
        """Make the crew anew."""
        speeds = self._start.speeds.copy()
        for rank, factor in self.turned.items():
            speeds[rank] *= factor
        shares = self._at_start
        if self.gaps and self._elastic is not None:
            speeds, kept = self._resize(speeds, self._elastic)
            speeds, shares = speeds[kept], None if shares is None else shares[kept]
        self.crew = replace(self._start, speeds=speeds, shares=shares)
        if self._speed.balance == "dynamic":
            self.crew = self.crew.balanced()

    def _resize(self, speeds: Floats, elastic: Elastic) -> tuple[Floats, NDArray[np.bool_]]:
        """The speeds of all ranks with the work of those that are missing, and which ranks are there."""
        worker = np.arange(len(speeds)) * self._all // len(speeds)
        missing = np.zeros(self._all)
        for one, nodes in self._missing().items():
            missing[one] = nodes
        if elastic.mode == "drop":
            more = self._all / max(self.workers, 1) if elastic.batch == "fixed" else 1.0
            return speeds * more, (missing == 0)[worker]
        each = max(self._nodes / self._all, 1.0)
        slower = np.where(missing > 0, each / np.maximum(each - missing, 1e-9) / (1 - elastic.loss), 1.0)
        return speeds * slower[worker], np.ones(len(speeds), bool)
