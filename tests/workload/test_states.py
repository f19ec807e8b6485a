"""Parameters of one rank and the bytes that training keeps of them."""

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.models import preset, preset_names
from runcast.simulator.models.blocks import head_parameters, layer, layer_parameters, mtp_in
from runcast.simulator.models.kernels import WEIGHTLESS
from runcast.simulator.models.parameters import n_elements
from runcast.simulator.models.shard import Shard
from runcast.simulator.models.states import (
    Count,
    StateBytes,
    adapter_count,
    adapter_params,
    copy_bytes,
    embedding_count,
    head_count,
    layer_count,
    state_bytes,
    sum_counts,
)

from ..examples import examples
from . import closed_form

EVERYWHERE = (  # what no tensor-parallel rank splits
    *("norm", "mlp.gate.", "mlp.router.", "block_sparse_moe.gate.", "shared_expert_gate", "q_a_proj", "kv_a_proj"),
    *(
        "latent_proj",
        "f_a_proj",
        "g_a_proj",
        "attn.x_",
        "ffn.x_k",
        "lora.down",
        "indexer",
        "o_proj.bias",
        "down_proj.bias",
        "embed_positions",
        "patch_embed",
        "own_tokens",
        "position_embedding",
        "projector",
        "modulation",
        "conditioning",
    ),
)


SPLIT_NORMS = ("mamba.norm.weight", "attn.g_norm.weight", "attn.g_norm.bias")


def replicated(spec, number, etp):
    """Dense parameters of a layer that all tensor-parallel ranks hold, and those of experts that all of etp hold."""
    split = SPLIT_NORMS + ("self_attn.q_norm.weight", "self_attn.k_norm.weight") * (spec.qk_norm_weights == "own")
    tensors = [t for t in layer_parameters(spec, spec.kind(number)) if t.name not in split]
    dense = n_elements(t for t in tensors if not t.experts and any(part in t.name for part in EVERYWHERE))
    down = n_elements(t for t in tensors if t.experts and t.name.endswith(("down_proj.bias", "down_proj_bias")))
    mtp = number >= spec.n_layers and (number == spec.n_layers or not spec.mtp_apart)
    return dense + mtp * (2 * spec.hidden_size**2 + 3 * closed_form.norm(spec)), down * (etp - 1)


def splits(spec):
    """Sizes that divide all that tensor-parallel ranks split."""
    linear = [count for count, _ in spec.linear_attention.split_units] if spec.linear_attention else []
    sizes = [spec.num_attention_heads, spec.vocab_size, spec.intermediate_size, *linear]
    sizes += [size for tower in spec.towers for size in (tower.num_attention_heads, tower.intermediate_size)]
    sizes += [] if spec.mla else [spec.num_key_value_heads]
    if spec.linear_attention and spec.linear_attention.unsplit:
        return [1]
    return [tp for tp in (1, 2, 4, 8) if all(size % tp == 0 for size in sizes)]


@pytest.mark.parametrize("name", preset_names())
@given(data=st.data())
@examples(8)
def test_ranks_together_hold_the_model_and_what_is_on_all_of_them(name, data):
    spec = preset(name)
    tp, etp = (data.draw(st.sampled_from(splits(spec))) for _ in range(2))
    experts = spec.moe.n_routed_experts if spec.moe else 1
    ep = data.draw(st.sampled_from([ep for ep in (1, 2, 4, 8, 16) if experts % ep == 0]))
    layers = closed_form.distinct_layers(spec, spec.num_nextn_predict_layers).items()
    held = [of for n, many in layers for of in [layer_count(spec, n, tp=tp, ep=ep, etp=etp)] * many]
    ends = [embedding_count(spec, tp=tp), head_count(spec, tp=tp, tied_here=True)]
    whole = tp * sum_counts([*held, *ends]).dense + ep * etp * sum_counts(held).expert
    again = [of for n, many in layers for of in [replicated(spec, n, etp)] * many]
    norms = (spec.final_norm + spec.embedding_norm) * closed_form.norm(spec) + closed_form.head(spec)
    norms += (spec.position_embeddings + spec.token_types) * spec.hidden_size + closed_form.modulation(spec)
    dense = (tp - 1) * (sum(dense for dense, _ in again) + norms)
    assert whole == closed_form.total(spec, mtp=True) + dense + sum(bias for _, bias in again)


@pytest.mark.parametrize("name", preset_names())
@pytest.mark.parametrize("tp", [1, 2])
def test_matrices_are_those_of_the_kernels(name, tp):
    """All that is held but for norms, biases, sinks and convolutions are n x k of the products."""
    spec = replace(preset(name), weight_sets=1)
    number = spec.num_hidden_layers - 1
    held = layer_count(spec, number, tp=tp, ep=1, etp=tp)
    kernels = layer(spec, number, Shard(1, 8, tp=tp)).all
    products = sum(k.shape[1] * k.shape[2] for k in kernels if k.kind == "gemm" and k.part not in WEIGHTLESS)
    assert products <= held.dense
    assert held.dense - products <= 0.003 * held.dense + 40 * spec.hidden_size


def test_the_projection_of_an_mtp_layer_is_that_of_its_kernels():
    spec = preset("deepseek-v3")
    (eh_proj,) = [kernel for kernel in mtp_in(spec, Shard(1, 8)) if kernel.kind == "gemm"]
    mtp, last = (layer_count(spec, number, tp=1, ep=1, etp=1) for number in (61, 60))
    assert mtp.dense - last.dense == prod(eh_proj.shape[1:]) + 3 * spec.hidden_size
    assert mtp.expert == last.expert


def test_keys_are_copied_where_ranks_outnumber_them():
    spec = preset("llama3-8b")  # 32 heads of 128 and 8 of keys, 4096 wide
    one = layer_count(spec, 0, tp=16, ep=1, etp=1).dense
    assert one == 2 * 4096 + (2 + 2) * 128 * 4096 + 2 * 128 * 4096 + 3 * 4096 * 14336 // 16


def test_a_tied_head_is_a_copy_on_a_stage_of_its_own():
    spec = replace(preset("llama3-8b"), tie_word_embeddings=True)
    assert head_count(spec, tp=4).dense == 128256 // 4 * 4096 + 4096
    assert head_count(spec, tp=4, tied_here=True).dense == 4096
    untied = preset("llama3-8b")
    assert head_count(untied, tp=4, tied_here=True) == head_count(spec, tp=4)
    assert n_elements(head_parameters(untied)) == head_count(untied, tp=1).dense


def test_words_that_do_not_divide_are_padded():
    spec = replace(preset("llama3-8b"), vocab_size=1001)
    assert embedding_count(spec, tp=4).dense == 251 * 4096


def test_adapters_of_llama():
    """Rank 16 on all products, q, k, v as one and gate and up as one: 16 (in + out) each."""
    spec, targets = preset("llama3-8b"), ("qkv", "proj", "up", "down")
    expected = 16 * ((4096 + 6144) + (4096 + 4096) + (4096 + 28672) + (14336 + 4096))
    assert adapter_count(spec, 0, 16, targets, tp=1) == Count(expected)
    assert adapter_count(spec, 0, 16, ("proj",), tp=4) == Count(16 * (1024 + 4096))
    assert adapter_count(spec, 0, 16, (), tp=1) == Count(0)


@pytest.mark.parametrize(
    ("name", "rank", "targets", "trained"),
    [
        ("llama3-8b", 16, ("all-linear",), 41_943_040),
        ("llama3-8b", 16, ("q_proj", "v_proj"), 6_815_744),
        ("llama3-70b", 16, ("all-linear",), 207_093_760),
        ("llama3-8b", 8, ("q_proj", "k_proj", "v_proj", "proj"), 6_815_744),
    ],
)
def test_adapters_of_modules_are_as_many_as_peft_prints(name, rank, targets, trained):
    """What `print_trainable_parameters` prints of these models."""
    assert adapter_params(preset(name), rank, targets) == trained


def test_a_module_that_ranks_share_has_adapters_of_its_part():
    spec = preset("llama3-8b")
    cut = {targets: adapter_count(spec, 0, 16, (targets,), tp=4).dense for targets in ("k_proj", "o_proj")}
    assert cut == {"k_proj": 16 * (4096 + 256), "o_proj": 16 * (1024 + 4096)}


def test_routed_experts_have_no_adapters():
    spec = preset("qwen3-30b-a3b")
    assert adapter_count(spec, 0, 16, ("up", "down"), tp=1, ep=8) == Count(0)


@pytest.mark.parametrize("n", [1, 4, 64])
@pytest.mark.parametrize(
    ("zero", "each"),
    [(0, lambda n: 16), (1, lambda n: 4 + 12 / n), (2, lambda n: 2 + 14 / n), (3, lambda n: 16 / n)],
)
def test_zero_keeps_as_its_paper_says(zero, each, n):
    """Bytes of a parameter of 16, weights and gradients in 16 bits. Source: arXiv 1910.02054, figure 1."""
    found = state_bytes(Count(6400), zero=zero, shard_dense=n, shard_expert=1, gradients="bf16")
    assert found.total == 6400 * each(n)


def test_zero_on_64_ranks_of_a_model_of_7_5_billion():
    """120, 31.4, 16.6 and 1.9 GB. Source: arXiv 1910.02054, figure 1."""
    held = Count(7_500_000_000)
    totals = [state_bytes(held, zero=z, shard_dense=64, shard_expert=1, gradients="bf16").total for z in range(4)]
    assert [round(total / 1e9, 1) for total in totals] == [120, 31.4, 16.6, 1.9]


def test_a_distributed_optimizer_with_gradients_in_32_bits():
    """Megatron-LM's 6 + 12 / N."""
    found = state_bytes(Count(800), zero=1, shard_dense=8, shard_expert=1)
    assert found == StateBytes(weights=1600, gradients=3200, master=400, moments=800)


def test_experts_are_sharded_over_ranks_of_their_own():
    found = state_bytes(Count(dense=80, expert=60), zero=3, shard_dense=8, shard_expert=2, gradients="bf16")
    assert found == StateBytes(weights=2 * 40, gradients=2 * 40, master=4 * 40, moments=8 * 40)


def test_training_in_32_bits_needs_no_master():
    found = state_bytes(Count(10), zero=0, shard_dense=1, shard_expert=1, compute="fp32")
    assert found == StateBytes(weights=40, gradients=40, master=0, moments=80)
    assert found == state_bytes(Count(10), zero=0, shard_dense=1, shard_expert=1, compute="tf32")


def test_bf16_without_a_master_and_with_small_moments():
    states = {"gradients": "bf16", "master": False, "moments": "bf16"}
    assert state_bytes(Count(10), zero=0, shard_dense=1, shard_expert=1, **states) == StateBytes(20, 20, 0, 40)
    assert state_bytes(Count(10), zero=0, shard_dense=1, shard_expert=1, moments="fp8").moments == 20


@pytest.mark.parametrize("compute", ["fp8", "fp8-block", "mxfp8", "nvfp4"])
def test_weights_that_are_quantized_are_kept_in_16_bits(compute):
    found = state_bytes(Count(64), zero=1, shard_dense=1, shard_expert=1, compute=compute)
    assert (found.weights, found.master) == (2 * 64, 4 * 64)


@pytest.mark.parametrize(
    ("compute", "zero", "copies"),
    [
        ("fp8", 1, 2),
        ("fp8-block", 2, 2),
        ("mxfp8", 0, 2),
        ("nvfp4", 1, 1),
        ("nvfp4", 3, 0),
        ("fp8", 3, 0),
        ("bf16", 1, 0),
    ],
)
def test_copies_beside_them_are_two_unless_they_are_made_of_what_is_gathered(compute, zero, copies):
    assert copy_bytes(compute, zero) == copies


def test_frozen_parameters_have_weights_only():
    found = state_bytes(Count(1000), zero=1, shard_dense=2, shard_expert=1, trained=Count(10))
    assert found == StateBytes(weights=2000, gradients=40, master=20, moments=40)


def test_what_does_not_divide_is_padded():
    assert state_bytes(Count(10), zero=1, shard_dense=4, shard_expert=1).master == 4 * 3


@pytest.mark.parametrize(
    ("name", "targets", "kept"),
    [("llama3-8b", ("qkv",), {"input_norm"}), ("llama3-8b", ("up",), {"mlp_norm"}),
     ("llama3-8b", ("down",), {"activation"}), ("deepseek-v3", ("up",), {"mlp_norm"}),
     ("falcon-7b", ("up",), {"input_norm"})],
)  # fmt: skip
def test_what_adapters_read_is_kept_and_other_inputs_of_frozen_products_are_not(name, targets, kept):
    spec = preset(name)
    made = layer(spec, spec.n_layers - 1, Shard(1, 1024, lora_rank=8, adapted=targets))
    found = {each.name for each in made.all if each.name in ("input_norm", "mlp_norm", "activation") and each.keeps}
    assert found == kept
