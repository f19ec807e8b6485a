"""Links that processes share fairly, inside SimPy: those of servers, of hosts, and of a pool of jobs (jobs/shares.py).

Transfers are in groups, all of one rate at any time. So a clock per group, of what each of its transfers has moved,
says which ends next, whatever their number. A kind of link is a law: the rates of its groups.

Clients of a federated round differ in their limits. Each would be a group, and every event would visit all of them: two
minutes for 1,000 rounds of 390 clients, of which federated/fluid.py, in O(log n), makes four seconds.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterable
from functools import partial
from math import inf
from operator import itemgetter
from typing import Any

from simpy import Environment, Event

_ROUNDING = 1e-15  # relative: of clocks and of time
_end = itemgetter(0)


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

    now = 0.0  # SimPy's is a property, which takes longer to read

    def __init__(self) -> None:
        super().__init__()
        self._links: list[FairLink] = []

    def watch(self, link: "FairLink") -> None:
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
                self._now = self.now = at_s
                soonest.end_transfers(at_s)
            elif queue:
                self.now = at_s
                step()
            else:
                return


class Group:
    """Transfers that always have one rate: what each has moved since the group began, and at how much each ends."""

    __slots__ = ("clock", "ends", "rate")

    def __init__(self) -> None:
        self.clock = self.rate = 0.0
        self.ends: deque[tuple[float, Transfer]] = deque()  # the next first


class Transfer(Event):
    """The end of a transfer, which happens when its link says so."""

    _ok, _value = True, None

    def __init__(self, env: Environment):
        self.env, self.callbacks = env, []

    def happen(self) -> None:
        """Call those who wait."""
        callbacks, self.callbacks = self.callbacks, None  # type: ignore[assignment]  # as SimPy marks what has happened
        for callback in callbacks:
            callback(self)


class FairLink:
    """Groups of transfers that share a link; `_rates` is the law."""

    def __init__(self, env: Environment, groups: Iterable[Group] = ()):
        self.end_s = inf  # when the next transfer ends
        self._env, self._groups, self._since_s = env, list(groups), 0.0

    def _rates(self) -> Iterable[float]:
        """The rate of each group; that of one without transfers does not count."""
        raise NotImplementedError

    def begin(self, group: Group, size: float) -> Transfer:
        """A transfer in a group, an event of its end. As a rule sizes are alike, and it ends last."""
        now_s, ends, transfer = self._env.now, group.ends, Transfer(self._env)
        end = group.clock + group.rate * (now_s - self._since_s) + size
        if ends and end < ends[-1][0]:
            insort(ends, (end, transfer), key=_end)
        else:
            ends.append((end, transfer))
        self._share(now_s)
        return transfer

    def stop(self, transfer: Event) -> float:
        """End a transfer before all of it has moved; what is left of it. Its event does not happen.

        One that has ended, or is on another link, stays so.
        """
        now_s = self._env.now
        for group in self._groups:
            for one in group.ends:
                if one[1] is transfer:
                    group.ends.remove(one)
                    left = one[0] - group.clock - group.rate * (now_s - self._since_s)
                    self._share(now_s)
                    return left
        return 0.0

    def _share(self, now_s: float) -> float:
        """Move the clocks to now, and find the next end at the new rates; the seconds until then."""
        seconds, self._since_s, next_s = now_s - self._since_s, now_s, inf
        for group, rate in zip(self._groups, self._rates(), strict=True):
            if ends := group.ends:
                clock = group.clock = group.clock + group.rate * seconds
                group.rate = rate
                end_s = (ends[0][0] - clock) / rate
                if end_s < next_s:
                    next_s = end_s
            else:
                group.clock = group.rate = 0.0
        self.end_s = now_s + next_s if next_s > 0 else now_s
        return next_s

    def end_transfers(self, now_s: float) -> None:
        """End the transfers of which all has moved by now."""
        ended: list[Transfer] = []
        for group in self._groups:
            if ends := group.ends:
                rate = group.rate
                clock = group.clock + rate * (now_s - self._since_s)
                until = clock + _ROUNDING * (clock + rate * now_s)
                while ends and ends[0][0] <= until:
                    ended.append(ends.popleft()[1])
        self._share(now_s)
        for transfer in ended:
            transfer.happen()


class SharedLink(FairLink):
    """A link in one direction, of which all transfers have an equal share, at most that of their sender or receiver."""

    def __init__(self, clock: Clock, bytes_per_s: float, limit_bytes_per_s: float = inf):
        self._all = Group()
        super().__init__(clock, (self._all,))
        self._capacity, self._limit = bytes_per_s, limit_bytes_per_s
        self.transfer = partial(self.begin, self._all)  # an event that happens when so many bytes have crossed the link
        clock.watch(self)

    def _share(self, now_s: float) -> float:
        """The law in place of `_rates`, for speed: a million pushes share links four million times."""
        group, next_s = self._all, inf
        clock = group.clock = group.clock + group.rate * (now_s - self._since_s)
        self._since_s = now_s
        if ends := group.ends:
            rate = self._capacity / len(ends)
            if rate > self._limit:
                rate = self._limit
            group.rate = rate
            next_s = (ends[0][0] - clock) / rate
        else:
            group.clock = group.rate = 0.0
        self.end_s = now_s + next_s if next_s > 0 else now_s
        return next_s


class HostLinks(FairLink):
    """The links of `hosts` that hold a shard each of what all of them read and write (Jiang et al., OSDI 2020).

    A host's own shard does not travel. Its link carries, beside its own push, one part in `hosts` - 1 of what each
    other host pulls, and beside its own pull one part of what each other pushes. So where `a` push and `b` pull, the
    link out of one that pushes is shared by hosts - 1 + b shards, the link into one that pulls by hosts - 1 + a. A
    transfer ends with its slowest shard.
    """

    def __init__(self, clock: Clock, hosts: int, bytes_per_s: float):
        self._pushes, self._pulls = Group(), Group()
        super().__init__(clock, (self._pushes, self._pulls))
        self._hosts, self._each = hosts, bytes_per_s
        clock.watch(self)

    def push(self, size_bytes: float) -> Event:
        """An event that happens when a host has sent the others their shards of these bytes."""
        return self._move(self._pushes, size_bytes)

    def pull(self, size_bytes: float) -> Event:
        """An event that happens when a host has the shards of the others of these bytes."""
        return self._move(self._pulls, size_bytes)

    def _move(self, group: Group, size_bytes: float) -> Event:
        if self._each == inf:
            return self._env.timeout(0)
        return self.begin(group, size_bytes * (self._hosts - 1) / self._hosts)

    def _rates(self) -> tuple[float, float]:
        pushing, pulling, others = len(self._pushes.ends), len(self._pulls.ends), self._hosts - 1
        meet = pushing and pulling and others
        crowd = min(max(pushing, pulling), others)
        rate = self._each * others / (others + crowd) if meet else self._each
        return rate, rate
