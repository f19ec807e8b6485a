"""A link that transfers of many processes share fairly, inside SimPy: a server's, a store's, a site's.

Each transfer has a limit of its own, that of its sender or receiver. Rates are max-min fair: all get the same, except
those whose own limit is lower (Bertsekas and Gallager, Data Networks, 1992, section 6.5.2). Transfers of one limit
always have one rate, so a clock of bytes per limit says which ends next, whatever their number.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable
from math import inf
from operator import itemgetter

from simpy import Environment, Event
from simpy.events import NORMAL

_ROUNDING = 1e-15  # relative: of clocks in seconds and in bytes
_end_bytes = itemgetter(0)


class _Transfer(Event):
    """The end of a transfer, which happens when its link says so."""

    _ok, _value = True, None

    def __init__(self, env: Environment):
        self.env, self.callbacks = env, []

    def happen(self) -> None:
        """Call those who wait, at once: a way through SimPy's queue would cost as much as all the rest."""
        callbacks, self.callbacks = self.callbacks, None  # type: ignore[assignment]  # as SimPy marks what has happened
        for callback in callbacks:
            callback(self)


class _Alarm(Event):
    """An event that can happen again and again, and calls back each time."""

    _ok, _value = True, None

    def __init__(self, env: Environment, call: Callable[[Event], None]):
        self.env, self._calls = env, [call]
        self.set_ready()

    def set_ready(self) -> None:
        """SimPy takes the callbacks of an event away when it happens."""
        self.callbacks = self._calls


class Class:
    """Transfers of one limit: the bytes that each has moved since the class began, and at how many each ends."""

    __slots__ = ("clock_bytes", "ends", "limit", "rate")

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.clock_bytes = self.rate = 0.0
        self.ends: deque[tuple[float, _Transfer]] = deque()  # the next first

    def add(self, size_bytes: float, transfer: _Transfer) -> None:
        """One transfer more. As a rule sizes are alike, and it ends last."""
        end = self.clock_bytes + size_bytes
        if self.ends and end < self.ends[-1][0]:
            insort(self.ends, (end, transfer), key=_end_bytes)
        else:
            self.ends.append((end, transfer))


class Transfers:
    """Transfers in classes of one rate each. A subclass says how fast those of each class move."""

    def __init__(self, env: Environment) -> None:
        self.active = 0
        self._env = env
        self._classes: list[Class] = []  # lowest limit first
        self._of: dict[float, Class] = {}
        self._since_s, self._begun_bytes = 0.0, 0.0
        self._alarm, self._alarm_s = _Alarm(env, self._look), inf

    @property
    def moved_bytes(self) -> float:
        """Bytes that have crossed the link."""
        self._advance()
        return self._begun_bytes - sum(end[0] - one.clock_bytes for one in self._classes for end in one.ends)

    def stop(self, transfer: Event) -> None:
        """End a transfer before its bytes have moved; its event does not happen. One that has ended stays so."""
        moved_bytes = self.moved_bytes
        for one in self._classes:
            one.ends = deque(end for end in one.ends if end[1] is not transfer)
        self._begun_bytes += moved_bytes - self.moved_bytes
        self.active = sum(len(one.ends) for one in self._classes)
        self._share()

    def _start(self, size_bytes: float, limit: float) -> Event:
        """Begin a transfer of a class."""
        self._advance()
        one = self._of.get(limit) or self._new(limit)
        transfer = _Transfer(self._env)
        self._begun_bytes += size_bytes
        self.active += 1
        one.add(size_bytes, transfer)
        self._share()
        return transfer

    def _new(self, limit: float) -> Class:
        """A class more; those that are empty go."""
        some = [one for one in self._classes if one.ends]
        self._classes = sorted([*some, Class(limit)], key=lambda one: one.limit)
        self._of = {one.limit: one for one in self._classes}
        return self._of[limit]

    def _set_rates(self) -> None:
        """Say how fast the transfers of each class move that is not empty."""
        raise NotImplementedError

    def _advance(self) -> None:
        """Move the clocks to now."""
        now_s = self._env.now
        seconds = now_s - self._since_s
        self._since_s = now_s
        for one in self._classes:
            one.clock_bytes += one.rate * seconds

    def _share(self) -> None:
        """Set the rates anew, and look again when the next transfer ends, if not sooner."""
        self._set_rates()
        for one in self._classes:
            if one.ends:
                seconds = (one.ends[0][0] - one.clock_bytes) / one.rate
                if self._since_s + seconds < self._alarm_s:
                    self._alarm_s = self._since_s + seconds
                    self._env.schedule(self._alarm, NORMAL, seconds if seconds > 0 else 0)

    def _look(self, _: Event) -> None:
        """End the transfers that have moved all their bytes."""
        self._alarm.set_ready()
        self._advance()
        now_s = self._since_s
        if now_s < self._alarm_s:
            return  # we have looked sooner than this alarm
        self._alarm_s = inf
        ended: list[_Transfer] = []
        for one in self._classes:
            ends, clock = one.ends, one.clock_bytes
            until = clock + _ROUNDING * (clock + one.rate * now_s)
            while ends and ends[0][0] <= until:
                ended.append(ends.popleft()[1])
                self.active -= 1
            if not ends:
                one.clock_bytes = one.rate = 0.0
        if self.active:
            self._share()
        for transfer in ended:
            transfer.happen()


class SharedLink(Transfers):
    """A link of `bytes_per_s` in one direction."""

    def __init__(self, env: Environment, bytes_per_s: float):
        super().__init__(env)
        self._capacity = bytes_per_s

    def transfer(self, size_bytes: float, limit_bytes_per_s: float = inf) -> Event:
        """An event that happens when these bytes have crossed the link.

        What nothing limits takes no time, and is not counted.
        """
        if limit_bytes_per_s == self._capacity == inf:
            return self._env.timeout(0)
        return self._start(size_bytes, limit_bytes_per_s)

    def _set_rates(self) -> None:
        """Share the link, lowest limit first."""
        left, waiting = self._capacity, self.active
        for one in self._classes:
            number = len(one.ends)
            if number:
                rate = left / waiting
                one.rate = rate = rate if rate < one.limit else one.limit
                left -= rate * number
                waiting -= number


class HostLinks(Transfers):
    """The links of `hosts` that hold a shard each of what all of them read and write (Jiang et al., OSDI 2020).

    A host's own shard does not travel. Its link carries, beside its own push, one part in `hosts` - 1 of what each
    other host pulls, and beside its own pull one part of what each other pushes. So where `a` push and `b` pull, the
    link out of one that pushes is shared by hosts - 1 + b shards, the link into one that pulls by hosts - 1 + a. A
    transfer ends with its slowest shard.
    """

    def __init__(self, env: Environment, hosts: int, bytes_per_s: float):
        super().__init__(env)
        self._hosts, self._each = hosts, bytes_per_s

    def push(self, size_bytes: float) -> Event:
        """An event that happens when a host has sent the others their shards of these bytes."""
        return self._move(size_bytes, 0)

    def pull(self, size_bytes: float) -> Event:
        """An event that happens when a host has the shards of the others of these bytes."""
        return self._move(size_bytes, 1)

    def _move(self, size_bytes: float, direction: int) -> Event:
        if self._each == inf:
            return self._env.timeout(0)
        return self._start(size_bytes * (self._hosts - 1) / self._hosts, direction)

    def _set_rates(self) -> None:
        others, rate = self._hosts - 1, self._each
        some = [len(one.ends) for one in self._classes if one.ends]
        if len(some) == 2 and others:
            rate *= others / (others + min(max(some), others))
        for one in self._classes:
            one.rate = rate
