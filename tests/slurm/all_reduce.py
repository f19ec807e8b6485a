"""Run under srun by the tests: every rank gives its number, and prints the sum."""

import os

import torch
import torch.distributed as dist

store = f"tcp://{os.environ['SLURM_STEP_NODELIST']}:{os.environ['PORT']}"
dist.init_process_group("gloo", store, rank=int(os.environ["SLURM_PROCID"]), world_size=int(os.environ["SLURM_NTASKS"]))
number = torch.tensor(dist.get_rank() + 1)
dist.all_reduce(number)
print(os.environ["SLURM_LOCALID"], os.environ["SLURM_NODEID"], int(number))
dist.destroy_process_group()
