"""Where points are computed: in this process or in a pool of others. `cluster` has the engine of many machines.

An engine runs a task on chunks of points and yields outcomes as they come, in any order. It takes the next chunk only
when a worker is about to be idle, so a sweep of any length needs no more memory than a short one.
"""

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Protocol

from ...base.memo import Memo
from ...base.processes import Processes
from .point import Outcome, Point, Task

Chunk = Sequence[Point]
Runs = Generator[list[Outcome], None, None]
"""Outcomes, a chunk at a time; closing it ends the work."""
KILLS = 3
"""A point that ends this many workers, alone in each, is given up."""


class Engine(Protocol):
    """Anything that runs a task on chunks of points."""

    def run(self, task: Task, chunks: Iterator[Chunk]) -> Runs:
        """Outcomes of all points of all chunks, a chunk at a time, in any order."""
        ...


class InProcess:
    """One chunk after the other, here."""

    def run(self, task: Task, chunks: Iterator[Chunk]) -> Runs:
        """Outcomes in order."""
        memo = Memo()
        return (task(chunk, memo) for chunk in chunks)


class Pool:
    """`workers` processes on this machine. A worker that dies is replaced, and what it was at is done again."""

    def __init__(self, workers: int):
        self._workers = workers

    def run(self, task: Task, chunks: Iterator[Chunk]) -> Runs:
        """Outcomes as workers end. After a death, the points that were under way are tried one by one."""
        while True:
            lost: list[Chunk] = []
            yield from self._until_broken(task, chunks, lost)
            if not lost:
                return
            yield from self._alone(task, [point for chunk in lost for point in chunk])

    def _until_broken(self, task: Task, chunks: Iterator[Chunk], lost: list[Chunk]) -> Runs:
        """All chunks, or those before a worker died; `lost` then holds the chunks that were under way."""
        flying: dict[Future[list[Outcome]], Chunk] = {}
        with Processes(self._workers) as pool:
            try:
                while True:
                    while len(flying) < 2 * self._workers and (chunk := next(chunks, None)) is not None:
                        lost.append(chunk)  # until it is under way
                        future = pool.submit(task, chunk)
                        flying[future] = lost.pop()
                    if not flying:
                        return
                    for future in wait(flying, return_when=FIRST_COMPLETED).done:
                        outcomes = future.result()
                        del flying[future]
                        yield outcomes
            except BrokenProcessPool:
                lost.extend(flying.values())

    def _alone(self, task: Task, points: Chunk) -> Runs:
        """Each point in a worker that does nothing else, so that a death is its own."""
        deaths = 0
        todo = list(reversed(points))
        while todo:
            try:
                with Processes(1) as pool:
                    while todo:
                        outcomes = pool.submit(task, [todo[-1]]).result()
                        todo.pop()
                        deaths = 0
                        yield outcomes
            except BrokenProcessPool:
                deaths += 1
                if deaths == KILLS:
                    yield [given_up(todo.pop(), deaths)]
                    deaths = 0


def given_up(point: Point, deaths: int) -> Outcome:
    """The outcome of a point that so many workers, one after the other, did not survive."""
    reason = f"its worker process died {deaths} times, perhaps for lack of memory"
    return Outcome(point.number, point.asked, "failed", reason, point.asked)
