"""How the processes of a run meet: one key-value store, and who is alive.

Every supervisor counts its beats in the store, and looks at the counts of others.
"""

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from .job import Place
from .messages import GO_ON, say

_CONNECT = timedelta(minutes=5)  # nodes of a job may start one after the other
_FOREVER = timedelta(days=7)  # whoever waits this long is ended by its supervisor


class Board:
    """Values that processes leave for each other, as JSON; written once per name.

    Raises (any method):
        ConnectionError: whoever holds the store has gone.
    """

    def __init__(self, place: Place, holds: bool = False):
        self.place = place
        address = place.host, place.port
        store = _call_store(lambda: dist.TCPStore(*address, is_master=holds, wait_for_workers=False, timeout=_CONNECT))
        self.port: int = store.port
        self._store = dist.PrefixStore(f"runcast/{place.epoch}", store)

    def post(self, name: str, value: Any) -> None:
        """Leave a value."""
        _call_store(lambda: self._store.set(name, json.dumps(value)))

    def post_first(self, name: str, value: Any) -> None:
        """Leave a value, unless somebody has already."""
        _call_store(lambda: self._store.compare_set(name, "", json.dumps(value)))

    def end_run(self, code: int, line: str = "") -> None:
        """The run is over with this exit code and line, unless somebody has ended it already."""
        self.post_first("over", {"code": code, "line": line})

    def peek(self, name: str) -> Any:
        """The value if it is there, else None."""
        return self.read(name) if _call_store(lambda: self._store.check([name])) else None

    def read(self, name: str) -> Any:
        """The value, once it is there."""

        def wait() -> bytes:
            self._store.wait([name], _FOREVER)
            return bytes(self._store.get(name))

        return json.loads(_call_store(wait))

    def gather(self, name: str, value: Any) -> list[Any]:
        """Every rank leaves a value; rank 0 gets all of them, in order, and the others nothing."""
        self.post(f"{name}/{self.place.rank}", value)
        return [self.read(f"{name}/{rank}") for rank in range(self.place.ranks)] if self.place.rank == 0 else []

    def forget(self, name: str) -> None:
        """Nobody reads it any more."""
        _call_store(lambda: self._store.delete_key(name))

    def prefix_store(self, prefix: str) -> Any:
        """A store for torch.distributed, which keeps its own keys there."""
        return dist.PrefixStore(prefix, self._store)


def _call_store(act: Callable[[], Any]) -> Any:
    """What the store does, its own errors (torch's DistError is a RuntimeError) as one line."""
    try:
        return act()
    except RuntimeError as error:
        raise ConnectionError(str(error).partition("\n")[0]) from None


_BEAT_S = 1.0
_LAST_S = 5.0  # beyond the silence: a store that is gone rather than slow is noticed by the call itself


class Pulse:
    """Tells that this supervisor lives, and looks whether the others do: rank 0 at all, all at rank 0.

    A node that loses its power says no goodbye: then a call of the store never returns, which only a thread notices.
    """

    def __init__(self, board: Board, rank: int, ranks: int, silence_s: float):
        self.board, self.rank, self.silence_s = board, rank, silence_s
        self.others = range(1, ranks) if rank == 0 else range(1)
        self.last: dict[int, tuple[Any, float]] = {}
        self.count, self.next = 0, 0.0
        self.done = threading.Event()

    def beat(self) -> None:
        """Once a second; a rank that has been silent for too long ends the run."""
        now = time.monotonic()
        if now < self.next:
            return
        self.count, self.next = self.count + 1, now + _BEAT_S
        self.board.post(f"alive/{self.rank}", self.count)
        for rank in self.others:
            count = self.board.peek(f"alive/{rank}")
            before, since = self.last.get(rank, (None, now))
            self.last[rank] = (count, since if count == before else now)
            if now - self.last[rank][1] > self.silence_s:
                self.board.end_run(1, f"rank {rank} has been silent for {self.silence_s:g} s and is lost")

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Inside it this process ends if no beat has come through for too long; its worker ends with it."""
        self.done.clear()
        threading.Thread(target=self._watch, daemon=True).start()
        try:
            yield
        finally:
            self.done.set()

    def _watch(self) -> None:
        count, since = self.count, time.monotonic()
        while not self.done.wait(_BEAT_S):
            if self.count != count:
                count, since = self.count, time.monotonic()
            elif time.monotonic() - since > self.silence_s + _LAST_S:
                say(f"error: rank {self.rank}: the store of rank 0 or of the launcher does not answer; {GO_ON}")
                os._exit(1)
