"""Tasks that workers of a test run instead of simulations; workers find them by this file's name."""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

from runcast.simulator.answers.sweep import Outcome, Point
from runcast.simulator.base.memo import Memo


def cheap(points: Sequence[Point], memo: Memo | None = None) -> list[Outcome]:
    """A row that depends on the number alone, at once."""
    return [Outcome(p.number, p.asked, "ok", "", p.asked, {"update_time_s": 1 + p.number / 7}) for p in points]


@dataclass(frozen=True)
class Deadly:
    """The same, but one point kills its worker; every start of it is a line in the file. Others take their time."""

    number: int
    log: str
    others_s: float = 0

    def __call__(self, points: Sequence[Point], memo: Memo) -> list[Outcome]:
        if self.number in [point.number for point in points]:
            with open(self.log, "a") as file:
                file.write(f"{len(points)}\n")
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.others_s)
        return cheap(points)
