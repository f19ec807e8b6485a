"""Kernels one by one: bytes, gradients, and the kernels of a layer, all by hand."""

from dataclasses import replace

import pytest
from runcast.simulator.models import preset
from runcast.simulator.models.blocks import embedding, head, layer, mtp_in
from runcast.simulator.models.kernels import Kernel, flop, input_gradient, weight_gradient
from runcast.simulator.models.shard import Shard

LLAMA = preset("llama3-8b")  # 4096 wide, 32 heads of 128, 8 of keys, FFN of 14336, 128256 words
TOKENS = 1024


def named(kernels):
    return {kernel.name: kernel for kernel in kernels}


def test_bytes_of_a_llama_layer():
    """1024 tokens on one of two tensor-parallel ranks in bf16; products say sizes instead."""
    own, seq = 512, TOKENS
    expected = [
        ("input_norm", 2 * own * 4096 * 2),
        ("qkv", 0),
        ("rope", 2 * seq * (16 + 4) * 128 * 2),
        ("attention", 0),
        ("proj", 0),
        ("residual", 2 * own * 4096 * 3),
        ("mlp_norm", 2 * own * 4096 * 2),
        ("up", 0),
        ("activation", 2 * seq * 7168 * 3),
        ("down", 0),
        ("residual", 2 * own * 4096 * 3),
    ]
    kernels = layer(LLAMA, 0, Shard(1, TOKENS, tp=2)).all
    assert [(kernel.name, kernel.bytes) for kernel in kernels] == expected


def test_gradients_of_a_product_are_products_of_its_sizes():
    up = named(layer(LLAMA, 0, Shard(1, TOKENS)).all)["up"]
    shapes = (up.shape, input_gradient(up).shape, weight_gradient(up).shape)
    assert shapes == ((TOKENS, 28672, 4096), (TOKENS, 4096, 28672), (28672, 4096, TOKENS))


@pytest.mark.parametrize(
    ("name", "forward", "backward"), [("input_norm", 2, 3), ("activation", 3, 5), ("residual", 3, 3), ("rope", 2, 2)]
)
def test_bytes_of_memory_bound_gradients(name, forward, backward):
    """Operands of each element: x, dy -> dx of a norm; gate, up, dy -> two gradients of SwiGLU."""
    kernel = named(layer(LLAMA, 0, Shard(1, TOKENS)).all)[name]
    assert input_gradient(kernel).bytes / kernel.bytes == pytest.approx(backward / forward)


def experts():
    """128 experts of 768 in a layer 2048 wide, 8 per token; 16 of them here: 8192 rows."""
    return layer(preset("qwen3-30b-a3b"), 0, Shard(1, TOKENS, ep=8))


def test_bytes_of_a_moe_layer():
    rows, own = TOKENS * 8, TOKENS * 2048
    kernels = named(experts().all)
    assert {name: kernels[name].bytes for name in ("permute", "sort", "unsort", "unpermute")} == {
        "permute": 2 * 9 * own,
        "sort": 2 * 2 * rows * 2048,
        "unsort": 2 * 2 * rows * 2048,
        "unpermute": 2 * 9 * own,
    }
    assert kernels["experts"].shape == (rows, 2048, 768, 8, 128, 1, 8, 3)


def test_tokens_of_one_expert_are_in_order():
    found = named(layer(preset("qwen3-30b-a3b"), 0, Shard(1, TOKENS, ep=128)).experts)
    assert list(found) == ["experts"]


def test_gradients_of_experts_are_as_many_products_as_they_are():
    rows = TOKENS * 8
    kernel = named(experts().all)["experts"]
    assert flop(input_gradient(kernel)) == flop(weight_gradient(kernel)) == flop(kernel) == 2 * rows * 3 * 2048 * 768


def test_a_load_beyond_the_mean_makes_rows():
    assert named(layer(preset("qwen3-30b-a3b"), 0, Shard(1, TOKENS, ep=8, load=1.5)).experts)["experts"].shape[0] == (
        TOKENS * 8 * 1.5
    )


def test_memory_bound_kernels_have_no_weight_gradient_and_products_have():
    kernels = [*embedding(LLAMA, Shard(1, 8)), *layer(LLAMA, 0, Shard(1, 8)).all, *head(LLAMA, Shard(1, 8))]
    assert [kernel.name for kernel in kernels if weight_gradient(kernel)] == ["qkv", "proj", "up", "down", "logits"]
    assert all(input_gradient(kernel).keeps == () for kernel in kernels)


@pytest.mark.parametrize(("passes", "forward", "backward"), [(False, 2, 4), (True, 38, 14)])
def test_bytes_of_a_logit_in_the_loss(passes, forward, backward):
    shard = Shard(2, 64, tp=4, loss_passes=passes)
    loss = head(LLAMA, shard)[-1]
    logits = 2 * 64 * LLAMA.vocab_size // 4
    assert (loss.bytes, input_gradient(loss).bytes) == (forward * logits, backward * logits)


def test_gradients_of_frozen_products_are_those_of_their_adapters():
    shard = Shard(1, 8, lora_rank=16, adapted=("qkv", "down"))
    kernels = [*layer(LLAMA, 0, shard).all, *head(LLAMA, shard)]
    learned = [kernel.name for kernel in kernels if weight_gradient(kernel)]
    assert learned == ["qkv_lora_a", "qkv_lora_b", "down_lora_a", "down_lora_b"]


def test_products_without_a_weight_have_gradients_of_both_operands():
    keys = next(k for k in layer(preset("qwen3.5-27b"), 0, Shard(1, 128)).all if k.name == "chunk_keys")
    assert flop(input_gradient(keys)) == 2 * flop(keys)
    assert weight_gradient(keys) is None


def names(kernels):
    return [kernel.name for kernel in kernels]


@pytest.mark.parametrize("positions", ["learned", "alibi", "none"])
def test_only_rotary_positions_turn(positions):
    spec = replace(LLAMA, positions=positions)
    assert "rope" in names(layer(LLAMA, 0, Shard(1, 8)).all)
    assert "rope" not in names(layer(spec, 0, Shard(1, 8)).all)


def test_a_norm_behind_the_embedding():
    assert names(embedding(replace(LLAMA, embedding_norm=True), Shard(1, 8))) == ["embed", "embedding_norm"]


def test_parallel_branches_have_one_residual_and_one_or_two_norms():
    both = replace(LLAMA, parallel_residual=True)
    one = replace(both, shared_norm=True)
    inner = ["qkv", "rope", "attention", "proj"]
    assert names(layer(both, 0, Shard(1, 8)).all) == [
        *("input_norm", *inner, "mlp_norm", "up", "activation", "down", "residual")
    ]
    kernels = layer(one, 0, Shard(1, 8)).all
    assert names(kernels) == ["input_norm", *inner, "up", "activation", "down", "residual"]
    assert kernels[-1].bytes == 2 * 8 * 4096 * 4  # what enters, two branches, the sum


def test_sandwich_norms_come_before_residuals():
    found = names(layer(replace(LLAMA, sandwich_norms=True), 0, Shard(1, 8)).all)
    assert found[5:8] == ["post_norm", "residual", "mlp_norm"]
    assert found[-2:] == ["post_norm", "residual"]


def test_a_gate_on_shared_experts():
    moe = replace(preset("deepseek-v2-lite").moe, shared_gate=True)
    found = layer(replace(preset("deepseek-v2-lite"), moe=moe), 1, Shard(1, 8))
    assert names(found.mlp_in) == ["residual", "mlp_norm", "shared_gate", "router", "topk", "permute"]
    assert names(found.after) == ["unpermute", "shared_gate", "add_shared", "residual"]


def test_before_an_mtp_layer():
    norms, projection = mtp_in(preset("deepseek-v3"), Shard(1, 8))[:2], mtp_in(preset("deepseek-v3"), Shard(1, 8))[2]
    assert names(norms) == ["enorm", "hnorm"]
    assert projection.shape == (8, 7168, 2 * 7168)


def attention(**sharding):
    spec = replace(LLAMA, sliding_window=64, sliding_layers=(0,))
    return [[k for k in layer(spec, n, Shard(1, 512, **sharding)).all if k.kind == "attention"] for n in (0, 1)]


@pytest.mark.parametrize("cp_type", ["ring", "all_gather", "ulysses"])
def test_context_parallel_ranks_divide_a_window_evenly(cp_type):
    """A ring has no windows: those layers gather keys."""
    window, full = attention(cp=4, cp_type=cp_type)
    alone = attention()
    assert [sum(map(flop, kernels)) for kernels in (window, full)] == [flop(kernel) / 4 for (kernel,) in alone]
    assert [len(window), len(full)] == [1, 4 if cp_type == "ring" else 1]


def test_a_ring_is_causal_over_own_tokens_and_sees_half_of_each_other_block():
    """512 tokens over four ranks: 128 squared over 2 of the first step, and as many pairs of each of the others."""
    _, steps = attention(cp=4)
    sizes = (1, 128, 32, 8, 128, 128)
    assert [step.shape for step in steps] == [(*sizes, 1, 0, 1), *[(*sizes, 0, 0, 2)] * 3]
    assert [flop(step) for step in steps] == [2 * 32 * 256 * 128 * 128 / 2] * 4
    assert [bool(step.keeps) for step in steps] == [False, False, False, True]
    assert [input_gradient(step).shape[-3:] for step in reversed(steps)] == [*[(0, 0, 2)] * 3, (1, 0, 1)]


def test_unknown_kinds_have_no_gradient():
    with pytest.raises(KeyError):
        input_gradient(Kernel("adamw", "step", "optimizer", (1,), "bf16"))
