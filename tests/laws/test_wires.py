"""Nothing beats a wire that it crosses: exchanges of whole steps and updates against line rates and a count of bytes.

What an island must receive from others enters through the NICs of its ranks' nodes, for all groups of the stage at the
same time; what a rank must receive from its own island enters through its port. Sums may be made on the way, by a
switch or by a neighbour.
"""

from collections import defaultdict

import pytest
from hypothesis import given
from runcast.simulator.costs import EXCHANGES

from .plans import steps, updates
from .predict import law, resolved, run

ENTERING = {  # bytes into an island with m of n ranks, by bytes of nccl-tests
    "all_reduce": lambda size, n, m: size,
    "all_gather": lambda size, n, m: size * (n - m) / n,
    "reduce_scatter": lambda size, n, m: size * m / n,
    "all_to_all": lambda size, n, m: size * m * (n - m) / n,
}
RECEIVED = {  # bytes into one of n ranks of an island
    "all_reduce": lambda size, n: size,
    "all_gather": lambda size, n: size * (n - 1) / n,
    "reduce_scatter": lambda size, n: size / n,
    "all_to_all": lambda size, n: size * (n - 1) / n,
}


def nics(cluster, ranks):
    """Bytes per second into the nodes of these ranks."""
    nodes = {cluster.node_of(rank) for rank in ranks}
    return sum(float(cluster.capacity[cluster.nic_rx(nic)]) for node in nodes for nic in cluster.nics_of(node))


def port(cluster, rank, others):
    """Bytes per second into a GPU, over all wires that reach it from others."""
    wires = {cluster.route(cluster.gpu(other), cluster.gpu(rank))[-1] for other in others}
    return sum(float(cluster.capacity[wire]) for wire in wires)


def by_island(cluster, ranks):
    found = defaultdict(list)
    for rank in ranks:
        found[cluster.island(rank)].append(rank)
    return found


def message_s(cluster, source, target, size):
    """Of a message alone."""
    if cluster.island(source) == cluster.island(target):
        return size / port(cluster, target, [source])
    return size / nics(cluster, [target])


def least_s(step, op):
    """Seconds without which no algorithm moves the bytes of this exchange of a step."""
    program, cluster = step.program, step.cluster
    kind, group, size = program.kind_of(op), program.groups[program.group[op]], float(program.bytes[op])
    islands, beyond = by_island(cluster, group), program.shape[op]
    if kind not in ENTERING:
        return message_s(cluster, group[0], group[-1], size)
    if len(group) == 1:
        return 0.0
    if len(islands) == 1:
        return RECEIVED[kind](size, len(group)) / port(cluster, group[0], group[1:])
    stage = by_island(cluster, next((place.ranks for place in program.places if {*group} <= {*place.ranks}), group))
    return max(
        (float(beyond[0]) * len(near) if len(beyond) else ENTERING[kind](size, len(group), len(near)))
        * len(stage[island]) / len(near) / nics(cluster, stage[island])
        for island, near in islands.items()
    )  # fmt: skip


def sent_s(update, op):
    """The same of an op of an update: to all ranks of a group, or from the first to the second of each pair."""
    program, cluster = update.program, update.cluster
    kind, group, size = program.kind_of(op), program.groups[program.group[op]], float(program.bytes[op])
    if kind == "broadcast":
        root = int(program.root[op])
        return max((message_s(cluster, root, rank, size) for rank in group if rank != root), default=0.0)
    return max(message_s(cluster, a, b, size) for a, b in zip(group[::2], group[1::2], strict=True))


def check_wires(of, kinds, least):
    """Every op of these kinds, and all bytes of the run on every link of the cluster."""
    program, lines = of.program, of.cluster.capacity
    own = program.is_kind(*kinds).nonzero()[0].tolist()
    distinct = {(program.kind[op], program.group[op], program.root[op], program.bytes[op], *program.shape[op]): op
                for op in own}  # fmt: skip

    assert all(of.costs.uncontended_s[op] >= least(of, op) * (1 - 1e-9) for op in distinct.values())
    assert (of.costs.link_bytes[: len(lines)] <= lines * run(of).makespan_s * (1 + 1e-9)).all()


@law(20)
@given(table=steps())
def test_no_exchange_of_a_step_beats_a_wire(table):
    check_wires(resolved(table), EXCHANGES, least_s)


@law(20)
@given(table=updates())
def test_no_transfer_of_an_update_beats_a_wire(table):
    check_wires(resolved(table), ("broadcast", "write", "forward", "exchange"), sent_s)


@pytest.mark.slow
@law(300)
@given(table=steps())
def test_no_exchange_of_many_steps_beats_a_wire(table):
    check_wires(resolved(table), EXCHANGES, least_s)


@pytest.mark.slow
@law(300)
@given(table=updates())
def test_no_transfer_of_many_updates_beats_a_wire(table):
    check_wires(resolved(table), ("broadcast", "write", "forward", "exchange"), sent_s)
