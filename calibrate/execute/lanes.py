"""One thread per lane of a rank: runs its ops in lane order and takes the times. Knows nothing of torch."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Barrier, Event, Thread
from typing import Protocol

from .parts import Part


@dataclass(frozen=True)
class Stamp:
    """When a part was ready (all that it waits for had ended), started and ended: nanoseconds of the common clock."""

    op: int
    ready_ns: int
    start_ns: int
    end_ns: int


class Signals(Protocol):
    """Carries the end of a part to other ranks."""

    def send(self, op: int, end_ns: int) -> None:
        """Tell the others that this rank's part of the op ended then."""

    def wait(self, op: int, rank: int) -> int:
        """Wait until that rank's part of the op has ended, and return when it did."""


class _Turn:
    """A part's meeting point: its lanes arrive, one of them runs it, the others go on when it is done."""

    def __init__(self, part: Part):
        self.part, self.here, self.done = part, Barrier(len(part.lanes)), Event()
        self.end_ns = 0


def run_lanes(
    lanes: Mapping[int, Sequence[int]],
    parts: Mapping[int, Part],
    act: Callable[[int], None],
    signals: Callable[[], Signals],
    offset_ns: int = 0,
    context: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> list[Stamp]:
    """Run all parts of a rank and return their stamps in the order of their ops.

    A part starts when it is at the head of all its lanes and all that it waits for has ended. `act(op)` does the work
    and returns when it is finished; each lane's thread runs inside its own `context()` and has its own `signals()`.
    The first error of any lane is raised at once; threads that still wait are daemons, and end with the process.
    """
    turns = {op: _Turn(part) for op, part in parts.items()}
    outcome: SimpleQueue[list[Stamp] | BaseException] = SimpleQueue()

    def follow(lane: int) -> None:
        try:
            with context():
                outcome.put(_Follower(lane, turns, act, signals(), offset_ns).run(lanes[lane]))
        except BaseException as error:
            outcome.put(error)

    for lane in lanes:
        Thread(target=follow, args=(lane,), daemon=True, name=f"lane {lane}").start()
    stamps = [stamp for _ in lanes for stamp in _result(outcome.get())]
    return sorted(stamps, key=lambda stamp: stamp.op)


def _result(outcome: list[Stamp] | BaseException) -> list[Stamp]:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


@dataclass
class _Follower:
    """The thread of one lane."""

    lane: int
    turns: Mapping[int, _Turn]
    act: Callable[[int], None]
    signals: Signals
    offset_ns: int

    def run(self, ops: Sequence[int]) -> list[Stamp]:
        """Walk the lane; of an op on several lanes, the first lane has the stamp."""
        stamps = [self._pass(self.turns[op]) for op in ops]
        return [stamp for stamp in stamps if stamp is not None]

    def _pass(self, turn: _Turn) -> Stamp | None:
        turn.here.wait()
        if turn.part.lanes[0] != self.lane:
            turn.done.wait()
            return None
        stamp = self._perform(turn.part)
        turn.end_ns = stamp.end_ns
        turn.done.set()
        if turn.part.signalled:
            self.signals.send(stamp.op, stamp.end_ns)
        return stamp

    def _perform(self, part: Part) -> Stamp:
        ready = max((self._ended(other) for other in part.after), default=0)
        ready = max([ready, *(self.signals.wait(*signal) for signal in part.signals)])
        start = self._now_ns()
        self.act(part.op)
        return Stamp(part.op, ready, start, self._now_ns())

    def _ended(self, op: int) -> int:
        self.turns[op].done.wait()
        return self.turns[op].end_ns

    def _now_ns(self) -> int:
        return time.perf_counter_ns() + self.offset_ns
