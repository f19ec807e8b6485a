"""`runcast execute ARGUMENTS` of which a rank gets a signal in its first op.

Arguments: the rank, the signal, ARGUMENTS. By itself it starts its ranks as `runcast execute` does; under torchrun it
is one of them.
"""

import os
import sys
from signal import Signals

from runcast.calibrate.execute import world
from runcast.calibrate.execute.training import step
from runcast.simulator.cli import main as run

spawn = world.spawn


class Faulty(step.StepActor):
    """Gets the signal when all ranks have met, and wait for each other's ops."""

    def act(self, op):
        os.kill(os.getpid(), Signals[sys.argv[2]])
        super().act(op)


def main(rank, signal, *arguments):
    if os.environ.get("RANK") == rank:
        step.StepActor = Faulty
    world.spawn = lambda size, _, words: spawn(size, "tests.calibrate.faulty_rank", [rank, signal, *words])
    run(["execute", *arguments])


if __name__ == "__main__":
    main(*sys.argv[1:])
