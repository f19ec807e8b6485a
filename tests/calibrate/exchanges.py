"""Real processes run algorithms of collectives, and the library's own collective on the same numbers."""

import torch.distributed as dist
from runcast.calibrate.execute.blocks import ELEMENT_BYTES, first_blocks, library, wrong_rows
from runcast.calibrate.execute.collectives import Start
from runcast.calibrate.execute.exchanging import Messenger, make_ways
from runcast.calibrate.execute.run import common_clock
from runcast.simulator.collectives.algorithms import OPS, algorithms
from runcast.simulator.collectives.algorithms.messages import Group

ALL = [one for op in OPS for one in algorithms(op).values()]
ROOTED = ("broadcast", "reduce", "gather", "scatter")
HOT = (3.0, 1.0, 0.5, 2.0, 1.0, 1.5, 0.2, 1.0)  # what ranks receive of an all-to-all-v
ELEMENTS = 24  # of a rank's buffer, where blocks divide it


def groups(algorithm, ranks):
    """All islands, roots and some numbers of pieces of so many ranks, where the algorithm knows them."""
    for near in (n for n in range(1, ranks + 1) if ranks % n == 0):
        for root in range(ranks) if algorithm.op in ROOTED else (0,):
            for pieces in (1, 2, 5) if algorithm.pipelined else (1,):
                loads = HOT[:ranks] if algorithm.op == "all_to_all_v" else ()
                group = Group(ranks // near, near, root, pieces, loads=loads)
                if not algorithm.refuses(group):
                    yield group


def cases(processes):
    """(op, algorithm, group) of everything that takes so many processes, switches included."""
    return [
        (one.op, one.name, group)
        for one in ALL
        for ranks in range(2, processes + 1)
        for group in groups(one, ranks)
        if ranks + one.chunks(group).switches == processes
    ]


def wrong(some):
    """How many blocks of this process differ from what the library gives, by case: as they are, and if all change."""
    found, ranks, ways = [], {}, make_ways()
    for op, name, group in some:
        if group.ranks not in ranks:
            ranks[group.ranks] = dist.new_group(list(range(group.ranks)))
        chunks, rank = algorithms(op)[name].chunks(group), dist.get_rank()
        data = first_blocks(op, group, chunks, rank, ELEMENTS * ELEMENT_BYTES)
        if rank >= group.ranks:
            Messenger(chunks, rank, ways).run(data)
            found.append((0, 0))
            continue
        call = library(op, group, chunks, data, rank, ranks[group.ranks])
        Messenger(chunks, rank, ways).run(data)
        call.start()
        found.append(tuple(wrong_rows(op, group, some, rank, call.result) for some in (data, data + 1)))
    return found


def seconds(some, runs):
    """Seconds of some runs by (op, algorithm, group, bytes): from a common start until the last process has ended."""
    start, ways, found = Start(common_clock(dist.get_rank(), dist.get_world_size())), make_ways(), []
    for op, name, group, size in some:
        chunks = algorithms(op)[name].chunks(group)
        data = first_blocks(op, group, chunks, dist.get_rank(), size)
        messenger = Messenger(chunks, dist.get_rank(), ways)
        messenger.run(data)
        found.append([start.time(lambda: messenger.run(data)) for _ in range(runs)])  # noqa: B023
    return found
