"""ZeRO-3: when weights are gathered, unit by unit over the actions of a step, by hand."""

import pytest

from .steps import HIDDEN, LAYER, LAYERS, TABLE, ops, program, run


def starts_by_hand(lengths, gather, ahead):
    """Gathers follow each other, and each waits until the unit is over that lies `ahead` units before the one ahead."""
    starts, gathered, ended = [], 0.0, []
    for unit, length in enumerate(lengths):
        starts.append(max(gathered, ended[unit - 1 - ahead] if unit > ahead else 0.0))
        gathered = starts[-1] + gather
        ended.append(max(gathered, ended[-1] if ended else 0.0) + length)
    return starts


@pytest.mark.parametrize("ahead", [0, 1, 2, 5, 100])
@pytest.mark.parametrize("gather", [0.25, 1.5, 3.0])
def test_gathers_run_ahead_across_actions(ahead, gather):
    made = program(4, 2, parallel={"zero": 3, "prefetch": ahead})
    timeline = run(made, {"attention": 1.0, "attention_dgrad": 2.0, "gather weights": gather})
    lengths = [*[1.0] * LAYERS, *[2.0] * LAYERS] * 2
    found = timeline.start_s[ops(made, label="gather weights")].tolist()
    assert found == starts_by_hand(lengths, gather, ahead)


@pytest.mark.parametrize("ahead", [0, 1, 2, 100])
def test_the_first_weights_of_a_backward_come_under_the_last_layer_of_the_forward(ahead):
    """The forward's layers end at 1.25, 2.25, 3.25 and 4.25, or 5 if each waits for its weights."""
    made = program(4, 1, parallel={"zero": 3, "prefetch": ahead})
    timeline = run(made, {"attention": 1.0, "attention_dgrad": 2.0, "gather weights": 0.25})
    first = ops(made, label="gather weights")[LAYERS]
    assert timeline.start_s[first] == {0: 5.0, 1: 3.25, 2: 2.25, 100: 1.0}[ahead]


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_backwards_have_a_distance_of_their_own(ahead):
    """PyTorch's BACKWARD_POST: the next unit is gathered when the gradients of the one at work are there."""
    made = program(4, 1, parallel={"zero": 3, "prefetch": 1, "prefetch_backward": ahead})
    timeline = run(made, {"attention": 1.0, "attention_dgrad": 2.0, "gather weights": 0.25})
    found = timeline.start_s[ops(made, label="gather weights")[LAYERS:]].tolist()
    assert found == {0: [4.25, 6.5, 8.75, 11.0], 1: [3.25, 4.25, 6.25, 8.25], 2: [2.5, 3.25, 4.25, 6.25]}[ahead]


@pytest.mark.parametrize(
    ("parallel", "gathers"),
    [({"reshard": True}, 6), ({"reshard": False}, 3), ({"reshard": False, "sync_each_microbatch": False}, 1)],
)
def test_weights_that_stay_for_the_backward_are_gathered_in_each_forward(parallel, gathers):
    """FSDP 2 drops weights behind each backward whose gradients are reduced, whatever it does behind forwards."""
    made = program(4, 3, parallel={"zero": 3, **parallel})
    assert len(ops(made, label="gather weights")) == gathers * LAYERS


@pytest.mark.parametrize(("reduce", "add", "took"), [(1.0, 0.5, 4.5), (1.0, 3.0, 13.0), (3.0, 1.0, 13.0)])
def test_replicas_add_up_while_the_next_unit_is_reduced(reduce, add, took):
    """Four units on two lanes, one of which always works: FSDP 2's stream for replicas beside that of shards."""
    made = program(8, 1, parallel={"zero": 3, "shard": 4})
    timeline = run(made, {"reduce_scatter": reduce, "all_reduce": add})
    sums = ops(made, lane="dp_replicate")
    assert (len(sums), max(timeline.end_s[sums])) == (LAYERS, took)


@pytest.mark.parametrize("ahead", [0, 1, 2, 100])
def test_as_much_is_gathered_however_far_ahead(ahead):
    made = program(4, 3, parallel={"zero": 3, "prefetch": ahead})
    gathered = sum(int(made.bytes[op]) for op in ops(made, label="gather weights"))
    assert gathered == 3 * 2 * 2 * (LAYERS * LAYER + 2 * TABLE + HIDDEN)
