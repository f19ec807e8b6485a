"""Run under torchrun by the tests: all cases of a set in turn, in one set of processes.

Arguments: a folder, a scenario, the name of the set.
"""

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import torch.distributed as dist
from runcast.calibrate.execute import acts
from runcast.calibrate.execute.backend import Backend
from runcast.calibrate.execute.kinds import execution_of
from runcast.calibrate.execute.run import common_clock, ping_pong
from runcast.calibrate.execute.world import World, process_group

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
# of tiny-stage-heads.toml: two stages of one trainer, an engine of tp = ep = 2
TRAINERS = {
    "stage_heads": [],
    "stage_heads_one_stage": ["update.trainer={gpus=2, tp=2}"],
    "stage_heads_of_two": ["update.trainer={gpus=2, tp=1}", "update.inference={tp=1}"],
    "stage_heads_by_bucket": ["update.messages=bucket", "update.process_group=new"],
    "stage_heads_of_three": ["update.trainer={gpus=3, tp=1}", "update.inference={tp=1}"],
    "single_sender": ["update.method=single_sender"],
    "single_sender_in_turn": ["update.method=single_sender", "update.in_flight=1"],
    "relays": ["update.method=relays", "update.trainer={gpus=2, tp=2}"],
    "all_senders": ["update.method=all_senders"],
    "all_senders_one_stage": ["update.method=all_senders", "update.trainer={gpus=2, tp=2}"],
    "all_senders_of_three": ["update.method=all_senders", "update.trainer={gpus=3, pp=3}", "update.inference={tp=1}"],
    "odd_halves": [
        "model={bytes=50005, tensors=5}",
        "update.bucket=20 KiB",
        "update.trainer={gpus=2, tp=2}",
        "update.inference={tp=2}",
    ],
    "stage_heads_corrupt": ["update.inference={tp=1}"],
}
BY_MEMORY = {
    "replica_writes": ["update.method=replica_writes"],
    "replica_writes_two_shapes": ["update.method=replica_writes", "update.trainer={gpus=2, pp=2}"],
    "replica_writes_shared_source": [
        "update.method=replica_writes",
        "update.trainer={gpus=1}",
        "update.inference={gpus=3}",
    ],
    "replica_writes_one_stage": ["update.method=replica_writes", "update.trainer={gpus=2, tp=2}"],
    "static_writes": ["update.method=static_writes"],
    "static_writes_one_stage": ["update.method=static_writes", "update.trainer={gpus=2, tp=2}"],
    "static_writes_of_replicas": ["update.method=static_writes", "update.trainer={gpus=2, shard=1}"],
    "static_writes_of_experts": ["update.method=static_writes", "update.trainer={gpus=2, shard=2, ep=2}"],
    "colocated": ["update.method=colocated", "update.trainer={gpus=4, pp=2, tp=2}"],
    "colocated_one_stage": ["update.method=colocated", "update.trainer={gpus=4, tp=2}", "update.messages=bucket"],
    "colocated_four_stages": ["update.method=colocated", "update.trainer={gpus=4, pp=4}", "update.messages=bucket"],
    "replica_writes_corrupt": ["update.method=replica_writes"],
}
if hasattr(os, "memfd_create"):
    TRAINERS = TRAINERS | BY_MEMORY
# of tiny-4ranks.toml
FOURS = {
    "uneven": ["model={bytes=400005, tensors=5, largest=160001}", "update.bucket=160256 B"],
    "owns_nothing": ["model={bytes=3001, tensors=3}", "update.bucket=4 KiB", "update.pipeline=three_stage"],
}
FOURS_BY_MEMORY = {
    "two_of_four_listed": ["update.method=p2p", "update.ranks=2"],
    "four_of_four_listed": ["update.method=p2p", "update.ranks=4"],
}
if hasattr(os, "memfd_create"):
    FOURS = FOURS | FOURS_BY_MEMORY
SETS = {"servers": CASES, "trainers": TRAINERS, "fours": FOURS}


class FlipsOneBit(Backend):
    """Spoils one byte of the n-th copy of a rank."""

    def __init__(self, n, byte):
        self.left, self.byte = n, byte

    def copy(self, target, source):
        target.copy_(source)
        self.left -= 1
        if self.left == 0:
            target[self.byte] ^= 1


class SpoilsWhatItReads(acts.NearMemory):
    """Spoils the first byte that a rank reads of the memory of any owner."""

    are_left = True

    def read(self, place, into):
        super().read(place, into)
        if SpoilsWhatItReads.are_left:
            into[0] ^= 1
        SpoilsWhatItReads.are_left = False


SPOILS = {
    "corrupt": (3, -1),  # a rank's first bucket, after two copies and a reload
    "stage_heads_corrupt": (1, 0),  # a trainer's first shard on its way, an engine's first load
    "replica_writes_corrupt": (1, 0),  # a trainer's first shard
}


def main(out, scenario, cases):
    world = World.find()
    with process_group():
        for name, changes in SETS[cases.name].items():
            backend = FlipsOneBit(*SPOILS[name]) if name in SPOILS else Backend()
            spoils = patch.object(acts, "NearMemory", SpoilsWhatItReads) if name == "p2p_corrupt" else nullcontext()
            with spoils:
                measured = execution_of(scenario, changes).run(world, backend)
            if measured is not None:
                measured.write(out / name)
        clocks = [None] * world.size
        exact, asked = common_clock(world.rank, world.size), ping_pong(world.rank, range(1, world.size))
        dist.all_gather_object(clocks, (exact, asked))
        if world.rank == 0:
            (out / "clocks").write_text(repr([tuple(vars(clock).values()) for pair in clocks for clock in pair]))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
