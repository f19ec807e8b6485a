"""Long work of a page, in a process of its own that is started afresh.

A fork of a server would begin with the locks that its other threads held at that moment, and wait for them for ever.
What such work needs is pickled: plain values, not the parts of a running app.
"""

from collections.abc import Callable
from contextlib import suppress
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any
from uuid import uuid4

from dash import DiskcacheManager
from diskcache import Cache
from multiprocess import active_children, get_context
from psutil import NoSuchProcess  # type: ignore[import-untyped]

from ..simulator.runner import end_with_parent

_MINUTES = 2  # from which on nobody counts seconds
PATIENCE_S = 5
"""Until a process that is told to end has ended."""


class Pace:
    """How long work still takes, from how far it came since it was first asked for that."""

    def __init__(self, now_s: Callable[[], float] = monotonic):
        self._now_s = now_s
        self._began: tuple[float, int] | None = None

    def left(self, done: int, total: int) -> str:
        """`, about 40 s left`, or nothing while nobody can tell."""
        now_s = self._now_s()
        if self._began is None or done < self._began[1]:
            self._began = now_s, done
        since_s, first = self._began
        if done <= first or done >= total:
            return ""
        left_s = (now_s - since_s) * (total - done) / (done - first)
        return f", about {left_s:,.0f} s left" if left_s < _MINUTES * 60 else f", about {left_s / 60:,.0f} min left"


def enabling(tell: Callable[[Any], None]) -> Callable[..., None]:
    """`tell` of work whose last progress is whether a button is disabled: all that it tells enables the button.

    By then the browser knows the process that works, so that a press of the button ends it.
    """
    return lambda *told: tell((*told, False))


class Spawning(DiskcacheManager):
    """Dash's manager, but for how a process is started, and for one that ends while it is told to.

    A browser knows a process from the answer to the question that starts it, and a press of Cancel before that ends
    nothing: see `enabling`.

    Processes end, and the folder of their results goes, when it is left; when this process is killed, they end too.
    """

    def __init__(self) -> None:
        self._results = TemporaryDirectory(prefix="runcast-dashboard-")  # of this user alone
        self._alive, self._held = get_context("spawn").Pipe(duplex=False)
        super().__init__(Cache(self._results.name))

    def build_cache_key(self, *said: Any) -> str:
        """A key of its own for each start: with one for equal questions, two tabs would get the answer of the first
        that ends, and end the work of the other.
        """
        return f"{super().build_cache_key(*said)}-{uuid4().hex}"

    def call_job_fn(self, key: str, job_fn: Any, args: Any, context: Any) -> int | None:
        """Start the work; what it returns goes to the cache."""
        work = (key, self._make_progress_key(key), args, context)
        process = get_context("spawn").Process(target=_work, args=(self._alive, job_fn, work))
        process.start()
        pid: int | None = process.pid
        return pid

    def terminate_job(self, job: Any) -> None:
        """End the work; it may have ended by itself between Dash's question whether it runs and the signal."""
        with suppress(NoSuchProcess):
            super().terminate_job(job)

    def __enter__(self) -> "Spawning":
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()
        for process in active_children():
            process.join(PATIENCE_S)
            process.kill()
        self.handle.close()
        self._results.cleanup()


def _work(alive: Any, job_fn: Any, work: tuple[Any, ...]) -> None:
    end_with_parent(alive)
    job_fn(*work)
