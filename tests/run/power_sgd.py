"""A process that sends one bucket of gradients with PyTorch's PowerSGD hook, and prints how many values it counts.

Arguments: a file for the meeting of ranks, and the shapes of the gradients as JSON.
"""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

RANK = 3


class Bucket:
    """What PyTorch's hooks ask of a bucket of gradients."""

    def __init__(self, shapes):
        self.values = torch.randn(sum(n * m for n, m in shapes))
        self.parts = [
            part.view(shape) for part, shape in zip(self.values.split([n * m for n, m in shapes]), shapes, strict=True)
        ]

    def buffer(self):
        return self.values

    def gradients(self):
        return self.parts

    def index(self):
        return 0

    def is_last(self):
        return True


state = PowerSGDState(None, matrix_approximation_rank=RANK, start_powerSGD_iter=2)
state.iter = 2
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
powerSGD_hook(state, Bucket(json.loads(sys.argv[2]))).wait()
print(json.dumps(state.compression_stats()[1:]), flush=True)
os._exit(0)
