"""Who goes next: the queue of a pool of GPUs. It has no clock: callers pass the time.

A job starts when all its GPUs are free (gang scheduling). Policies, all of them in order of arrival where nothing else
is said, and strict, but for backfill: where the first job does not fit, the others wait with it.

- fifo: by arrival.
- backfill: by arrival, and a later job may start if that does not delay the first one (EASY: Lifka, The ANL/IBM SP
  Scheduling System, JSSPP 1995). The first one's reservation is the time at which running jobs, each as long as it
  said, have left enough GPUs. A job that takes longer than it said is taken to end at once.
- priority: the highest first. With `preempt`, a job takes the GPUs of jobs with lower ones, lowest first, of those the
  latest started.
- fair: the user first whose jobs have had the fewest GPU-seconds per weight; among equals, the one with the fewest GPUs
  per weight.

A job that comes back, because it was preempted or a node failed, queues by its first arrival, so before all that came
later.
"""

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from sys import float_info
from typing import Any, Literal, NamedTuple

from .placement import Nodes, Places, remove

Policy = Literal["fifo", "backfill", "priority", "fair"]
_MOST = float_info.max


@dataclass(frozen=True)
class Job:
    """A job that needs `gpus` at once for `time_s` of work, in seconds of a run alone, and comes at `at_s`.

    `estimate_s` is what the user asks of the queue (None: `time_s`). Work is saved every `checkpoint_s` of work; a job
    that comes back needs `restart_s` before it works again. Rates are what it moves on average when it runs alone.
    """

    name: str
    gpus: int
    time_s: float
    at_s: float = 0.0
    estimate_s: float | None = None
    user: str = ""
    priority: int = 0
    restart_s: float = 0.0
    checkpoint_s: float = inf
    network_bytes_per_s: float = 0.0
    storage_bytes_per_s: float = 0.0

    @property
    def request_s(self) -> float:
        """Seconds that the queue expects."""
        return self.time_s if self.estimate_s is None else self.estimate_s


class Start(NamedTuple):
    """A job, by its number, that starts on `places`, for which `victims` have been preempted."""

    job: int
    places: Places
    victims: tuple[int, ...] = ()


class _Line:
    """Jobs in an order that does not change; of those that wait, the first that asks for few enough seconds.

    A binary tree of minima: both ways to change it and the question take O(log n).
    """

    def __init__(self, jobs: Sequence[int]):
        self._jobs, self._leaves = jobs, 1 << (len(jobs) - 1).bit_length()
        self._least = [inf] * (2 * self._leaves)
        self._head: int | None = None  # None: not known, or nobody waits

    def set(self, place: int, seconds: float) -> None:
        """The job at this place waits and asks for these seconds; infinity: it does not wait."""
        least, at = self._least, place + self._leaves
        least[at], self._head = seconds, None
        while at > 1:
            other = least[at ^ 1]
            least_s = seconds if seconds < other else other
            at >>= 1
            if least[at] == least_s:
                return
            least[at] = seconds = least_s

    @property
    def head(self) -> int | None:
        """The first job that waits."""
        if self._head is None and self._least[1] < inf:
            self._head = self.first(_MOST)
        return self._head

    def first(self, most_s: float) -> int | None:
        """The first job that asks for at most these seconds."""
        least, at = self._least, 1
        if least[at] > most_s:
            return None
        while at < self._leaves:
            at *= 2
            if least[at] > most_s:
                at += 1
        return self._jobs[at - self._leaves]


class _Usage:
    """GPU-seconds of a user, counted up to `since_s`, and the GPUs that it has now."""

    def __init__(self, weight: float):
        self.weight, self.gpu_s, self.gpus, self.since_s = weight, 0.0, 0, 0.0

    def change(self, gpus: int, now_s: float) -> None:
        """Give GPUs, or take them back."""
        self.gpu_s += self.gpus * (now_s - self.since_s)
        self.gpus += gpus
        self.since_s = now_s

    def rank(self, now_s: float) -> tuple[float, float]:
        """GPU-seconds per weight, then GPUs per weight: the lowest goes first."""
        return (self.gpu_s + self.gpus * (now_s - self.since_s)) / self.weight, self.gpus / self.weight


@dataclass(frozen=True)
class _Running:
    """What holds GPUs: where, since when, and when it is expected to end."""

    places: Places
    start_s: float
    end_s: float


class Scheduler:
    """Jobs that wait, jobs that run, and the free GPUs. Jobs are numbers: places in `jobs`."""

    def __init__(self, jobs: Sequence[Job], nodes: Nodes, policy: Policy, preempt: bool, weights: Mapping[str, float]):
        self._jobs, self._nodes, self._policy = jobs, nodes, policy
        self._preempt = preempt and policy == "priority"
        self._running: dict[int, _Running] = {}  # a node under repair is the number -1 - node
        self._ends: list[tuple[float, int]] = []  # expected end and number of what runs, sorted
        self._lowest: list[tuple[int, float, int]] = []  # priority, -start and number of jobs that run, sorted
        self._rank, self._place = [0] * len(jobs), [0] * len(jobs)
        self._reserved: tuple[int, float, Nodes] | None = None  # for whom, when, and what is free then
        self._lines = self._make_lines()
        self._usage = {job.user: _Usage(weights.get(job.user, 1.0)) for job in jobs}

    def add(self, number: int) -> None:
        """A job waits."""
        self._line(number).set(self._place[number], self._jobs[number].request_s)

    def release(self, number: int, now_s: float) -> None:
        """A job stops."""
        job, start_s = self._jobs[number], self._running[number].start_s
        self._let_go(number)
        remove(self._lowest, (job.priority, -start_s, number))
        self._usage[job.user].change(-job.gpus, now_s)

    def jobs_on(self, node: int) -> list[int]:
        """The jobs that run on a node."""
        return [n for n, one in self._running.items() if n >= 0 and any(place[0] == node for place in one.places)]

    def close(self, node: int, now_s: float, until_s: float) -> None:
        """Take a node away on which no job runs; `open` brings it back."""
        self._reserved = None
        self._hold(-1 - node, _Running(((node, self._nodes.sizes[node]),), now_s, until_s))

    def open(self, node: int) -> None:
        """Bring back a node."""
        self._let_go(-1 - node)

    def starts(self, now_s: float) -> Iterator[Start]:
        """Start jobs, as the policy has it, until none can start."""
        while (first := self._first(now_s)) is not None:
            victims = self._victims(first)
            for victim in victims:
                self.release(victim, now_s)
            if not self._nodes.fits(self._jobs[first].gpus):
                break
            yield Start(first, self._start(first, now_s), victims)
        if first is not None and self._policy == "backfill":
            yield from self._backfill(first, now_s)

    def _make_lines(self) -> dict[Any, _Line]:
        """A line for all; for backfill one per number of GPUs, as jobs of one fit alike; for fair one per user."""
        by_priority, groups = self._policy == "priority", dict[Any, list[int]]()
        order = sorted(
            range(len(self._jobs)), key=lambda n: (-self._jobs[n].priority * by_priority, self._jobs[n].at_s)
        )
        for rank, number in enumerate(order):
            group = groups.setdefault(self._group(number), [])
            self._rank[number], self._place[number] = rank, len(group)
            group.append(number)
        return {key: _Line(group) for key, group in groups.items()}

    def _group(self, number: int) -> int | str | None:
        if self._policy == "backfill":
            return self._jobs[number].gpus
        return self._jobs[number].user if self._policy == "fair" else None

    def _line(self, number: int) -> _Line:
        return self._lines[self._group(number)]

    def _first(self, now_s: float) -> int | None:
        """The job that goes next."""
        firsts = [number for line in self._lines.values() if (number := line.head) is not None]
        if self._policy == "fair":
            ranks = {number: self._usage[self._jobs[number].user].rank(now_s) for number in firsts}
            return min(firsts, key=lambda number: (ranks[number], self._rank[number]), default=None)
        return min(firsts, key=self._rank.__getitem__, default=None)

    def _start(self, number: int, now_s: float) -> Places:
        job = self._jobs[number]
        places = self._nodes.choose(job.gpus)
        self._line(number).set(self._place[number], inf)
        self._hold(number, _Running(places, now_s, now_s + job.request_s))
        insort(self._lowest, (job.priority, -now_s, number))
        self._usage[job.user].change(job.gpus, now_s)
        return places

    def _hold(self, number: int, running: _Running) -> None:
        self._nodes.take(running.places)
        self._running[number] = running
        insort(self._ends, (running.end_s, number))

    def _let_go(self, number: int) -> None:
        self._reserved = None
        running = self._running.pop(number)
        self._nodes.release(running.places)
        remove(self._ends, (running.end_s, number))

    def _backfill(self, first: int, now_s: float) -> Iterator[Start]:
        """Start later jobs that end before the reservation of the first one, or leave enough GPUs for it."""
        if not self._anyone_fits():
            return
        needed = self._jobs[first].gpus
        if self._reserved is None or self._reserved[0] != first or self._reserved[1] < now_s:
            self._reserved = first, *self._reserve(needed, now_s)
        _, reserved_s, later = self._reserved
        while (number := self._next_to_fill(needed, reserved_s - now_s, later)) is not None:
            places = self._start(number, now_s)
            if self._jobs[number].request_s > reserved_s - now_s:
                later.take(places)
            yield Start(number, places)

    def _anyone_fits(self) -> bool:
        """Whether there is room for a job that waits."""
        return any(line.head is not None and self._nodes.fits(gpus) for gpus, line in self._lines.items())

    def _reserve(self, gpus: int, now_s: float) -> tuple[float, Nodes]:
        """When a job of so many GPUs can start if all that runs ends as expected, and what is free then."""
        later, reserved_s = self._nodes.copy(), inf
        for end_s, number in self._ends:
            if end_s > reserved_s:
                break
            later.release(self._running[number].places)
            if reserved_s == inf and later.fits(gpus):
                reserved_s = max(end_s, now_s)
        return reserved_s, later

    def _next_to_fill(self, needed: int, window_s: float, later: Nodes) -> int | None:
        """The first job that can start now and ends within the window, or leaves what is needed later."""
        best, rank = None, self._rank
        for gpus, line in self._lines.items():
            head = line.head
            if head is None or not self._nodes.fits(gpus) or (best is not None and rank[head] > rank[best]):
                continue
            short = self._jobs[head].request_s <= window_s
            found = head if short or self._spares(gpus, needed, later) else line.first(window_s)
            if found is not None and (best is None or rank[found] < rank[best]):
                best = found
        return best

    def _spares(self, gpus: int, needed: int, later: Nodes) -> bool:
        """Whether a job of `needed` GPUs still fits later if one of `gpus` starts now and does not end before."""
        places = self._nodes.choose(gpus)
        later.take(places)
        spared = later.fits(needed)
        later.release(places)
        return spared

    def _victims(self, first: int) -> tuple[int, ...]:
        """The jobs to preempt so that this one can start; none if it fits, or if it cannot start even so."""
        job, chosen = self._jobs[first], list[int]()
        if not self._preempt or self._nodes.fits(job.gpus):
            return ()
        trial = self._nodes.copy()
        for priority, _, number in self._lowest:
            if priority >= job.priority or trial.fits(job.gpus):
                break
            trial.release(self._running[number].places)
            chosen.append(number)
        return tuple(self._needed(chosen, job.gpus, trial)) if trial.fits(job.gpus) else ()

    def _needed(self, victims: Sequence[int], gpus: int, trial: Nodes) -> Iterator[int]:
        """Victims without whose GPUs the job does not fit; those that lose most are spared first."""
        for number in reversed(victims):
            places = self._running[number].places
            trial.take(places)
            if not trial.fits(gpus):
                trial.release(places)
                yield number
