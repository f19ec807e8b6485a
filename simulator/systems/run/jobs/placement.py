"""Which GPUs of a pool are free, by node, and on which of them a job goes."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any, Literal

Pack = Literal["nodes", "any"]
Places = tuple[tuple[int, int], ...]
"""Nodes of a job, and how many GPUs it takes on each."""


class Nodes:
    """Free GPUs of nodes with `sizes` GPUs each.

    pack "nodes": a job that one node can hold goes on one node, the fullest on which it fits (best fit); a larger one
    takes whole nodes, the largest first, and the GPUs that it does not need stay idle. pack "any": a job takes GPUs
    wherever they are, those of the fullest nodes first.
    """

    def __init__(self, sizes: Sequence[int], pack: Pack):
        self.sizes, self.pack = tuple(sizes), pack
        self.largest, self.total = max(sizes), sum(sizes)
        self.free = list(sizes)
        self._by_free: list[list[int]] = [[] for _ in range(self.largest + 1)]  # nodes with so many free GPUs, sorted
        for node, size in enumerate(sizes):
            self._by_free[size].append(node)
        self._empty = sorted((-size, node) for node, size in enumerate(sizes))  # nodes on which nothing runs
        self._empty_gpus = self.total

    def copy(self) -> "Nodes":
        """The same free GPUs, to try something out."""
        other = object.__new__(Nodes)
        other.__dict__.update(self.__dict__)
        other.free, other._empty = self.free.copy(), self._empty.copy()
        other._by_free = [nodes.copy() for nodes in self._by_free]
        return other

    def fits(self, gpus: int) -> bool:
        """Whether a job of so many GPUs can start."""
        if self.pack == "any":
            return gpus <= self.total
        if gpus > self.largest:
            return gpus <= self._empty_gpus
        return any(self._by_free[gpus:])

    def choose(self, gpus: int) -> Places:
        """Where a job goes that fits."""
        if self.pack == "any":
            return self._anywhere(gpus)
        if gpus > self.largest:
            return self._whole_nodes(gpus)
        return ((next(nodes[0] for nodes in self._by_free[gpus:] if nodes), gpus),)

    def take(self, places: Places) -> None:
        """Give these GPUs to a job."""
        for node, gpus in places:
            self._set(node, self.free[node] - gpus)

    def release(self, places: Places) -> None:
        """Take them back."""
        for node, gpus in places:
            self._set(node, self.free[node] + gpus)

    def _anywhere(self, gpus: int) -> Places:
        places = []
        for free, nodes in enumerate(self._by_free[1:], start=1):
            for node in nodes:
                places.append((node, min(free, gpus)))
                gpus -= free
                if gpus <= 0:
                    return tuple(places)
        raise AssertionError("does not fit")

    def _whole_nodes(self, gpus: int) -> Places:
        places = []
        for size, node in self._empty:
            places.append((node, -size))
            gpus += size
            if gpus <= 0:
                return tuple(places)
        raise AssertionError("does not fit")

    def _set(self, node: int, free: int) -> None:
        before, size = self.free[node], self.sizes[node]
        assert 0 <= free <= size, (node, free)
        remove(self._by_free[before], node)
        insort(self._by_free[free], node)
        if before == size > free:
            remove(self._empty, (-size, node))
            self._empty_gpus -= size
        if before < size == free:
            insort(self._empty, (-size, node))
            self._empty_gpus += size
        self.free[node] = free
        self.total += free - before


def remove(items: list[Any], item: Any) -> None:
    """Remove an item from a sorted list."""
    del items[bisect_left(items, item)]
