"""What a scenario resolves to: the bucket rule on real models, classes of ranks, the hash."""

import pytest
from runcast.simulator import UserError, simulate
from runcast.simulator.insight import critical_path
from runcast.simulator.scenario import Resolved, check_scenario

GIB = 2**30


def resolved(**changes: object) -> Resolved:
    table = {
        "kind": "weight_update",
        "cluster": "h20-hgx",
        "nodes": 2,
        "model": {"preset": "kimi-k2"},
        "update": {"inference": {"tp": 16}},
    }
    return Resolved(check_scenario(table | changes))


def update(**changes: object) -> dict[str, object]:
    return {"update": {"inference": {"tp": 16}} | changes}


def test_the_default_bucket_is_the_limit_where_memory_allows():
    assert resolved().bucket.bytes == 8 * GIB


def test_an_engine_that_fills_its_memory_leaves_small_buckets():
    tight = resolved(**update(inference={"tp": 16, "memory_utilization": 0.9}))

    third = int(int(96 * GIB * (1 - 0.9)) * 0.9) // (3 * 256) * 256

    assert (tight.bucket.bytes, tight.bucket.buffers) == (third, 3)


def test_without_room_for_three_buffers_of_the_largest_tensor_the_h2d_buffer_is_given_up():
    assert resolved(**update(free_memory=int(5.5 * GIB))).bucket.buffers == 2


def test_alike_ranks_are_one_class_and_a_slow_node_is_another():
    assert [len(ranks) for ranks in resolved(slow=[{"node": 1, "factor": 1.5}]).classes] == [8, 8]


def test_a_slow_node_holds_up_everybody():
    timeline = simulate(resolved(slow=[{"node": 1, "factor": 2.0}]).scenario).timeline
    program = timeline.program

    holding = {tuple(program.ranks_of(op)) for op in critical_path(timeline).ops if program.kind_of(op) == "reload"}

    assert holding == {tuple(range(8, 16))}


def test_the_hash_is_over_what_is_meant_not_over_the_name():
    same = [resolved().hash, resolved(name="another").hash]
    other = [resolved(nodes=4).hash, resolved(stack="checkpoint-engine", seed=1).hash, resolved(profile="generic").hash]

    assert (len(set(same)), len({*same, *other})) == (1, 4)


def test_a_model_by_totals_alone():
    totals = resolved(model={"bytes": "61.06 GB", "tensors": 18867})

    assert (totals.weights.total_bytes, len(totals.weights), totals.dtype) == (61_060_000_000, 18867, "bf16")


def test_more_ranks_than_tensors():
    with pytest.raises(UserError, match="expected at least one tensor for each of the 16 ranks"):
        _ = resolved(model={"bytes": "1 GB", "tensors": 4}).plan


def test_three_stages_need_the_h2d_buffer():
    with pytest.raises(UserError, match="needs an H2D buffer"):
        _ = resolved(**update(pipeline="three_stage", h2d_buffer=False)).program
