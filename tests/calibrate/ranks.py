"""Run under torchrun by the tests: every case in turn, in one set of processes. Arguments: a folder, a scenario."""

import os
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
P2P = {
    "p2p": [],
    "p2p_one_reader": ["update.readers=one"],
    "p2p_serial": ["update.pipeline=serial"],
    "p2p_three_stage": ["update.pipeline=three_stage"],
    "p2p_three_stage_end": ["update.pipeline=three_stage", "update.h2d_freed=end"],
    "p2p_fallback": ["update.h2d_buffer=false"],
    "p2p_one_listed": ["update.ranks=1", "update.inference.tp=1"],
    "p2p_one_listed_kept_group": ["update.ranks=1", "update.inference.tp=1", "update.process_group=kept"],
    "p2p_corrupt": ["update.inference.tp=1"],
}
if hasattr(os, "memfd_create"):
    CASES = {name: ["update.method=p2p", *changes] for name, changes in P2P.items()} | CASES


class FlipsOneBit(CpuBackend):
    """Spoils one byte of the n-th copy of a rank."""

    def __init__(self, n, byte):
        self.left, self.byte = n, byte

    def copy(self, target, source):
        target.copy_(source)
        self.left -= 1
        if self.left == 0:
            target[self.byte] ^= 1


SPOILS = {"corrupt": (3, -1), "p2p_corrupt": (1, 0)}  # a rank's first bucket after two copies and a reload; its read


def main(out, scenario):
    world = World.from_environment()
    with joined():
        for name, changes in CASES.items():
            backend = FlipsOneBit(*SPOILS[name]) if name in SPOILS else CpuBackend()
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
