"""Gradients that tensor-parallel ranks make of their own tokens and add up before their norm, by hand."""

import pytest
from runcast.simulator.models.states import layer_copies

from .steps import DIM, EXPERTS, HIDDEN, LAYERS, MOE, makespan, ops, program, resolved

SMALL_V3 = {"num_hidden_layers": 4, "first_k_dense_replace": 1, "n_routed_experts": 8}


def test_what_a_layer_has_on_every_rank():
    dense, moe = resolved().plan.spec, resolved(model=MOE).plan.spec
    assert layer_copies(dense, 0, tp=4) == 2 * HIDDEN
    assert layer_copies(dense, 0, tp=8) == 2 * HIDDEN + 2 * DIM * HIDDEN  # four heads of keys and values
    assert layer_copies(moe, 0, tp=2) == 2 * HIDDEN + EXPERTS * HIDDEN + 2 * DIM  # norms of heads too
    v3 = resolved(2, 2, {"preset": "deepseek-v3", "overrides": {}}, overrides=SMALL_V3, parallel={"pp": 2}).plan.spec
    latents = 7168 * (1536 + 512 + 64) + 1536 + 512
    assert layer_copies(v3, 0, tp=2) == 2 * 7168 + latents
    assert layer_copies(v3, 1, tp=2) == 2 * 7168 + latents + 8 * 7168
    assert layer_copies(v3, 4, tp=2) == 2 * 7168 + latents + 8 * 7168 + 2 * 7168**2 + 3 * 7168


@pytest.mark.parametrize("pp", [1, 2])
def test_they_are_summed_once_per_rank_of_the_pipeline(pp):
    made = program(2 * pp, 2, parallel={"tp": 2, "pp": pp})
    found = ops(made, label="replicated gradients")
    layers = 2 * HIDDEN * LAYERS // pp
    assert [int(made.bytes[op]) for op in found] == [4 * layers] * (pp - 1) + [4 * (layers + HIDDEN)]
    assert {(made.kind_of(op), len(made.groups[made.group[op]])) for op in found} == {("all_reduce", 2)}
    assert ops(program(2, parallel={"tp": 2, "sequence_parallel": False}), label="replicated gradients") == []
    assert ops(program(2, parallel={"tp": 2}, lora={"rank": 4}), label="replicated gradients") == []


def test_they_stand_between_reduced_gradients_and_their_norm():
    made = program(4, parallel={"tp": 2, "zero": 0})
    times = {"attention": 1.0, "reduce gradients": 2.0, "replicated gradients": 4.0, "grad_norm": 8.0}
    buckets = len(ops(made, label="reduce gradients"))
    assert makespan(made, times) == LAYERS + 2 * buckets + 4 + 8
