"""Run under torchrun by a test: a step in which rank 2 never ends its loss. Argument: a scenario."""

import sys
import time
from datetime import timedelta
from pathlib import Path

from runcast.calibrate.execute.backend import Backend
from runcast.calibrate.execute.kinds import execution_of
from runcast.calibrate.execute.training import step
from runcast.calibrate.execute.world import World


class Hangs(step.StepActor):
    """Ends every op but the loss."""

    def act(self, op):
        if self.view.program.names[op].startswith("loss "):
            time.sleep(600)
        super().act(op)


def main(scenario):
    world = World.find(timedelta(seconds=5))
    with world.report_once():
        if world.rank == 2:
            step.StepActor = Hangs
        execution_of(Path(scenario), ["parallel.pp=1"]).run(world, Backend())


if __name__ == "__main__":
    main(*sys.argv[1:])
