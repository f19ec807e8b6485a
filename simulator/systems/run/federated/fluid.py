"""Transfers of one round that share a link max-min fairly, each with a limit of its own, and all starts known.

`SharedLink` (links.py) has the same rates, and groups by limit; here each transfer would be one, so that an event would
take O(n). Those at the fair rate are one group instead, and slower ones need no clock: O(log n).
"""

from bisect import bisect_left
from heapq import heappop, heappush
from itertools import repeat
from math import inf

import numpy as np

from ....base.arrays import Floats
from ..links import fair_share

_TINY = 1e-12  # relative: rounding of rates


def fair_rate(limits: Floats, capacity: float) -> float:
    """The max-min fair rate of transfers whose own limit, in B/s, is not lower; inf if the link holds nobody back."""
    if limits.sum() <= capacity:
        return inf
    return fair_share(capacity, zip(limits.tolist(), repeat(1)))


def together_s(size_bytes: float, limits: Floats, capacity: float) -> Floats:
    """Seconds of equal transfers that start at once on one link.

    Those at the fair rate end before all slower ones, so that no rate changes while they last.
    """
    return size_bytes / np.minimum(limits, fair_rate(limits, capacity))


def shared_ends_s(starts_s: Floats, sizes_bytes: Floats, limits: Floats, capacity: float) -> Floats:
    """When transfers end that share a link, each with its start, bytes and own limit in B/s."""
    alone_s = starts_s + sizes_bytes / limits
    if _peak(starts_s, alone_s, limits) <= capacity * (1 + _TINY):
        return alone_s
    link = _Link(limits.tolist(), capacity)
    for i in np.argsort(starts_s, kind="stable").tolist():
        link.run(float(starts_s[i]))
        link.start(i, float(sizes_bytes[i]))
    link.run(inf)
    return np.array(link.ends_s)


def _peak(starts_s: Floats, ends_s: Floats, rates: Floats) -> float:
    """The largest sum of the rates of transfers at one time."""
    at_s, change = np.concatenate([ends_s, starts_s]), np.concatenate([-rates, rates])
    return float(np.cumsum(change[np.argsort(at_s, kind="stable")]).max())


class _Link:
    """A link that goes from event to event, in O(log n) each.

    Slow transfers, whose limit is below the fair rate, run at their limit: each has a time at which it ends. All others
    have moved equally much since the link began: each has a mark on this clock of bytes at which it ends. The active
    ones stand in the order of their limits, slow ones first.
    """

    def __init__(self, limits: list[float], capacity: float):
        self.ends_s = [inf] * len(limits)
        self._limits, self._free, self._now_s, self._clock = limits, capacity, 0.0, 0.0
        self._active: list[tuple[float, int]] = []
        self._slow = 0  # how many of them
        self._times: list[tuple[float, int]] = []  # heaps; `_key` tells which entries are still true
        self._marks: list[tuple[float, int]] = []
        self._key: list[tuple[bool, float]] = [(False, inf)] * len(limits)

    def start(self, i: int, size_bytes: float) -> None:
        """Begin a transfer now."""
        one = (self._limits[i], i)
        at = bisect_left(self._active, one)
        self._active.insert(at, one)
        if at < self._slow:
            self._slow += 1
            self._free -= one[0]
            self._push(True, i, self._now_s + size_bytes / one[0])
        else:
            self._push(False, i, self._clock + size_bytes)
        self._settle()

    def run(self, until_s: float) -> None:
        """End the transfers that end by then, and move on to that time."""
        while self._active:
            rate = self._rate()
            slow_s, mark = self._first(True), self._first(False)
            fair_s = self._now_s + (mark - self._clock) / rate if mark < inf else inf
            next_s = min(slow_s, fair_s)
            if next_s > until_s:
                self._move(until_s, rate)
                return
            self._move(next_s, rate)
            self._end(slow_s <= fair_s)
        self._now_s = until_s

    def _rate(self) -> float:
        """The fair rate: what slow transfers leave to each of the others."""
        others = len(self._active) - self._slow
        if others:
            return self._free / others
        return inf if self._free >= 0 else 0.0

    def _first(self, slow: bool) -> float:
        """The first time of slow transfers, or the first mark of the others."""
        heap = self._times if slow else self._marks
        while heap and self._key[heap[0][1]] != (slow, heap[0][0]):
            heappop(heap)
        return heap[0][0] if heap else inf

    def _move(self, to_s: float, rate: float) -> None:
        if len(self._active) > self._slow:
            self._clock += rate * (to_s - self._now_s)
        self._now_s = to_s

    def _push(self, slow: bool, i: int, key: float) -> None:
        self._key[i] = (slow, key)
        heappush(self._times if slow else self._marks, (key, i))

    def _end(self, slow: bool) -> None:
        _, i = heappop(self._times if slow else self._marks)
        self.ends_s[i], self._key[i] = self._now_s, (False, inf)
        del self._active[bisect_left(self._active, (self._limits[i], i))]
        if slow:
            self._slow -= 1
            self._free += self._limits[i]
        self._settle()

    def _settle(self) -> None:
        """Let the right ones be slow. What gets below the fair rate raises it, so that the second loop is the last."""
        while self._slow and self._active[self._slow - 1][0] > self._rate():
            self._slow -= 1
            limit, i = self._active[self._slow]
            self._free += limit
            self._push(False, i, self._clock + (self._key[i][1] - self._now_s) * limit)
        while self._slow < len(self._active) and self._active[self._slow][0] < self._rate():
            limit, i = self._active[self._slow]
            self._free -= limit
            self._slow += 1
            self._push(True, i, self._now_s + (self._key[i][1] - self._clock) / limit)
