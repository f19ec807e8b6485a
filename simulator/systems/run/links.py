"""A link that transfers of many processes share fairly, inside SimPy: a server's, a store's, a site's.

Each transfer has a limit of its own, that of its sender or receiver. Rates are max-min fair: all get the same, except
those whose own limit is lower (Bertsekas and Gallager, Data Networks, 1992, section 6.5.2). Transfers of one limit
always have one rate, so a clock of bytes per limit says which ends next, whatever their number.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any

from simpy import Environment, Event

_ROUNDING = 1e-15  # relative: of clocks in seconds and in bytes


class _Transfer(Event):
    """The end of a transfer. It happens when its link says so, or `latency_s` later."""

    def __init__(self, env: Environment, latency_s: float):
        self.env, self.callbacks = env, []
        self._ok, self._value, self._latency_s = True, None, latency_s

    def happen(self) -> None:
        """Call whoever waits. At once: a way through the queue of events would cost as much as all the rest."""
        if self._latency_s:
            self.env.schedule(self, delay=self._latency_s)
            return
        callbacks: list[Callable[[Event], Any]] = self.callbacks
        self.callbacks = None  # type: ignore[assignment]  # as SimPy marks what has happened
        for callback in callbacks:
            callback(self)


class Class:
    """Transfers of one rate: the bytes that each has moved since the class began, and at how many each ends."""

    __slots__ = ("clock_bytes", "ends", "rate")

    def __init__(self) -> None:
        self.clock_bytes = 0.0
        self.rate = 0.0
        self.ends: list[tuple[float, int, _Transfer]] = []


class Transfers:
    """Transfers in classes by a number; `_set_rates`, which subclasses write, says how fast each class moves."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._classes: dict[float, Class] = {}
        self._since_s, self._number = 0.0, 0
        self._wake: Event | None = None
        self._wake_s = inf
        self.moved_bytes = 0.0

    @property
    def active(self) -> int:
        """How many transfers move now."""
        return sum(len(one.ends) for one in self._classes.values())

    def stop(self, transfer: Event) -> None:
        """End a transfer before all its bytes have moved; its event does not happen. One that has ended has."""
        self._advance()
        for one in self._classes.values():
            if any(end[2] is transfer for end in one.ends):
                one.ends = [end for end in one.ends if end[2] is not transfer]
                heapify(one.ends)
        self._share()

    def _set_rates(self) -> None:
        raise NotImplementedError

    def _start(self, size_bytes: float, kind: float, latency_s: float) -> Event:
        """Begin a transfer of a class."""
        self._advance()
        one = self._classes.get(kind)
        if one is None:
            one = self._classes[kind] = Class()
        self._number += 1
        transfer = _Transfer(self._env, latency_s)
        heappush(one.ends, (one.clock_bytes + size_bytes, self._number, transfer))
        self._share()
        return transfer

    def _advance(self) -> None:
        """Move the clocks to now."""
        now_s = self._env.now
        seconds = now_s - self._since_s
        if seconds:
            self._since_s = now_s
            for one in self._classes.values():
                moved = one.rate * seconds
                one.clock_bytes += moved
                self.moved_bytes += moved * len(one.ends)

    def _share(self) -> None:
        """Set the rates anew, and wake up when the next transfer ends."""
        for kind in [kind for kind, one in self._classes.items() if not one.ends]:
            del self._classes[kind]
        if not self._classes:
            return
        self._set_rates()
        next_s = min([(one.ends[0][0] - one.clock_bytes) / one.rate for one in self._classes.values()])
        wake_s = self._env.now + next_s
        if wake_s < self._wake_s:  # else we wake up earlier, and look again
            self._wake_s, self._wake = wake_s, self._env.timeout(max(next_s, 0.0))
            self._wake.callbacks.append(self._end)

    def _end(self, wake: Event) -> None:
        """End the transfers that have moved all their bytes."""
        if wake is not self._wake:
            return  # rates have changed since
        self._wake_s = inf
        self._advance()
        ended = []
        for one in self._classes.values():
            until = one.clock_bytes + _ROUNDING * (one.clock_bytes + one.rate * self._since_s)
            while one.ends and one.ends[0][0] <= until:
                ended.append(heappop(one.ends)[2])
        self._share()
        for transfer in ended:
            transfer.happen()


class SharedLink(Transfers):
    """A link of `bytes_per_s` in one direction."""

    def __init__(self, env: Environment, bytes_per_s: float):
        super().__init__(env)
        self._capacity = bytes_per_s

    def transfer(self, size_bytes: float, limit_bytes_per_s: float = inf, latency_s: float = 0.0) -> Event:
        """An event that happens `latency_s` after these bytes have crossed the link.

        A transfer that nothing limits takes the latency alone.
        """
        if limit_bytes_per_s == self._capacity == inf:
            return self._env.timeout(latency_s)
        return self._start(size_bytes, limit_bytes_per_s, latency_s)

    def _set_rates(self) -> None:
        """Share the link, lowest limit first."""
        left, waiting = self._capacity, self.active
        for limit in sorted(self._classes):
            one = self._classes[limit]
            one.rate = min(limit, left / waiting)
            left -= one.rate * len(one.ends)
            waiting -= len(one.ends)
