"""A link that transfers of many processes share fairly, inside SimPy: a server's, a store's, a site's.

Each transfer has a limit of its own, that of its sender or receiver. Rates are max-min fair: all get the same, except
those whose own limit is lower (Bertsekas and Gallager, Data Networks, 1992, section 6.5.2). Transfers of one limit always
have one rate, so a clock of bytes per limit says which ends next, whatever their number.
"""

from collections import defaultdict
from heapq import heappop, heappush
from math import inf

from simpy import Environment, Event

_TINY = 1e-12  # relative: rounding of clocks


class _Class:
    """Transfers of one limit: the bytes that each has moved since the class began, and when each ends."""

    def __init__(self) -> None:
        self.clock_bytes = 0.0
        self.rate = 0.0
        self.ends: list[tuple[float, int, Event]] = []


class SharedLink:
    """A link of `bytes_per_s` in one direction."""

    def __init__(self, env: Environment, bytes_per_s: float):
        self._env, self._capacity = env, bytes_per_s
        self._classes: dict[float, _Class] = defaultdict(_Class)
        self._since_s, self._wake, self._number = 0.0, 0, 0
        self.moved_bytes = 0.0

    def transfer(self, size_bytes: float, limit_bytes_per_s: float = inf) -> Event:
        """An event that happens when these bytes have crossed the link."""
        done = self._env.event()
        self._advance()
        one = self._classes[limit_bytes_per_s]
        self._number += 1
        heappush(one.ends, (one.clock_bytes + size_bytes, self._number, done))
        self._share()
        return done

    @property
    def active(self) -> int:
        """How many transfers share the link now."""
        return sum(len(one.ends) for one in self._classes.values())

    def _advance(self) -> None:
        """Move the clocks to now."""
        seconds = self._env.now - self._since_s
        self._since_s = self._env.now
        for one in self._classes.values():
            if one.ends:
                moved = one.rate * seconds
                one.clock_bytes += moved
                self.moved_bytes += moved * len(one.ends)

    def _share(self) -> None:
        """Share the link anew, lowest limit first, and wake up when the next transfer ends."""
        left, waiting, next_s = self._capacity, self.active, inf
        for limit in sorted(self._classes):
            one = self._classes[limit]
            if not one.ends:
                del self._classes[limit]
                continue
            one.rate = min(limit, left / waiting)
            left -= one.rate * len(one.ends)
            waiting -= len(one.ends)
            next_s = min(next_s, (one.ends[0][0] - one.clock_bytes) / one.rate)
        if next_s < inf:
            self._wake += 1
            wake = self._env.timeout(max(next_s, 0.0), self._wake)
            wake.callbacks.append(self._end)  # type: ignore[union-attr]

    def _end(self, wake: Event) -> None:
        if wake.value != self._wake:
            return  # rates have changed since
        self._advance()
        for one in self._classes.values():
            while one.ends and one.ends[0][0] <= one.clock_bytes * (1 + _TINY) + _TINY:
                heappop(one.ends)[2].succeed()
        self._share()
