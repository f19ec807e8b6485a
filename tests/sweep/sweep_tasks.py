"""Tasks that workers of a test run instead of simulations; workers find them by this file's name."""

import os
import signal
import time
from dataclasses import dataclass

from runcast.simulator.answers.sweep import Outcome, Point
from runcast.simulator.base.memo import Memo


def cheap(point: Point, memo: Memo | None = None) -> Outcome:
    """A row that depends on the number alone, at once."""
    return Outcome(point.number, point.asked, "ok", "", point.asked, {"update_time_s": 1 + point.number / 7})


@dataclass(frozen=True)
class Deadly:
    """The same, but one point kills its worker; every start of it is a line in the file. Others take their time."""

    number: int
    log: str
    others_s: float = 0

    def __call__(self, point: Point, memo: Memo) -> Outcome:
        if point.number == self.number:
            with open(self.log, "a") as file:
                file.write("started\n")
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.others_s)
        return cheap(point)
