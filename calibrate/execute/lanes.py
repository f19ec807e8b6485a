"""One thread per lane of a rank: runs its ops in lane order and takes the times. Knows nothing of torch."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Barrier, Event, Thread
from typing import Any

from .parts import Part
from .world import Store


@dataclass(frozen=True)
class Stamp:
    """When a part was ready (all that it waits for had ended), started and ended: nanoseconds of the common clock."""

    op: int
    ready_ns: int
    start_ns: int
    end_ns: int


Mark = Any
"""The end of what a lane has issued so far: it may lie ahead, where a device works on."""


class Marks:
    """Time where a call returns when its work is done: a mark is nanoseconds. Devices that work on have events."""

    def __init__(self, offset_ns: int = 0):
        self._offset_ns = offset_ns

    def mark(self) -> Mark:
        """A mark behind all that the calling lane has issued."""
        return time.perf_counter_ns() + self._offset_ns

    def wait(self, mark: Mark) -> None:
        """What the calling lane issues from now on begins behind a mark of another lane."""

    def reached_ns(self, mark: Mark) -> int:
        """When a mark was reached, on the common clock; waits until then."""
        return int(mark)


class _Turn:
    """A part's meeting point: its lanes arrive, one of them runs it, the others go on when it is issued."""

    def __init__(self, part: Part):
        self.part, self.arrived, self.issued = part, Barrier(len(part.lanes)), Event()
        self.arrivals: list[Mark] = []
        self.end: Mark = None


@dataclass(frozen=True)
class _Run:
    """A part that was issued: the marks for which it waited, the times of its signals, its own marks."""

    op: int
    after: Sequence[Mark]
    signals_ns: Sequence[int]
    start: Mark
    end: Mark

    def stamp(self, marks: Marks) -> Stamp:
        """The times of all marks."""
        ready_ns = max([0, *map(marks.reached_ns, self.after), *self.signals_ns])
        return Stamp(self.op, ready_ns, marks.reached_ns(self.start), marks.reached_ns(self.end))


def run_lanes(
    lanes: Mapping[int, Sequence[int]],
    parts: Mapping[int, Part],
    act: Callable[[int], None],
    rank: int,
    store: Store,
    marks: Marks | None = None,
    context: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> list[Stamp]:
    """Run all parts of a rank and return their stamps in the order of their ops.

    A part starts when it is at the head of all its lanes and all that it waits for has ended; other ranks tell their
    ends through the store. `act(op)` issues the work of an op, or does it; each lane's thread runs inside its own
    `context()`. Lanes wait for each other's marks; the host waits for the end of an op only to tell it to other ranks.
    The first error of any lane is raised at once; threads that still wait are daemons, and end with the process.
    """
    turns, times = {op: _Turn(part) for op, part in parts.items()}, marks or Marks()
    outcomes: SimpleQueue[list[_Run] | BaseException] = SimpleQueue()

    def end_of(op: int) -> Mark:
        turns[op].issued.wait()
        return turns[op].end

    def run_part(turn: _Turn) -> _Run:
        part = turn.part
        after = [end_of(op) for op in part.after]
        signals_ns = [store.read(f"end/{op}/{other}") for op, other in part.signals]
        for mark in (*after, *turn.arrivals):
            times.wait(mark)
        start = times.mark()
        act(part.op)
        return _Run(part.op, after, signals_ns, start, times.mark())

    def walk(lane: int) -> list[_Run]:
        """Of an op on several lanes, the first lane has the run."""
        runs = []
        for turn in [turns[op] for op in lanes[lane]]:
            if len(turn.part.lanes) > 1:
                turn.arrivals.append(times.mark())
                turn.arrived.wait()
            if turn.part.lanes[0] != lane:
                turn.issued.wait()
                times.wait(turn.end)
                continue
            runs.append(run := run_part(turn))
            turn.end = run.end
            turn.issued.set()
            if turn.part.signalled:
                store.post(f"end/{run.op}/{rank}", times.reached_ns(run.end))
        return runs

    def follow(lane: int) -> None:
        try:
            with context():
                outcomes.put(walk(lane))
        except BaseException as error:
            outcomes.put(error)

    for lane in lanes:
        Thread(target=follow, args=(lane,), daemon=True, name=f"lane {lane}").start()
    runs: list[_Run] = []
    for _ in lanes:
        outcome = outcomes.get()
        if isinstance(outcome, BaseException):
            raise outcome
        runs += outcome
    return [run.stamp(times) for run in sorted(runs, key=lambda run: run.op)]
