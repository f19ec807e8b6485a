"""Attention without a flash kernel: kernels, bytes and work by hand, and what it keeps as arXiv 2205.05198 has it."""

from dataclasses import replace

import pytest
from runcast.simulator.models import preset
from runcast.simulator.models.blocks import layer
from runcast.simulator.models.kernels import flop, input_gradient, weight_gradient
from runcast.simulator.models.model import ModelSpec
from runcast.simulator.models.shard import Shard
from runcast.simulator.models.states import activation_bytes, activations, recomputation

HEADS, HIDDEN, DIM, SEQ, BATCH = 16, 1024, 64, 512, 3
GPT = ModelSpec(
    "gpt", HIDDEN, 2, HEADS, HEADS, DIM, 4 * HIDDEN, 1000, gated_ffn=False, hidden_act="gelu", norm="layer",
    positions="learned", position_embeddings=SEQ,
)  # fmt: skip
ROWS = BATCH * HEADS * SEQ
CORE = ("scores", "softmax", "context")


def core(spec=GPT, **shard):
    """The kernels of attention itself."""
    given = {"batch": BATCH, "seq": SEQ, "unfused": True, **shard}
    return [kernel for kernel in layer(spec, 0, Shard(**given)).attention if kernel.part == "core_attn"]


def test_a_layer_has_two_products_and_a_softmax_in_place_of_one_kernel():
    plain, unfused = (layer(GPT, 0, Shard(BATCH, SEQ, unfused=given)) for given in (False, True))
    assert [k.name for k in plain.all if k.name == "attention" or k not in unfused.all] == ["attention"]
    assert [k.name for k in unfused.all if k not in plain.all] == list(CORE)
    assert [k.name for k in unfused.attention] == ["qkv", *CORE, "proj"]


@pytest.mark.parametrize("tp", [1, 2])
def test_products_are_of_whole_squares(tp):
    scores, softmax, context = core(tp=tp)
    assert (scores.kind, scores.shape) == ("gemm", (ROWS // tp, SEQ, DIM))
    assert (context.kind, context.shape) == ("gemm", (ROWS // tp, DIM, SEQ))
    assert (softmax.kind, softmax.shape) == ("softmax", (SEQ,))
    causal = sum(flop(k) for k in layer(GPT, 0, Shard(BATCH, SEQ, tp=tp)).all if k.kind == "attention")
    assert flop(scores) + flop(context) == 2 * causal == 2 * 2 * BATCH * HEADS // tp * SEQ * SEQ * DIM
    assert flop(softmax) == 0


def test_a_window_saves_nothing():
    window = replace(GPT, sliding_window=64, sliding_layers=(0,))
    assert core(window) == core()


def test_keys_and_values_may_be_of_other_widths():
    """MLA: 192 of queries and keys, 128 of values, of each of 128 heads."""
    scores, _, context = core(preset("deepseek-v3"), batch=1, tp=8)
    assert (scores.shape, context.shape) == ((16 * SEQ, SEQ, 192), (16 * SEQ, 128, SEQ))


@pytest.mark.parametrize(("dropout", "passes"), [(True, 4 + 4 + 5), (False, 4 + 4)])
def test_passes_over_scores(dropout, passes):
    """Scale and mask, and softmax, read and write 2 bytes each; dropout writes a mask of 1 byte besides."""
    _, softmax, _ = core(dropout=dropout)
    back = input_gradient(softmax)
    assert softmax.bytes == passes * ROWS * SEQ
    assert (back.kind, back.bytes) == ("softmax_backward", round(1.2 * passes * ROWS * SEQ))


def test_the_backward_has_four_products_and_no_weights():
    scores, softmax, context = core()
    backward = [input_gradient(kernel) for kernel in (scores, softmax, context)]
    assert [backward[0].shape, backward[2].shape] == [(2 * ROWS, DIM, SEQ), (2 * ROWS, SEQ, DIM)]
    assert sum(map(flop, backward)) == 2 * (flop(scores) + flop(context))
    assert [weight_gradient(kernel) for kernel in (scores, softmax, context)] == [None] * 3


@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("dropout", [False, True])
def test_it_keeps_scores_in_place_of_log_sum_exps(dropout, tp):
    """s b h (34 + 5 a s / h) / t in all: 2 of the 34 are other masks, which are off; 5 are 2 without dropout."""
    shard = Shard(BATCH, SEQ, tp=tp, unfused=True, dropout=dropout)
    ours, sbh = layer(GPT, 0, shard), SEQ * BATCH * HIDDEN
    squares = HEADS * SEQ * SEQ * BATCH // tp
    assert activations(ours)["core_attn"] == (5 if dropout else 2) * squares
    assert activation_bytes(ours) == 32 * sbh // tp + (5 if dropout else 2) * squares
    assert activation_bytes(ours, "selective", ("core_attn",)) == 32 * sbh // tp
    assert max(k.bytes for kernel in ours.attention for k in kernel.keeps if k.part == "core_attn") == 2 * squares


def test_recomputing_attention_runs_its_kernels_again():
    ours = layer(GPT, 0, Shard(BATCH, SEQ, unfused=True))
    assert [kernel.name for kernel in recomputation(ours, "selective", ("core_attn",))] == list(CORE)


def test_in_fp32_all_scores_are_twice_as_wide_but_the_mask():
    _, softmax, _ = core(dropout=True, dtype="fp32", linear="fp32")
    assert softmax.bytes == (8 + 8 + 9) * ROWS * SEQ
    assert sum(each.bytes for each in softmax.keeps) == 9 * ROWS * SEQ


def test_8_bits_are_for_other_products():
    assert {kernel.dtype for kernel in core(linear="fp8")} == {"bf16"}
