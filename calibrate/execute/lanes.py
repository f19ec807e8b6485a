"""One thread per lane of a rank: runs its ops in lane order and takes the times. Knows nothing of torch."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Barrier, Event, Thread

from .parts import Part
from .world import Store


@dataclass(frozen=True)
class Stamp:
    """When a part was ready (all that it waits for had ended), started and ended: nanoseconds of the common clock."""

    op: int
    ready_ns: int
    start_ns: int
    end_ns: int


class _Turn:
    """A part's meeting point: its lanes arrive, one of them runs it, the others go on when it is done."""

    def __init__(self, part: Part):
        self.part, self.arrived, self.done = part, Barrier(len(part.lanes)), Event()
        self.end_ns = 0


def run_lanes(
    lanes: Mapping[int, Sequence[int]],
    parts: Mapping[int, Part],
    act: Callable[[int], None],
    rank: int,
    store: Store,
    offset_ns: int = 0,
    context: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> list[Stamp]:
    """Run all parts of a rank and return their stamps in the order of their ops.

    A part starts when it is at the head of all its lanes and all that it waits for has ended; other ranks tell their
    ends through the store. `act(op)` does the work and returns when it is finished; each lane's thread runs inside its
    own `context()`. The first error of any lane is raised at once; threads that still wait are daemons, and end with
    the process.
    """
    turns = {op: _Turn(part) for op, part in parts.items()}
    outcomes: SimpleQueue[list[Stamp] | BaseException] = SimpleQueue()

    def now_ns() -> int:
        return time.perf_counter_ns() + offset_ns

    def end_ns(op: int) -> int:
        turns[op].done.wait()
        return turns[op].end_ns

    def run_part(part: Part) -> Stamp:
        ends_ns = [0, *map(end_ns, part.after), *(store.read(f"end/{op}/{other}") for op, other in part.signals)]
        start_ns = now_ns()
        act(part.op)
        return Stamp(part.op, max(ends_ns), start_ns, now_ns())

    def walk(lane: int) -> list[Stamp]:
        """Of an op on several lanes, the first lane has the stamp."""
        stamps = []
        for turn in [turns[op] for op in lanes[lane]]:
            turn.arrived.wait()
            if turn.part.lanes[0] != lane:
                turn.done.wait()
                continue
            stamp = run_part(turn.part)
            stamps.append(stamp)
            turn.end_ns = stamp.end_ns
            turn.done.set()
            if turn.part.signalled:
                store.post(f"end/{stamp.op}/{rank}", stamp.end_ns)
        return stamps

    def follow(lane: int) -> None:
        try:
            with context():
                outcomes.put(walk(lane))
        except BaseException as error:
            outcomes.put(error)

    for lane in lanes:
        Thread(target=follow, args=(lane,), daemon=True, name=f"lane {lane}").start()
    stamps: list[Stamp] = []
    for _ in lanes:
        outcome = outcomes.get()
        if isinstance(outcome, BaseException):
            raise outcome
        stamps += outcome
    return sorted(stamps, key=lambda stamp: stamp.op)
