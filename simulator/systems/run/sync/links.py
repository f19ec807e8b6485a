"""A link that transfers of many processes share fairly, inside SimPy: a server's, a store's, a site's.

Each transfer has a limit of its own, that of its sender or receiver. Rates are max-min fair: all get the same, except
those whose own limit is lower (Bertsekas and Gallager, Data Networks, 1992, section 6.5.2). Transfers of one limit
always have one rate, so a clock of bytes per limit says which ends next, whatever their number.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterable
from math import inf
from operator import itemgetter
from typing import Any

from simpy import Environment, Event

_ROUNDING = 1e-15  # relative: of clocks in seconds and in bytes
_end_bytes = itemgetter(0)


def fair_share(capacity: float, demands: Iterable[tuple[float, int]]) -> float:
    """The rate that no one may exceed so that the capacity suffices for all; infinity if it suffices anyway.

    `demands` are rates that are asked for, and how many ask for each of them.
    """
    ordered = sorted(demands)
    left, waiting = capacity, sum(count for _, count in ordered)
    for demand, count in ordered:
        if demand * waiting > left:
            return left / waiting
        left -= demand * count
        waiting -= count
    return inf


class Clock(Environment):
    """SimPy's environment, in which transfers on links end beside the events of its queue; of one instant, after them.

    Each begin and each end of a transfer moves all other ends on its link, and SimPy's queue cannot move an event. So
    ends are not in the queue: a link knows when its next one is, and is asked before each event.
    """

    def __init__(self) -> None:
        super().__init__()
        self._links: list[SharedLink] = []

    def watch(self, link: "SharedLink") -> None:
        """End the transfers of a link when it says so."""
        self._links.append(link)

    def run(self, until: Any = None) -> None:
        """Run until this event has happened; without one, as long as anything happens."""
        queue, links, step = self._queue, self._links, self.step
        while until is None or until.callbacks is not None:
            at_s, soonest = queue[0][0] if queue else inf, None
            for link in links:
                if link.end_s < at_s:
                    at_s, soonest = link.end_s, link
            if soonest is not None:
                self._now = at_s
                soonest.end_transfers(at_s)
            elif queue:
                step()
            else:
                return


class _Transfer(Event):
    """The end of a transfer, which happens when its link says so."""

    _ok, _value = True, None

    def __init__(self, env: Environment):
        self.env, self.callbacks = env, []

    def happen(self) -> None:
        """Call those who wait."""
        callbacks, self.callbacks = self.callbacks, None  # type: ignore[assignment]  # as SimPy marks what has happened
        for callback in callbacks:
            callback(self)


class _Class:
    """Transfers of one limit: the bytes that each has moved since the class began, and at how many each ends."""

    __slots__ = ("clock_bytes", "ends", "limit", "rate")

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.clock_bytes = self.rate = 0.0
        self.ends: deque[tuple[float, _Transfer]] = deque()  # the next first


class SharedLink:
    """A link of `bytes_per_s` in one direction."""

    def __init__(self, clock: Clock, bytes_per_s: float):
        self.active = 0
        self.end_s = inf  # when the next transfer ends
        self._clock, self._capacity = clock, bytes_per_s
        self._classes: list[_Class] = []  # lowest limit first
        self._by_limit: dict[float, _Class] = {}
        self._since_s, self._begun_bytes = 0.0, 0.0
        clock.watch(self)

    def transfer(self, size_bytes: float, limit_bytes_per_s: float = inf) -> Event:
        """An event that happens when these bytes have crossed the link.

        What nothing limits takes no time, and is not counted.
        """
        if limit_bytes_per_s == self._capacity == inf:
            return self._clock.timeout(0)
        return self._begin(self._by_limit.get(limit_bytes_per_s) or self._new(limit_bytes_per_s), size_bytes)

    def stop(self, transfer: Event) -> None:
        """End a transfer before its bytes have moved; its event does not happen. One that has ended stays so."""
        moved_bytes = self.moved_bytes
        for one in self._classes:
            one.ends = deque(end for end in one.ends if end[1] is not transfer)
        self._begun_bytes += moved_bytes - self.moved_bytes
        self.active = sum(len(one.ends) for one in self._classes)
        self._share(self._clock.now)

    @property
    def moved_bytes(self) -> float:
        """Bytes that have crossed the link."""
        self._share(self._clock.now)
        return self._begun_bytes - sum(end[0] - one.clock_bytes for one in self._classes for end in one.ends)

    def _new(self, limit: float) -> _Class:
        """A class more; those that are empty go."""
        some = [one for one in self._classes if one.ends]
        self._classes = sorted([*some, _Class(limit)], key=lambda one: one.limit)
        self._by_limit = {one.limit: one for one in self._classes}
        return self._by_limit[limit]

    def _begin(self, one: _Class, size_bytes: float) -> Event:
        """Begin a transfer of a class. As a rule sizes are alike, and the transfer ends last."""
        now_s, ends, transfer = self._clock.now, one.ends, _Transfer(self._clock)
        end = one.clock_bytes + one.rate * (now_s - self._since_s) + size_bytes
        if ends and end < ends[-1][0]:
            insort(ends, (end, transfer), key=_end_bytes)
        else:
            ends.append((end, transfer))
        self._begun_bytes += size_bytes
        self.active += 1
        self._share(now_s)
        return transfer

    def _share(self, now_s: float) -> None:
        """Move the clocks to now, share the link anew, lowest limit first, and find the next end."""
        seconds, self._since_s = now_s - self._since_s, now_s
        left, waiting, next_s = self._capacity, self.active, inf
        for one in self._classes:
            clock = one.clock_bytes = one.clock_bytes + one.rate * seconds
            if number := len(one.ends):
                rate = left / waiting
                if rate > one.limit:
                    rate = one.limit
                left -= rate * number
                waiting -= number
                one.rate = rate
                end_s = (one.ends[0][0] - clock) / rate
                if end_s < next_s:
                    next_s = end_s
            else:
                one.clock_bytes = one.rate = 0.0
        self.end_s = now_s + next_s if next_s > 0 else now_s

    def end_transfers(self, now_s: float) -> None:
        """End the transfers that have moved all their bytes by now."""
        ended: list[_Transfer] = []
        for one in self._classes:
            if ends := one.ends:
                rate = one.rate
                clock = one.clock_bytes + rate * (now_s - self._since_s)
                until = clock + _ROUNDING * (clock + rate * now_s)
                while ends and ends[0][0] <= until:
                    ended.append(ends.popleft()[1])
                    self.active -= 1
        self._share(now_s)
        for transfer in ended:
            transfer.happen()


class HostLinks(SharedLink):
    """The links of `hosts` that hold a shard each of what all of them read and write (Jiang et al., OSDI 2020).

    A host's own shard does not travel. Its link carries, beside its own push, one part in `hosts` - 1 of what each
    other host pulls, and beside its own pull one part of what each other pushes. So where `a` push and `b` pull, the
    link out of one that pushes is shared by hosts - 1 + b shards, the link into one that pulls by hosts - 1 + a. A
    transfer ends with its slowest shard.
    """

    def __init__(self, clock: Clock, hosts: int, bytes_per_s: float):
        super().__init__(clock, inf)
        self._hosts, self._each = hosts, bytes_per_s
        self._classes = [_Class(bytes_per_s), _Class(bytes_per_s)]

    def push(self, size_bytes: float) -> Event:
        """An event that happens when a host has sent the others their shards of these bytes."""
        return self._move(0, size_bytes)

    def pull(self, size_bytes: float) -> Event:
        """An event that happens when a host has the shards of the others of these bytes."""
        return self._move(1, size_bytes)

    def _move(self, direction: int, size_bytes: float) -> Event:
        if self._each == inf:
            return self._clock.timeout(0)
        return self._begin(self._classes[direction], size_bytes * (self._hosts - 1) / self._hosts)

    def _share(self, now_s: float) -> None:
        pushes, pulls = self._classes
        others, crowd = self._hosts - 1, max(len(pushes.ends), len(pulls.ends))
        meet = pushes.ends and pulls.ends and others
        pushes.limit = pulls.limit = self._each * others / (others + min(crowd, others)) if meet else self._each
        super()._share(now_s)
