"""One rank of a test: measures the smallest case of every kind. Arguments: a folder, rank, ranks, nodes, maybe `spoil`.

It writes whether each case had enough samples, and how many wrong elements. With `spoil` the last rank's results have a
wrong element.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from runcast.calibrate.measure.case import Facts
from runcast.calibrate.measure.cases import collectives, copies, handles, reload, send_recv
from runcast.calibrate.measure.device import CpuDevice
from runcast.calibrate.measure.timing import Bench

SPOILT = (
    *("all_reduce", "all_to_all_single", "broadcast"),
    *("all_gather_single", "reduce_scatter_single", "all_gather_into_tensor", "reduce_scatter_tensor"),
)
SIZES = ("bytes", "tensors")


def facts_of(ranks, nodes):
    each = ranks // nodes
    return Facts("cpu", tuple(tuple(range(n * each, (n + 1) * each)) for n in range(nodes)), numa_nodes=2)


def smallest(facts, spoil=False):
    """One case of every kind; where results are spoilt, those of several ranks only."""
    found = {}
    for family in [collectives, send_recv] if spoil else [collectives, send_recv, copies, reload, handles]:
        for case in sorted(family.cases(facts), key=lambda case: case.footprint_bytes):
            kind = {name: value for name, value in case.params.items() if name not in SIZES}
            found.setdefault((case.family, case.name, json.dumps(kind)), case)
    return list(found.values())


def exchange(group, ranks):
    def among(text):
        texts = [""] * ranks
        dist.all_gather_object(texts, text, group=group)
        return texts

    return among


def spoil_results():
    """After each collective of bf16 its first element is -1."""
    for name in SPOILT:
        if hasattr(dist, name):
            setattr(dist, name, spoilt(getattr(dist, name)))
    honest = send_recv._exchange

    def exchanged(bench, send=None, receive=None):
        honest(bench, send, receive)
        if receive:
            receive[0][0] = -1

    send_recv._exchange = exchanged


def spoilt(collective):
    def spoils(output, *args, **kwargs):
        collective(output, *args, **kwargs)
        if output.dtype == torch.bfloat16:
            output[0] = -1

    return spoils


def main(folder, rank, ranks, nodes, spoil=""):
    rank, ranks = int(rank), int(ranks)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    if spoil and rank == ranks - 1:
        spoil_results()
    copies.cpus_of = lambda _node: os.sched_getaffinity(0)
    facts = facts_of(ranks, int(nodes))
    cases = smallest(facts, bool(spoil))
    groups = {team: dist.new_group(list(team)) for team in sorted({case.team for case in cases if len(case.team) > 1})}
    seen = {}
    for case in cases:
        if rank in case.team:
            group = groups.get(case.team)
            talk = {"exchange": exchange(group, len(case.team))} if group else {}
            outcome = case.measure(Bench(CpuDevice(), 1e-5, rank, case.team, group, **talk))
            # how many steps ran beside another act is up to the scheduler; none at all is an error of its own
            fewest = 1 if "beside" in case.params else 5
            seen[case.key] = {"enough": len(outcome.samples_s) >= fewest, "wrong": outcome.wrong}
    Path(folder, f"{rank}.json").write_text(json.dumps(seen))
    dist.barrier()
    os._exit(0)  # as workers do: threads of Gloo may outlive the interpreter


if __name__ == "__main__":
    main(*sys.argv[1:])
