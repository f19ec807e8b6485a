"""A worker as its supervisor sees it: what it is started with, a process, what it tells, and how it ended."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from .place import Place
from .plan import Options

RESTART = 3
"""Exit code of a worker after a case that left the ranks out of step."""


@dataclass(frozen=True)
class Job:
    """What a worker is started with. `attempt` counts the workers of a rank; `stop_at` is a wall clock, 0 for never."""

    place: Place
    kind: str
    options: Options
    modules: tuple[str, ...] = ()
    attempt: int = 0
    stop_at: float = 0.0

    def to_text(self) -> str:
        """As `from_text` reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Job":
        """From what `to_text` gave."""
        values = json.loads(text)
        place, options = Place(**values["place"]), Options.from_json(values["options"])
        return cls(**values | {"place": place, "options": options, "modules": tuple(values["modules"])})


_PATIENCE_S = 5.0


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
        got = os.read(self._read, 1 << 20)
        self._open = bool(got)
        *lines, self._rest = (self._rest + got).split(b"\n")
        return [json.loads(line) for line in lines]

    @property
    def ended(self) -> int | None:
        """Its exit code, once it has ended and all it told was read; minus the signal that ended it."""
        return None if self._open else self._process.poll()

    def kill(self) -> None:
        """End it and what it has started; a driver may keep it for longer than anybody can wait."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE_S)
        os.close(self._read)
        self._open = False


def how(code: int) -> str:
    """How a process ended, in words."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
