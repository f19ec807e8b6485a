"""Long work of a page, in a process of its own that is started afresh.

A fork of a server would begin with the locks that its other threads held at that moment, and wait for them for ever.
What such work needs is pickled: plain values, not the parts of a running app.
"""

from contextlib import suppress
from typing import Any

from dash import DiskcacheManager
from multiprocess import get_context
from psutil import NoSuchProcess  # type: ignore[import-untyped]


class Spawning(DiskcacheManager):
    """Dash's manager, but for how a process is started, and for one that ends while it is told to."""

    def call_job_fn(self, key: str, job_fn: Any, args: Any, context: Any) -> int | None:
        """Start the work; what it returns goes to the cache."""
        work = (key, self._make_progress_key(key), args, context)
        process = get_context("spawn").Process(target=job_fn, args=work)
        process.start()
        pid: int | None = process.pid
        return pid

    def terminate_job(self, job: Any) -> None:
        """End the work; it may have ended by itself between Dash's question whether it runs and the signal."""
        with suppress(NoSuchProcess):
            super().terminate_job(job)
