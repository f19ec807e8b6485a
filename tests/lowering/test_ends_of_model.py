"""What lies at both ends of the model: a copy of the embedding beside multi-token prediction, by hand."""

import pytest
from runcast.simulator.systems.train_step.lower.held import Holdings
from runcast.simulator.systems.train_step.lower.kept import activation_bytes

from .steps import SEQ, labels, ops, program, resolved

V3 = {"preset": "deepseek-v3", "overrides": {}}
SMALL = {"num_hidden_layers": 4, "first_k_dense_replace": 1, "n_routed_experts": 8}
WORDS = 129280 * 7168


def of_last_stage(*given, **tables):
    """What the last pipeline rank holds of dense parameters."""
    plan = resolved(*given, overrides=SMALL, **tables).plan
    return sum(unit.held.dense for unit in Holdings(plan, plan.grid.ranks - 1).own)


@pytest.mark.parametrize("tp", [1, 2])
def test_multi_token_prediction_has_a_copy_of_an_embedding_that_is_elsewhere(tp):
    parallel = {"pp": 2, "tp": tp}
    with_mtp = of_last_stage(2 * tp, 2, V3, parallel=parallel)
    without = of_last_stage(2 * tp, 2, {**V3, "mtp": False}, parallel=parallel)
    plan = resolved(2 * tp, 2, V3, overrides=SMALL, parallel=parallel).plan
    assert with_mtp - without == WORDS // tp + plan.parameters_of(4).dense  # 0.93e9 for DeepSeek-V3
    assert not Holdings(plan, 0).copies_embedding(plan.stages[0])


def test_a_tied_matrix_and_an_embedding_on_the_same_rank_are_copy_enough():
    tied = resolved(2, 2, V3, overrides={**SMALL, "tie_word_embeddings": True}, parallel={"pp": 2}).plan
    folded = resolved(2, 4, V3, overrides=SMALL, parallel={"pp": 2}, schedule={"name": "zb-v"}).plan
    alone = resolved(1, 2, V3, overrides=SMALL).plan
    for plan in (tied, folded, alone):
        last = plan.grid.rank_of(plan.grid.stages - 1, 0)
        assert not Holdings(plan, last).copies_embedding(plan.stages[-1])


@pytest.mark.parametrize(("gpus", "parallel"), [(1, {}), (2, {"pp": 2}), (4, {"pp": 2, "tp": 2})])
def test_it_looks_tokens_up_and_learns_from_them(gpus, parallel):
    made = program(gpus, 3, V3, overrides=SMALL, parallel=parallel)
    plain = program(gpus, 3, {**V3, "mtp": False}, overrides=SMALL, parallel=parallel)
    for kind in ("embed", "embed_backward"):
        assert len(ops(made, kind=kind)) - len(ops(plain, kind=kind)) == 3
        assert {int(made.tags["layer"][op]) for op in ops(made, kind=kind)} == {-1, 4}


@pytest.mark.parametrize("split", [1, 2])
def test_both_gradients_of_the_embedding_are_added_up(split):
    parallel = {"pp": 2} | ({"shard_embedding": True} if split > 1 else {})
    made = program(2 * split, 2, V3, overrides=SMALL, parallel=parallel)
    (op,) = ops(made, label="tied embedding")
    assert (made.kind_of(op), int(made.bytes[op]), len(made.lanes_of[op])) == ("all_reduce", 4 * WORDS // split, 2)
    assert ops(program(2, 2, {**V3, "mtp": False}, overrides=SMALL, parallel={"pp": 2}), label="tied embedding") == []


@pytest.mark.parametrize(("layers", "times"), [(None, 2), (1, 1)])
def test_recomputation_of_all_layers_repeats_it_from_the_looked_up_tokens_on(layers, times):
    recompute = {"mode": "full"} | ({"layers": layers} if layers else {})
    made = program(1, 3, V3, overrides=SMALL, recompute=recompute)
    own = labels(made)[made.tags["layer"] == 4]
    expected = {"embed": 3, **dict.fromkeys(("enorm", "eh_proj", "attention", "experts"), 3 * times), "logits": 3}
    assert {name: int((own == name).sum()) for name in expected} == expected


def test_recomputed_it_keeps_the_looked_up_tokens_and_what_it_gives():
    kept = [
        activation_bytes(resolved(1, 1, {**V3, "mtp": mtp}, overrides=SMALL, recompute={"mode": "full"}).plan, 0)
        for mtp in (True, False)
    ]
    head = 2 * SEQ * 7168 + 4 * SEQ * 129280  # the norm's output, and the softmax
    assert kept[0] - kept[1] == 2 * (2 * SEQ * 7168) + head
