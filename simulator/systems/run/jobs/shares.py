"""The fabric and the store of a pool, which jobs share, inside SimPy: how fast each job goes on and when it ends.

A job moves bytes at a rate on average when it runs alone, its demand. Where demands exceed the capacity of a link,
rates are max-min fair: each job gets its demand, or the same as the others that do not (Bertsekas and Gallager, Data
Networks, 1992, section 6.5.2). A job goes on at its rate / its demand, the lowest of its links. What it then leaves
unused on the other link is not given to others. Jobs of equal demands always go on alike, so a clock per kind of demand
says which ends next, whatever the number of jobs.
"""

from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from simpy import Environment, Event

from ..sync.links import fair_share

Demand = tuple[float, float]
"""Bytes per second of a job on the fabric and on the store."""

_TINY = 1e-12  # relative: rounding of clocks


@dataclass(eq=False)
class _Class:
    """Jobs of one demand: the seconds of work that each has done since the class began, and when each ends."""

    clock_s: float = 0.0
    pace: float = 1.0
    jobs: int = 0
    ends: list[tuple[float, int, "JobWork"]] = field(default_factory=list)


@dataclass(eq=False)
class JobWork:
    """Some seconds of work that a job does; `done` happens at its end."""

    done: Event
    since_s: float  # on the clock of its class, or SimPy's if the job shares no link
    of: _Class | None = None
    stopped: bool = False


class SharedLinks:
    """A fabric and a store of these capacities."""

    def __init__(self, env: Environment, fabric_bytes_per_s: float, store_bytes_per_s: float):
        self._env, self._capacities = env, (fabric_bytes_per_s, store_bytes_per_s)
        self._classes: dict[Demand, _Class] = {}
        self._since_s, self._wake, self._number = 0.0, 0, 0
        self._next: _Class | None = None  # whose work ends next

    def start(self, seconds: float, demand: Demand) -> JobWork:
        """Begin work that takes so many seconds for a job that runs alone on links without limits."""
        if not any(demand):
            return JobWork(self._env.timeout(seconds), self._env.now)
        self._advance()
        one = self._classes.setdefault(demand, _Class())
        work = JobWork(self._env.event(), one.clock_s, one)
        self._number += 1
        heappush(one.ends, (one.clock_s + seconds, self._number, work))
        one.jobs += 1
        self._share()
        return work

    def stop(self, work: JobWork) -> float:
        """End work, done or not; the seconds of it that are done."""
        if work.of is None:
            return self._env.now - work.since_s
        self._advance()
        if not work.done.triggered:
            work.stopped = True
            work.of.jobs -= 1
            self._share()
        return work.of.clock_s - work.since_s

    def _advance(self) -> None:
        """Move the clocks to now."""
        seconds = self._env.now - self._since_s
        self._since_s = self._env.now
        if seconds > 0:
            for one in self._classes.values():
                one.clock_s += one.pace * seconds

    def _share(self) -> None:
        """Share the links anew, and wake up when the next work ends."""
        for demand in [demand for demand, one in self._classes.items() if not one.jobs]:
            del self._classes[demand]
        fabric, store = (
            fair_share(capacity, ((demand[link], one.jobs) for demand, one in self._classes.items() if demand[link]))
            for link, capacity in enumerate(self._capacities)
        )
        next_s, self._next = inf, None
        for (on_fabric, on_store), one in self._classes.items():
            one.pace = min(1.0, *(share / asked for share, asked in ((fabric, on_fabric), (store, on_store)) if asked))
            end_s = (_first_end(one) - one.clock_s) / one.pace
            if end_s < next_s:
                next_s, self._next = end_s, one
        if self._next:
            self._wake += 1
            wake = self._env.timeout(max(next_s, 0.0), self._wake)
            wake.callbacks.append(self._end)

    def _end(self, wake: Event) -> None:
        if wake.value != self._wake:
            return  # paces have changed since
        self._advance()
        if self._next:  # it ends now, whatever the clock rounds: what is left may be less than time can tell apart
            self._next.clock_s = max(self._next.clock_s, _first_end(self._next))
        for one in self._classes.values():
            while one.jobs and _first_end(one) <= one.clock_s * (1 + _TINY) + _TINY:
                heappop(one.ends)[2].done.succeed()
                one.jobs -= 1
        self._share()


def _first_end(one: _Class) -> float:
    """What the clock of the class is when its next work ends; work that was stopped is dropped on the way."""
    while one.ends[0][2].stopped:
        heappop(one.ends)
    return one.ends[0][0]
