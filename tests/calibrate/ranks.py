"""Run under torchrun by the tests: every case in turn, in one set of processes. Arguments: a folder, a scenario."""

import sys
from pathlib import Path

import torch.distributed as dist
from runcast.calibrate.compare import unfolded
from runcast.calibrate.execute.backend import CpuBackend
from runcast.calibrate.execute.clock import common_clock, ping_pong
from runcast.calibrate.execute.run import execute_rank
from runcast.calibrate.execute.world import World, joined

CASES = {
    "two_stage": [],
    "serial": ["update.pipeline=serial"],
    "three_stage": ["update.pipeline=three_stage"],
    "three_stage_end": ["update.pipeline=three_stage", "update.h2d_freed=end"],
    "fallback": ["update.h2d_buffer=false"],
    "kept_group": ["update.process_group=kept"],
    "corrupt": ["update.inference.tp=1"],
}


class FlipsOneBit(CpuBackend):
    """Spoils the last byte of the third copy of a rank."""

    copies = 0

    def copy(self, target, source):
        target.copy_(source)
        self.copies += 1
        if self.copies == 3:
            target[-1] ^= 1


def main(out, scenario):
    world = World.from_environment()
    with joined():
        for name, changes in CASES.items():
            backend = FlipsOneBit() if name == "corrupt" else CpuBackend()
            measured = execute_rank(unfolded(scenario, changes), world, backend)
            if measured is not None:
                measured.write(out / name)
        clocks = [None] * world.size
        exact, asked = common_clock(world.rank, world.size), ping_pong(world.rank, range(1, world.size))
        dist.all_gather_object(clocks, (exact, asked))
        if world.rank == 0:
            (out / "clocks").write_text(repr([tuple(vars(clock).values()) for pair in clocks for clock in pair]))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
