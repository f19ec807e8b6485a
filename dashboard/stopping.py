"""Work in a thread that is ended from another one, where nobody waits for its result any more.

Searches and sweeps have processes of their own, which are ended (background.py). A prediction is kept and drawn by the
server that makes it, so it gets a thread. An exception is raised there between two instructions of Python: what numpy
or numba are at goes on to its end, five seconds of the largest steps at most.
"""

from collections.abc import Callable
from contextlib import suppress
from ctypes import c_ulong, py_object, pythonapi
from threading import Lock, Thread
from typing import TypeVar

from ..simulator.base.errors import UserError

_Value = TypeVar("_Value")


class StoppedError(UserError):
    """Nobody waits for the result any more."""

    def __init__(self) -> None:
        super().__init__("Stopped before the end.")


class _End(SystemExit):
    """Ends a thread; like every SystemExit it says nothing where it gets to the end of that."""


class Work:
    """Something that is run once, and may be stopped before it begins, too."""

    def __init__(self) -> None:
        self._lock, self._stopped = Lock(), False
        self._thread: Thread | None = None

    def stop(self) -> None:
        """End it, or let it not begin; what has ended stays as it is."""
        with self._lock:
            self._stopped = True
            if self._thread is not None and self._thread.is_alive():
                pythonapi.PyThreadState_SetAsyncExc(c_ulong(self._thread.ident or 0), py_object(_End))

    def run(self, make: Callable[[], _Value]) -> _Value:
        """What `make` returns; whatever it raises is raised here.

        Raises:
            StoppedError: it was stopped.
        """
        made, failed = list[_Value](), list[Exception]()

        def work() -> None:
            try:
                with suppress(_End):
                    made.append(make())
            except Exception as error:
                failed.append(error)

        with self._lock:
            if self._stopped:
                raise StoppedError
            self._thread = Thread(target=work, daemon=True)
            self._thread.start()
        self._thread.join()
        if failed:
            raise failed[0]
        if not made:
            raise StoppedError
        return made[0]
