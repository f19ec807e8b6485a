"""Processes that work for this one, and end with it however it ends."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing.connection import Connection
from typing import TypeVar

from .memo import Memo, collect_seldom

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


class Processes:
    """A pool whose workers end when it is left, and when this process dies, however that happens.

    A worker keeps one Memo from task to task. A worker that dies breaks the pool (`BrokenProcessPool`).
    """

    def __init__(self, workers: int):
        self._alive, self._held = multiprocessing.get_context("spawn").Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(
            workers, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(self._alive,)
        )

    def submit(self, task: Callable[[_Given, Memo], _Made], given: _Given) -> "Future[_Made]":
        """A task under way."""
        return self._pool.submit(with_memo, "", task, given)

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()
        self._alive.close()
        self._pool.shutdown(cancel_futures=True)


def with_memo(run: str, task: Callable[[_Given, Memo], _Made], given: _Given) -> _Made:
    """In a worker: a task with the memo of this run, which the worker's thread keeps from one task to the next.

    Another run must have another name where workers outlive it: files may have changed since.
    """
    memos: Memo = vars(threading.current_thread()).setdefault("runcast_memos", Memo(most=2))
    return task(given, memos.get("memo", run, Memo))


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def end_with_parent(alive: Connection) -> None:
    """In a process that was started: leave ^C to its parent, and end when that closes its end of the pipe or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_when_closed, args=(alive,), daemon=True).start()


def _begin(alive: Connection) -> None:
    collect_seldom()
    end_with_parent(alive)


def _end_when_closed(alive: Connection) -> None:
    alive.poll(None)  # nothing is ever sent: the other end was closed
    os._exit(1)
