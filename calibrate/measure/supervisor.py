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
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from .job import RESTART, Job
from .leader import Leader
from .meeting import Board, Pulse
from .messages import GO_ON, RunEndError, say

_STEP_S = 0.2
_START_S = 300.0  # a worker imports torch, makes a context and joins groups
_GRACE_S = 5.0  # for the others, when one rank has failed at a case; and for a rank that waits for others
_KILL_S = 5.0  # a driver may keep a killed worker for longer than anybody can wait


class Child:
    """A running worker. It has a session of its own: ^C in a terminal reaches the supervisor only."""

    def __init__(self, job: Job):
        self._read, write = os.pipe()
        command = [sys.executable, "-m", f"{__package__}.worker", str(os.getpid()), str(write), job.to_text()]
        self._process = subprocess.Popen(
            command, pass_fds=(write,), stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True
        )
        os.close(write)
        self._rest = b""
        self._open = True

    def messages(self, patience_s: float) -> list[dict[str, Any]]:
        """What it has told since the last call; waits for the first of it."""
        if not self._open:
            time.sleep(patience_s)
            return []
        if not select.select([self._read], [], [], patience_s)[0]:
            return []
        text = os.read(self._read, 1 << 20)
        self._open = bool(text)
        *lines, self._rest = (self._rest + text).split(b"\n")
        return [json.loads(line) for line in lines]

    @property
    def exit_code(self) -> int | None:
        """Once it has ended and all it told was read; minus the signal that ended it."""
        return None if self._open else self._process.poll()

    def kill(self) -> None:
        """End it and what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_S)
        os.close(self._read)
        self._open = False


def describe_exit(code: int) -> str:
    """How a process ended, in words."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


@dataclass
class Watch:
    """The state of the current worker: its position in the plan, and its deadline there."""

    attempt: int
    deadline: float
    position: int | None = None
    limit_s: float = 0.0
    reason: str = ""  # that another rank has failed there


class Supervisor:
    """Starts and watches the workers of one rank until the run is over; rank 0's has a leader."""

    def __init__(self, job: Job, board: Board, leader: Leader | None, silence_s: float):
        self.job, self.board, self.leader = job, board, leader
        self.rank = job.place.rank
        self.pulse = Pulse(board, self.rank, job.place.ranks, silence_s)

    def run(self) -> int:
        """Worker after worker until rank 0 says that the run is over; returns the exit code."""
        try:
            with end_on_signals(self._name_rank), self.pulse.watch():
                self._run_workers()
        except RunEndError as end:
            self.board.end_run(end.code, end.line)
            self._leave()
            if end.line and not (end.code == 2 and self.rank):  # 2 is a mistake of the user's, which rank 0 tells
                say(f"error: {end.line if end.code == 2 else f'{end.line}; {GO_ON}'}")
            return end.code

    def _run_workers(self) -> NoReturn:
        attempt = 0
        while True:
            position = self._run_worker(attempt)
            attempt += 1
            self._offer(attempt, position)

    def _run_worker(self, attempt: int) -> int:
        """Watch one worker; returns the position after which a new one starts."""
        child = Child(replace(self.job, attempt=attempt))
        watch = Watch(attempt, time.monotonic() + _START_S)
        try:
            while True:
                self._handle_messages(child, watch)
                self._check_run()
                broken = self.board.peek(f"broken/{attempt}")
                if broken is not None:
                    self._handle_messages(child, watch, patience_s=0.0)  # it may have been done after all
                    if self.leader is not None:
                        self.leader.give_up(broken["position"], broken["reason"])
                    return int(broken["position"])
                code = child.exit_code
                if code == RESTART and watch.position is not None:
                    return watch.position
                if code == 0 and self.leader is not None:
                    self._finish()
                elif code:
                    how = describe_exit(code)
                    self._give_up(watch, f"its worker did not start: {how}", self._name_rank(f"its worker {how}"))
                self._check_deadline(watch)
        finally:
            child.kill()

    def _handle_messages(self, child: Child, watch: Watch, patience_s: float = _STEP_S) -> None:
        for message in child.messages(patience_s):
            if "begin" in message:
                watch.position, watch.limit_s = message["begin"], message["limit_s"]
                watch.deadline, watch.reason = time.monotonic() + watch.limit_s, ""
            elif "failed" in message:
                reason = f"rank {self.rank}: {message['reason']}"
                self.board.post_first(f"alarm/{watch.attempt}/{message['failed']}", reason)
            elif "mistake" in message:
                self.board.end_run(2, message["mistake"])
            elif "waiting" in message:
                watch.deadline += _GRACE_S  # whoever keeps it waiting is to be blamed, by its own supervisor
            if self.leader is not None:
                self.leader.handle(message)
                if "facts" in message:
                    self._offer(watch.attempt, -1)

    def _offer(self, attempt: int, after: int) -> None:
        """Rank 0 says what is left for the next workers; nothing ends the run."""
        if self.leader is not None:
            left = self.leader.todo(after)
            if not left:
                self._finish()
            self.board.post(f"todo/{attempt}", left)

    def _finish(self) -> None:
        self.board.end_run(0)
        self._check_run()

    def _check_run(self) -> None:
        """Is the run over? Is everybody alive?"""
        self.pulse.beat()
        over = self.board.peek("over")
        if over is not None:
            raise RunEndError(over["code"], over["line"])

    def _check_deadline(self, watch: Watch) -> None:
        alarm = self.board.peek(f"alarm/{watch.attempt}/{watch.position}")
        if alarm is not None and not watch.reason:
            watch.deadline, watch.reason = min(watch.deadline, time.monotonic() + _GRACE_S), alarm
        if time.monotonic() > watch.deadline:
            late = watch.reason or self._name_rank(f"timed out after {watch.limit_s:g} s")
            self._give_up(watch, f"its worker did not start within {_START_S:g} s", late)

    def _give_up(self, watch: Watch, unstarted: str, reason: str) -> None:
        """The visit for this reason, or the run if the worker has not begun one."""
        if watch.position is None:
            self.board.end_run(1, self._name_rank(unstarted))
        else:
            self.board.post_first(f"broken/{watch.attempt}", {"position": watch.position, "reason": reason})

    def _leave(self) -> None:
        """Whoever may hold the store goes last."""
        self.board.post(f"bye/{self.rank}", True)
        until = time.monotonic() + _GRACE_S
        others = list(range(1, self.job.place.ranks)) if self.rank == 0 else []
        while others and time.monotonic() < until:
            others = [rank for rank in others if not self.board.peek(f"bye/{rank}")]
            time.sleep(0.05)

    def _name_rank(self, text: str) -> str:
        """With the rank, where there are several."""
        return f"rank {self.rank}: {text}" if self.job.place.ranks > 1 else text


@contextlib.contextmanager
def end_on_signals(name_rank: Callable[[str], str]) -> Iterator[None]:
    """Inside it SIGTERM and ^C end the run in order."""

    def end(number: int, _frame: object) -> None:
        why = {signal.SIGINT: "interrupted", signal.SIGTERM: "ended by SIGTERM: by its launcher, or since a rank died"}
        raise RunEndError(128 + number, name_rank(why[signal.Signals(number)]))

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
