"""All ranks of a step as threads of this process: exchanges are meetings in memory, all else as between processes."""

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Condition

import torch
import torch.distributed as dist
from runcast.calibrate.execute.backend import Backend
from runcast.calibrate.execute.lanes import run_lanes
from runcast.calibrate.execute.training import step
from runcast.calibrate.execute.training.exchanges import Exchanges
from runcast.calibrate.execute.world import TIMEOUT

WAIT_S = 20


class Hub:
    """Where ranks meet: the n-th exchange of a group has a value of each of them."""

    def __init__(self):
        self.changed, self.values = Condition(), defaultdict(dict)
        self.counts, self.messages = defaultdict(int), defaultdict(SimpleQueue)

    def meet(self, key, rank, value):
        """The values of all ranks of a group, in order."""
        with self.changed:
            there = self.values[key, self.counts[key, rank]]
            self.counts[key, rank] += 1
            there[rank] = value
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: len(there) == len(key[1]), WAIT_S), f"rank {rank} waits in {key}"
        return [there[each] for each in key[1]]


class Meetings(Exchanges):
    """The exchanges of one rank."""

    def __init__(self, hub, rank):
        self.hub, self.rank = hub, rank

    def meet(self):
        pass

    def gather(self, key, rows):
        return torch.cat(self.hub.meet(key, self.rank, rows))

    def reduce_scatter(self, key, rows):
        return sum(self.hub.meet(key, self.rank, rows)).chunk(len(key[1]))[key[1].index(self.rank)]

    def all_reduce(self, key, values):
        return sum(self.hub.meet(key, self.rank, values.clone()))

    def exchange(self, key, rows, sent, received):
        every = self.hub.meet(key, self.rank, rows.split(list(sent)))
        return torch.cat([parts[key[1].index(self.rank)] for parts in every])

    def swap(self, key, to, of, rows):
        return self.hub.meet(key, self.rank, rows)[key[1].index(of)]

    def send(self, key, to, rows):
        self.hub.messages[key, to].put(rows.clone())

    def receive(self, key, of, rows):
        return self.hub.messages[key, self.rank].get(timeout=WAIT_S)


def wrong_values(resolved):
    """Run a resolved step; the names of all wrong gradients and weights of all ranks."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    made, hub, threads = step.Exchanges, Hub(), torch.get_num_threads()
    torch.set_num_threads(1)
    step.Exchanges = lambda keys, rank, *_: Meetings(hub, rank)
    try:
        return [name for actor in _run(resolved) for name in actor.check().wrong]
    finally:
        step.Exchanges = made
        torch.set_num_threads(threads)
        dist.destroy_process_group()


def _run(resolved):
    parts, ranks = step.StepParts(resolved.program), range(resolved.plan.dims.world_size)
    actors = [step.StepActor(resolved, rank, Backend(), TIMEOUT) for rank in ranks]

    def run(rank):
        run_lanes(parts.lanes(rank), parts.rank_parts(rank), actors[rank].act, rank, None)

    with ThreadPoolExecutor(len(ranks)) as pool:
        list(pool.map(run, ranks))
    return actors
