"""Run by a test: one rank of a step, where a tensor that is made without a device lands on `meta` and spoils the run.

Arguments: a scenario, then changes.
"""

import sys

import torch
import torch.distributed as dist
from runcast.calibrate.execute.backend import Backend
from runcast.calibrate.execute.training.step import StepActor
from runcast.calibrate.execute.world import TIMEOUT
from runcast.simulator.answers.compare.spans import unfold


def main(scenario, *changes):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    actor = StepActor(unfold(scenario, changes), 0, Backend(), TIMEOUT)
    actor.meet()
    torch.set_default_device("meta")
    for op in actor._acts:
        actor.act(op)
    torch.set_default_device("cpu")
    print(len(actor.check().wrong), "wrong")


if __name__ == "__main__":
    main(*sys.argv[1:])
