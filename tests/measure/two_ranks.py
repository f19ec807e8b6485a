"""One of two ranks on Gloo: `two_ranks.py RANK STORE` measures cases that need both, and prints what it saw."""

import json
import os
import sys

import torch
import torch.distributed as dist
from runcast.calibrate.measure.case import Facts
from runcast.calibrate.measure.cases import interference, overheads
from runcast.calibrate.measure.device import CpuDevice
from runcast.calibrate.measure.timing import Bench

rank, store = int(sys.argv[1]), sys.argv[2]
facts = Facts("cpu", ((0, 1),))
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)


def exchange(text):
    texts = [None, None]
    dist.all_gather_object(texts, text)
    return texts


bench = Bench(CpuDevice(), 0.005, rank, (0, 1), dist.group.WORLD, exchange)
beside = next(case for case in interference.cases(facts) if case.params["beside"] == "all_reduce")
call = next(case for case in overheads.cases(facts) if case.name == "collective_call")
found = beside.measure(bench)
called = call.measure(bench)
seen = {"samples": len(found.samples_s), "more": dict(found.more), "calls": len(called.samples_s)}
print(json.dumps(seen), flush=True)
dist.barrier()
os._exit(0)  # as workers do: threads of Gloo may outlive the interpreter
