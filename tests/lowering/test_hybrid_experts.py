"""Hybrid sharding of experts: their copies lie where those of dense parameters do, by hand."""

import pytest
from runcast.simulator.systems.train_step.lower.held import Holdings

from .steps import EXPERT_INTER, EXPERTS, HIDDEN, MOE, ops, program, resolved


@pytest.mark.parametrize(
    ("shard", "ep", "dense", "expert"),
    [
        (8, 2, (range(8), (0, 8)), ((0, 2, 4, 6), (0, 8))),
        (4, 2, (range(4), (0, 4, 8, 12)), ((0, 2), (0, 4, 8, 12))),
        (4, 8, (range(4), (0, 4, 8, 12)), ((0,), (0, 8))),  # experts lie over two copies
        (None, 2, (range(16), (0,)), (range(0, 16, 2), (0,))),
    ],
)
def test_experts_are_sharded_inside_a_copy_of_the_model(shard, ep, dense, expert):
    parallel = {"zero": 3, "ep": ep} | ({"shard": shard} if shard else {})
    holdings = Holdings(resolved(16, model=MOE, parallel=parallel).plan, 0)
    shares = {share.lane: (share.group, share.replicas) for share in holdings.shares(holdings.layer(0))}
    assert shares == {"dp": tuple(map(tuple, dense)), "edp": tuple(map(tuple, expert))}


def test_their_gradients_are_scattered_inside_and_summed_across():
    made = program(16, 1, MOE, parallel={"zero": 3, "shard": 8, "ep": 2})
    own = EXPERTS // 2 * 3 * HIDDEN * EXPERT_INTER * 4
    found = {(made.kind_of(op), made.groups[made.group[op]]): int(made.bytes[op])
             for lane in ("edp", "edp_replicate") for op in ops(made, lane=lane)}  # fmt: skip
    assert found == {("reduce_scatter", (0, 2, 4, 6)): own, ("all_reduce", (0, 8)): own // 4}
