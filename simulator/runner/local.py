"""The interface of runners, and those of this machine: this process, or several."""

import multiprocessing
import os
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import SimpleQueue
from types import ModuleType
from typing import Any, Self, TypeVar

from ..base.memo import Memo, collect_seldom

Item = TypeVar("Item")
Result = TypeVar("Result")
Task = Callable[[Item, Memo], Result]
"""The result of an item; what many items need can be kept in the memo."""
DEATHS = 3
"""An item that kills this many processes, alone in each, is given up."""


@dataclass(frozen=True)
class Died:
    """Stands for a missing result: this many workers died one after another on the item."""

    workers: int

    @property
    def reason(self) -> str:
        """The reason for the user."""
        return f"its worker process died {self.workers} times, perhaps for lack of memory"


Results = Generator[list[tuple[Item, Result | Died]], None, None]
"""Items with their results, a chunk at a time; closing it ends the work."""


class Runner(ABC):
    """Runs tasks; leaving it as a context manager ends what it started."""

    @abstractmethod
    def run(self, task: Task[Item, Result], chunks: Iterator[Sequence[Item]]) -> Results[Item, Result]:
        """Run the task on all chunks."""

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...


class InProcess(Runner):
    """One chunk after the other, in this process."""

    def __init__(self) -> None:
        self._memo = Memo()

    def __exit__(self, *_: object) -> None:
        self._memo = Memo()  # files may change until it is used again

    def run(self, task: Task[Item, Result], chunks: Iterator[Sequence[Item]]) -> Results[Item, Result]:
        """Run the chunks in order."""
        return ([(item, task(item, self._memo)) for item in chunk] for chunk in chunks)


class Workers(Runner):
    """A runner whose workers may die, which raises `death` for what was under way."""

    death: type[Exception]

    @abstractmethod
    def capacity(self) -> int:
        """The largest number of chunks in progress."""

    @abstractmethod
    def submit(self, task: Task[Item, Result], chunk: Sequence[Item]) -> Any:
        """Start a chunk; its Future."""

    @abstractmethod
    def run_one_by_one(self, task: Task[Item, Result], items: Sequence[Item]) -> Results[Item, Result]:
        """Run each item while nothing else is under way, so that a death is its own."""

    def run(self, task: Task[Item, Result], chunks: Iterator[Sequence[Item]]) -> Results[Item, Result]:
        """Run all chunks, then the items of those during which a worker died."""
        under_way, suspects = dict[Any, Sequence[Item]](), list[Item]()
        done: SimpleQueue[Any] = SimpleQueue()
        while True:
            while len(under_way) < self.capacity() and (chunk := next(chunks, None)) is not None:
                future = self.submit(task, chunk)
                under_way[future] = chunk
                future.add_done_callback(done.put)
            if not under_way:
                break
            future = done.get()
            chunk = under_way.pop(future)
            try:
                results = future.result()
            except self.death:
                suspects.extend(chunk)
            else:
                yield list(zip(chunk, results, strict=True))
        yield from self.run_one_by_one(task, suspects)


class Processes(Workers):
    """`workers` processes of this machine. They end when it is left, and when this process dies, however it dies.

    While it is entered, SIGTERM ends this process as ^C does, so that nothing of theirs is left.
    """

    death = BrokenProcessPool

    def __init__(self, workers: int):
        self.workers = workers
        self._pool: ProcessPoolExecutor | None = None
        self._before: Any = None  # what SIGTERM did

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # others may set no handler
            self._before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
            self._before = None

    def _stop(self) -> None:
        if self._pool is not None:
            self._held.close()
            self._alive.close()
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def capacity(self) -> int:
        """Two chunks per process: one at work, one that waits."""
        return 2 * self.workers

    def submit(self, task: Task[Item, Result], chunk: Sequence[Item]) -> Any:
        """Start a chunk, with new processes if the last ones died."""
        with _bare_main():
            try:
                return self._start().submit(keep_memo, "", task, chunk)
            except BrokenProcessPool:
                self._stop()
                return self._start().submit(keep_memo, "", task, chunk)

    def run_one_by_one(self, task: Task[Item, Result], items: Sequence[Item]) -> Results[Item, Result]:
        """Run each item in the only process there is."""
        if items:
            self._stop()
            with Processes(1) as alone:
                for item in items:
                    yield [(item, alone._try(task, item))]

    def _try(self, task: Task[Item, Result], item: Item) -> Result | Died:
        for _ in range(DEATHS):
            try:
                result: Result = self.submit(task, [item]).result()[0]
                return result
            except BrokenProcessPool:
                pass
        return Died(DEATHS)

    def _start(self) -> ProcessPoolExecutor:
        """The pool, started if it is not there."""
        if self._pool is None:
            spawn = multiprocessing.get_context("spawn")
            self._alive, self._held = spawn.Pipe(duplex=False)
            self._pool = ProcessPoolExecutor(self.workers, spawn, initializer=_begin, initargs=(self._alive,))
        return self._pool


_MAIN = threading.Lock()  # threads that took turns within each other's would leave a bare module there


@contextmanager
def _bare_main() -> Iterator[None]:
    """Start processes that do not run the user's script again, as spawned ones do: tasks need nothing of it.

    A script without `if __name__ == "__main__"` would start workers in its workers, and one from stdin is no file.
    """
    with _MAIN:
        main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# In a worker.


def keep_memo(run: str, task: Task[Item, Result], items: Sequence[Item]) -> Sequence[Result]:
    """Results of items, with the memo of this run, which the worker's thread keeps from chunk to chunk.

    Another run must have another name where workers outlive it: files may have changed since.
    """
    memos: Memo = vars(threading.current_thread()).setdefault("runcast_memos", Memo(most=2))
    memo = memos.get("memo", run, Memo)
    return [task(item, memo) for item in items]


def _begin(alive: Connection) -> None:
    collect_seldom()
    end_with_parent(alive)


def end_with_parent(alive: Connection) -> None:
    """Leave ^C to the parent, and end when that closes its end of the pipe or dies."""

    def end_when_closed() -> None:
        alive.poll(None)  # nothing is ever sent: the other end was closed
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_when_closed, daemon=True).start()
