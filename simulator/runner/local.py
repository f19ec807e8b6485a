"""Runners of this machine: this process, or several."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection

from ..base.memo import Memo, collect_seldom
from .workers import Died, Future, Item, Result, Results, Runner, Task, Workers, keep_memo

DEATHS = 3
"""An item that kills this many processes, alone in each, is given up."""


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class InProcess(Runner):
    """One chunk after the other, in this process."""

    def __init__(self) -> None:
        self._memo = Memo()

    def __exit__(self, *_: object) -> None:
        self._memo = Memo()  # files may change until it is used again

    def run(self, task: Task[Item, Result], chunks: Iterator[Sequence[Item]]) -> Results[Item, Result]:
        """Run the chunks in order."""
        return (list(zip(chunk, task(chunk, self._memo), strict=True)) for chunk in chunks)


class Processes(Workers):
    """`workers` processes of this machine. They end when it is left, and when this process dies, however it dies."""

    death = BrokenProcessPool

    def __init__(self, workers: int):
        self.workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._held.close()
            self._alive.close()
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def capacity(self) -> int:
        """Two chunks per process: one at work, one that waits."""
        return 2 * self.workers

    def submit(self, task: Task[Item, Result], chunk: Sequence[Item]) -> Future[Sequence[Result]]:
        """Start a chunk, with new processes if the last ones died."""
        try:
            return self._started().submit(keep_memo, "", task, chunk)
        except BrokenProcessPool:
            self.__exit__()
            return self._started().submit(keep_memo, "", task, chunk)

    def run_one_by_one(self, task: Task[Item, Result], items: Sequence[Item]) -> Results[Item, Result]:
        """Run each item in the only process there is."""
        if items:
            self.__exit__()
            with Processes(1) as alone:
                for item in items:
                    yield [(item, alone._result(task, item))]

    def _result(self, task: Task[Item, Result], item: Item) -> Result | Died:
        for _ in range(DEATHS):
            try:
                return self.submit(task, [item]).result()[0]
            except BrokenProcessPool:
                pass
        return Died(DEATHS)

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            spawn = multiprocessing.get_context("spawn")
            self._alive, self._held = spawn.Pipe(duplex=False)
            self._pool = ProcessPoolExecutor(self.workers, spawn, initializer=_begin, initargs=(self._alive,))
        return self._pool


def _begin(alive: Connection) -> None:
    collect_seldom()
    end_with_parent(alive)


def end_with_parent(alive: Connection) -> None:
    """In a process that was started: leave ^C to its parent, and end when that closes its end of the pipe or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_when_closed, args=(alive,), daemon=True).start()


def _end_when_closed(alive: Connection) -> None:
    alive.poll(None)  # nothing is ever sent: the other end was closed
    os._exit(1)
