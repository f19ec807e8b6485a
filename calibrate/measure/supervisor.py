"""A supervisor: one per rank, started by torchrun, srun or a shell. It starts a worker, watches it, and replaces it.

Between workers nothing is kept but the plan's position: a case that hangs or crashes on one rank is given up on all,
recorded, and the next one is measured by fresh workers. Supervisors speak through the board only:

| name | who | what |
|---|---|---|
| `alive/<rank>` | each | a count that grows while the supervisor lives |
| `alarm/<attempt>/<position>` | who sees it first | a rank has failed at a case: the others need not wait long |
| `broken/<attempt>` | who sees it first | a rank has lost its worker: all start a new one after that position |
| `todo/<attempt>` | rank 0 | the positions that are left |
| `over` | rank 0, or who misses it | the run has ended, with which exit code and line |
| `bye/<rank>` | each | has seen that; whoever holds the store may go |
"""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from .child import RESTART, Child, Job, how
from .meeting import Board, Pulse
from .telling import GO_ON, RunEndError, say

_STEP_S = 0.2
_START_S = 300.0  # a worker imports torch, makes a context and joins groups
_GRACE_S = 5.0  # for the others, when one rank has failed at a case; and for a rank that waits for others


class Listener(Protocol):
    """What rank 0 does beside supervising: the file, the plan, the progress."""

    def heard(self, message: dict[str, Any]) -> None:
        """A worker of this rank told something."""

    def gave_up(self, position: int, reason: str) -> None:
        """No rank will finish this visit."""

    def todo(self, after: int) -> list[int]:
        """The positions that are left after that one."""


@dataclass
class Watch:
    """Where the current worker is: its position in the plan, and until when it may stay there."""

    deadline: float
    position: int | None = None
    limit_s: float = 0.0
    reason: str = ""  # that another rank has failed there


class Supervisor:
    """Starts and watches the workers of one rank until the run is over."""

    def __init__(self, job: Job, board: Board, listener: Listener | None, silence_s: float):
        self.job, self.board, self.listener = job, board, listener
        self.rank = job.place.rank
        self.pulse = Pulse(board, self.rank, job.place.ranks, silence_s)

    def run(self) -> int:
        """Worker after worker until rank 0 says that the run is over; returns the exit code."""
        try:
            with signals_end(self._mine), self.pulse.watched():
                self._workers()
        except RunEndError as end:
            self.board.post_first("over", {"code": end.code, "line": end.line})
            self._leave()
            if end.code == 2 and self.rank:
                return 2  # a mistake of the user's, which rank 0 tells
            if end.line:
                line = end.line if end.code == 2 else f"{end.line}; {GO_ON}"
                say(f"error: {line}")
            return end.code
        return 0

    def _workers(self) -> None:
        attempt = 0
        while True:
            position = self._attempt(attempt)
            attempt += 1
            if self.listener is not None:
                self._offer(attempt, position)

    def _offer(self, attempt: int, after: int) -> None:
        left = self.listener.todo(after) if self.listener else []
        if not left:
            self._finish()
        self.board.post(f"todo/{attempt}", left)

    def _finish(self) -> None:
        self.board.post_first("over", {"code": 0, "line": ""})
        self._look()

    def _attempt(self, attempt: int) -> int:
        """Watch one worker; returns the position after which a new one starts."""
        child = Child(replace(self.job, attempt=attempt))
        watch = Watch(time.monotonic() + _START_S)
        try:
            while True:
                self._hear(child, attempt, watch)
                self._look()
                broken = self.board.seen(f"broken/{attempt}")
                if broken is not None:
                    self._hear(child, attempt, watch, patience_s=0.0)  # it may have been done after all
                    return self._broken(broken)
                if child.ended is not None:
                    if child.ended == RESTART and watch.position is not None:
                        return watch.position
                    self._ended(child.ended, attempt, watch)
                self._check_deadline(attempt, watch)
        finally:
            child.kill()

    def _hear(self, child: Child, attempt: int, watch: Watch, patience_s: float = _STEP_S) -> None:
        for message in child.messages(patience_s):
            now = time.monotonic()
            if "begin" in message:
                watch.position, watch.limit_s = message["begin"], message["limit_s"]
                watch.deadline, watch.reason = now + watch.limit_s, ""
            elif "failed" in message:
                reason = f"rank {self.rank}: {message['reason']}"
                self.board.post_first(f"alarm/{attempt}/{message['failed']}", reason)
            elif "mistake" in message:
                self.board.post_first("over", {"code": 2, "line": message["mistake"]})
            elif "waiting" in message:
                watch.deadline += _GRACE_S  # whoever keeps it waiting is to be blamed, by its own supervisor
            if self.listener is not None:
                self.listener.heard(message)
                if "facts" in message:
                    self._offer(attempt, -1)

    def _look(self) -> None:
        """Is the run over? Is everybody alive?"""
        self.pulse.beat()
        over = self.board.seen("over")
        if over is not None:
            raise RunEndError(over["code"], over["line"])

    def _leave(self) -> None:
        """Whoever may hold the store goes last."""
        self.board.post(f"bye/{self.rank}", True)
        until = time.monotonic() + _GRACE_S
        others = list(range(1, self.job.place.ranks)) if self.rank == 0 else []
        while others and time.monotonic() < until:
            others = [rank for rank in others if not self.board.seen(f"bye/{rank}")]
            time.sleep(0.05)

    def _ended(self, code: int, attempt: int, watch: Watch) -> None:
        if code == 0:
            if self.listener is not None:
                self._finish()
        elif watch.position is None:
            self.board.post_first("over", {"code": 1, "line": self._mine(f"its worker did not start: {how(code)}")})
        else:
            self._give_up(attempt, watch, self._mine(f"its worker {how(code)}"))

    def _check_deadline(self, attempt: int, watch: Watch) -> None:
        alarm = self.board.seen(f"alarm/{attempt}/{watch.position}")
        if alarm is not None and not watch.reason:
            watch.deadline, watch.reason = min(watch.deadline, time.monotonic() + _GRACE_S), alarm
        if time.monotonic() > watch.deadline:
            if watch.position is None:
                line = f"its worker did not start within {_START_S:g} s"
                self.board.post_first("over", {"code": 1, "line": self._mine(line)})
            else:
                late = self._mine(f"timed out after {watch.limit_s:g} s")
                self._give_up(attempt, watch, watch.reason or late)

    def _give_up(self, attempt: int, watch: Watch, reason: str) -> None:
        self.board.post_first(f"broken/{attempt}", {"position": watch.position, "reason": reason})

    def _mine(self, text: str) -> str:
        """With the rank, where there are several."""
        return f"rank {self.rank}: {text}" if self.job.place.ranks > 1 else text

    def _broken(self, broken: dict[str, Any]) -> int:
        if self.listener is not None:
            self.listener.gave_up(broken["position"], broken["reason"])
        return int(broken["position"])


@contextlib.contextmanager
def signals_end(mine: Callable[[str], str]) -> Iterator[None]:
    """Inside it SIGTERM and ^C end the run in order."""

    def end(number: int, _frame: object) -> None:
        told = {signal.SIGINT: "interrupted", signal.SIGTERM: "ended by SIGTERM: by its launcher, or since a rank died"}
        raise RunEndError(128 + number, mine(told[signal.Signals(number)]))

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
