"""What all runners share: the interface, and running chunks on workers that may die."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Protocol, Self, TypeVar

from ..base.memo import Memo

Item = TypeVar("Item")
Result = TypeVar("Result")
Made = TypeVar("Made", covariant=True)
Task = Callable[[Sequence[Item], Memo], Sequence[Result]]


@dataclass(frozen=True)
class Died:
    """In place of a result: this many workers, one after the other, did not survive the item."""

    workers: int

    @property
    def reason(self) -> str:
        """What happened, for the user."""
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


class Future(Protocol[Made]):
    """What futures of the standard library and of dask have in common."""

    def result(self) -> Made:
        """The results of a chunk, once they are there."""

    def add_done_callback(self, callback: Callable[[Any], object]) -> Any:
        """Call this with the future when it is done."""


class Workers(Runner):
    """A runner whose workers may die, which raises `death` for what was under way."""

    death: type[Exception]

    @abstractmethod
    def capacity(self) -> int:
        """How many chunks may be under way."""

    @abstractmethod
    def submit(self, task: Task[Item, Result], chunk: Sequence[Item]) -> Future[Sequence[Result]]:
        """Start a chunk."""

    @abstractmethod
    def run_one_by_one(self, task: Task[Item, Result], items: Sequence[Item]) -> Results[Item, Result]:
        """Run each item while nothing else is under way, so that a death is its own."""

    def run(self, task: Task[Item, Result], chunks: Iterator[Sequence[Item]]) -> Results[Item, Result]:
        """Run all chunks, then the items of those during which a worker died."""
        under_way, suspects = dict[Future[Sequence[Result]], Sequence[Item]](), list[Item]()
        done: SimpleQueue[Future[Sequence[Result]]] = SimpleQueue()
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


def keep_memo(run: str, task: Task[Item, Result], items: Sequence[Item]) -> Sequence[Result]:
    """In a worker: run a task with the memo of this run, which the worker's thread keeps from chunk to chunk.

    Another run must have another name where workers outlive it: files may have changed since.
    """
    memos: Memo = vars(threading.current_thread()).setdefault("runcast_memos", Memo(most=2))
    return task(items, memos.get("memo", run, Memo))
