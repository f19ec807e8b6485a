"""Sparse latent attention: when its indexer works, learns and keeps; with recomputation, adapters, several ranks."""

from dataclasses import replace

import pytest
from runcast.simulator.costs.kernels import alignment_penalty
from runcast.simulator.models import preset
from runcast.simulator.models.blocks import layer
from runcast.simulator.models.kernels import weight_gradient
from runcast.simulator.models.shard import Shard
from runcast.simulator.models.sparse_mla import LEARNING
from runcast.simulator.models.states import activations, recomputation

from .test_flops import flops

GLM, SEQ = preset("glm-5.2"), 4096
HIDDEN, LATENT, QUERY_LATENT, ROPE, HEADS, PICKED = 6144, 512, 2048, 64, 64, 2048
WORKS = ("index_keys", "index_weights", "index_queries", "index_scores", "index_topk")
INDEXED, REUSING = 2, 3
"""A layer with an indexer, and one that reuses what it picked."""
UNTAUGHT = replace(GLM, indexer=replace(GLM.indexer, learns=False))


def of_indexer(kernels):
    return tuple(kernel.name for kernel in kernels if kernel.name.startswith("index_"))


def test_layers_without_an_indexer_reuse_what_was_picked():
    found = [of_indexer(layer(GLM, number, Shard(1, SEQ)).all) for number in (INDEXED, REUSING)]
    assert found == [(*WORKS, *LEARNING), ()]


@pytest.mark.parametrize(
    ("mode", "parts", "again"),
    [("full", (), WORKS), ("selective", ("core_attn",), WORKS[-2:]), ("selective", ("mla_up_proj",), ())],
)
def test_an_indexer_picks_again_and_learns_once(mode, parts, again):
    assert of_indexer(recomputation(layer(GLM, INDEXED, Shard(1, SEQ)), mode, parts)) == again


def test_projections_to_latents_run_again_and_not_those_behind_attention():
    ours = layer(GLM, INDEXED, Shard(1, SEQ))
    assert [kernel.name for kernel in recomputation(ours, "selective", ("mla_up_proj",))] == [
        "q_up",
        "k_absorb",
        "rope",
    ]


def test_without_its_loss_an_indexer_picks_and_learns_nothing():
    kernels = [kernel for kernel in layer(UNTAUGHT, INDEXED, Shard(1, SEQ)).all if kernel.name in (*WORKS, *LEARNING)]
    assert [(kernel.name, weight_gradient(kernel)) for kernel in kernels] == [(name, None) for name in WORKS]


def test_flop_without_the_loss_are_those_of_a_published_run():
    """GLM-5.2 on GB200: 499.6 TFLOP/s at 1,662.118 tokens/s (NVIDIA-NeMo/Megatron-Bridge, pull request 5401)."""
    assert sum(flops(UNTAUGHT, Shard(1, SEQ))) / SEQ == pytest.approx(499.6e12 / 1662.118, rel=3e-3)


def test_beside_adapters_the_loss_is_computed_and_trains_nothing():
    kernels = layer(GLM, INDEXED, Shard(1, SEQ, lora_rank=8, adapted=("qkv", "proj"))).all
    named = [kernel for kernel in kernels if kernel.name.startswith("index_")]
    assert [kernel.name for kernel in named] == [*WORKS, LEARNING[0]]
    assert [weight_gradient(kernel) for kernel in named] == [None] * len(named)


@pytest.mark.parametrize(("tp", "gathered"), [(1, 0), (4, HIDDEN + QUERY_LATENT)])
def test_an_indexer_that_learns_keeps_what_it_makes_and_gathers(tp, gathered):
    of = GLM.indexer
    made = of.head_dim + of.num_heads + of.num_heads * of.head_dim
    with_loss, without = (activations(layer(spec, INDEXED, Shard(1, SEQ, tp=tp)))["qkv"] for spec in (GLM, UNTAUGHT))
    assert with_loss - without == SEQ * (made + gathered) * 2


def test_attention_keeps_one_key_of_latents_and_indices():
    found = {kernel.name: sum(kept.bytes for kept in kernel.keeps) for kernel in layer(GLM, INDEXED, Shard(1, SEQ)).all}
    assert (found["rope"], found["index_topk"]) == (SEQ * (LATENT + ROPE) * 2, SEQ * PICKED * 4)
    assert (found["k_absorb"], found["attention"]) == (
        SEQ * HEADS * (LATENT + ROPE) * 2,
        SEQ * HEADS * (LATENT * 2 + 4),
    )


def test_how_many_tokens_a_query_has_before_it_is_no_width_of_a_matrix():
    """5,003 of them on average; with rows of so many elements GEMMs would take 2 to 5 times as long."""
    scores = [k for k in layer(GLM, INDEXED, Shard(1, 10_006)).all if k.name in ("index_scores", *LEARNING)]
    assert [alignment_penalty(kernel.shape[1:], kernel.dtype) for kernel in scores] == [None] * 3
