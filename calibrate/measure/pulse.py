"""Who is alive: every supervisor counts, and looks at the counts of others."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

from .ending import GO_ON, say
from .meeting import Board

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
        """Once a second.

        Raises:
            RunEndError: a rank has been silent for too long.
        """
        now = time.monotonic()
        if now < self.next:
            return
        self.count, self.next = self.count + 1, now + _BEAT_S
        self.board.post(f"alive/{self.rank}", self.count)
        for rank in self.others:
            count = self.board.seen(f"alive/{rank}")
            before, since = self.last.get(rank, (None, now))
            self.last[rank] = (count, since if count == before else now)
            if now - self.last[rank][1] > self.silence_s:
                self._lost(rank)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Inside it this process ends if no beat has come through for too long; its worker ends with it."""
        self.done.clear()
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
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

    def _lost(self, rank: int) -> None:
        line = f"rank {rank} has been silent for {self.silence_s:g} s and is lost"
        self.board.post_first("over", {"code": 1, "line": line})
