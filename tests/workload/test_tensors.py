"""Names, shapes and sizes of the tensors of a checkpoint."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from runcast.simulator.base.errors import UserError
from runcast.simulator.models import (
    Fp8,
    Weights,
    active_params,
    from_hf_config,
    preset,
    preset_names,
    read_keys,
    total_params,
    weights,
)
from runcast.simulator.models.families import FAMILIES, Family
from runcast.simulator.models.keys import EXPERT_KEYS
from runcast.simulator.models.model import NORMS

from . import closed_form

ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1}


def shapes(checkpoint):
    return dict(zip(checkpoint.names, checkpoint.shapes, strict=True))


@pytest.mark.parametrize(
    ("name", "tensor", "shape"),
    [
        ("llama3-8b", "model.layers.31.self_attn.k_proj.weight", (1024, 4096)),
        ("llama3-8b", "lm_head.weight", (128256, 4096)),
        ("qwen2.5-7b", "model.layers.0.self_attn.v_proj.bias", (512,)),
        ("qwen3-8b", "model.layers.0.self_attn.q_norm.weight", (128,)),
        ("qwen3-235b-a22b", "model.layers.93.mlp.experts.127.down_proj.weight", (4096, 1536)),
        ("qwen3-30b-a3b", "model.layers.0.mlp.gate.weight", (128, 2048)),
        ("mixtral-8x7b", "model.layers.0.block_sparse_moe.experts.7.w2.weight", (4096, 14336)),
        ("glm-z1-9b", "model.layers.0.mlp.gate_up_proj.weight", (27392, 4096)),
        ("glm-4.5-air", "model.layers.46.shared_head.norm.weight", (4096,)),
        ("gpt-oss-120b", "model.layers.0.mlp.experts.gate_up_proj", (128, 2880, 5760)),
        ("gpt-oss-120b", "model.layers.0.self_attn.sinks", (64,)),
        ("deepseek-v2", "model.layers.1.mlp.shared_experts.up_proj.weight", (3072, 5120)),
        ("deepseek-v2-lite", "model.layers.0.self_attn.q_proj.weight", (3072, 2048)),
        ("deepseek-v3", "model.layers.0.self_attn.kv_a_proj_with_mqa.weight", (576, 7168)),
        ("deepseek-v3", "model.layers.0.self_attn.kv_a_proj_with_mqa.weight_scale_inv", (5, 56)),
        ("deepseek-v3", "model.layers.3.mlp.gate.e_score_correction_bias", (256,)),
        ("deepseek-v3", "model.layers.61.eh_proj.weight", (7168, 14336)),
        ("glm-4.7-flash", "model.layers.47.shared_head.head.weight", (154880, 2048)),
        ("moonlight-16b-a3b", "model.layers.0.self_attn.q_proj.weight", (3072, 2048)),
        ("glm-5", "model.layers.3.self_attn.indexer.wq_b.weight", (4096, 2048)),
        ("glm-5", "model.layers.78.self_attn.indexer.k_norm.bias", (128,)),
        ("glm-5.2", "model.layers.74.self_attn.indexer.weights_proj.weight", (32, 6144)),
        ("qwen3.5-27b", "model.language_model.layers.0.linear_attn.in_proj_qkv.weight", (10240, 5120)),
        ("qwen3.5-27b", "model.language_model.layers.62.linear_attn.conv1d.weight", (10240, 1, 4)),
        ("qwen3.5-27b", "model.language_model.layers.3.self_attn.q_proj.weight", (12288, 5120)),
        ("qwen3.5-27b", "mtp.layers.0.self_attn.o_proj.weight", (5120, 6144)),
        ("qwen3.5-27b", "mtp.fc.weight", (5120, 10240)),
        ("gpt3-175b", "model.embed_positions.weight", (2048, 12288)),
        ("gpt3-175b", "model.layers.95.self_attn.qkv_proj.bias", (36864,)),
        ("gpt3-175b", "model.norm.bias", (12288,)),
        ("bloom-176b", "model.embed_layernorm.bias", (14336,)),
        ("falcon-40b", "model.layers.0.self_attn.qkv_proj.weight", (9216, 8192)),
        ("gemma2-9b", "model.layers.0.pre_feedforward_layernorm.weight", (3584,)),
        ("grok-1", "model.layers.63.mlp.experts.7.down_proj.weight", (6144, 32768)),
        ("nemotron-4-15b", "model.layers.0.mlp.up_proj.weight", (24576, 6144)),
        ("kimi-k2", "model.layers.0.mlp.gate_proj.weight", (18432, 7168)),
        ("kimi-k2", "model.layers.60.mlp.experts.383.gate_proj.weight_scale_inv", (16, 56)),
    ],
)
def test_well_known_tensors(name, tensor, shape):
    assert shapes(weights(preset(name)))[tensor] == shape


def test_fp8_leaves_embeddings_norms_and_routers_alone():
    checkpoint = weights(preset("deepseek-v3"))
    scaled = {name.removesuffix("_scale_inv") for name in checkpoint.names if name.endswith("_scale_inv")}
    fp8 = {name for name, dtype in zip(checkpoint.names, checkpoint.dtypes, strict=True) if dtype == "float8_e4m3fn"}
    assert scaled == fp8
    kept = ("embed_tokens", "lm_head", "norm", "mlp.gate.", "shared_head", "eh_proj")
    assert not [name for name in fp8 if any(part in name for part in kept)]


def test_fp8_blocks_are_counted_whole():
    spec = from_hf_config(small(hidden_size=130, num_attention_heads=2, head_dim=64, intermediate_size=257))
    scales = shapes(weights(spec, fp8=True))
    assert scales["model.layers.0.mlp.up_proj.weight_scale_inv"] == (3, 2)
    assert shapes(weights(spec, fp8=Fp8((64, 32))))["model.layers.0.mlp.up_proj.weight_scale_inv"] == (5, 5)


def test_fp8_leaves_small_projections_of_linear_and_sparse_attention_alone():
    linear, sparse = (weights(preset(name), fp8=True) for name in ("qwen3.5-27b", "glm-5"))
    fp8 = {
        name
        for part in (linear, sparse)
        for name, dtype in zip(part.names, part.dtypes, strict=True)
        if dtype == "float8_e4m3fn"
    }
    assert {"in_proj_qkv", "in_proj_z", "out_proj", "wq_b", "wk"} <= {name.split(".")[-2] for name in fp8}
    kept = ("in_proj_a", "in_proj_b", "conv1d", "A_log", "dt_bias", "k_norm", "weights_proj", "mtp.fc")
    assert not [name for name in fp8 if any(part in name for part in kept)]


def test_fp8_can_be_asked_for_and_declined():
    assert weights(preset("qwen3-235b-a22b"), fp8=True).total_bytes == pytest.approx(235.1e9 * 1.006, rel=1e-3)
    plain = weights(preset("deepseek-v3"), mtp=False, fp8=False)
    routers = 58 * 256 * 4  # the correction bias stays FP32
    assert plain.total_bytes == 2 * (671_026_419_200 - 58 * 256) + routers


def test_mtp_adds_the_layer_and_its_copies():
    spec = preset("deepseek-v3")
    with_mtp, without = weights(spec), weights(spec, mtp=False)
    assert len(with_mtp) - len(without) == 1564
    assert with_mtp.names[: len(without)] == without.names
    assert set(with_mtp.layer[len(without) :]) == {61}


def test_a_tied_head_is_not_stored():
    untied, tied = (from_hf_config(small(tie_word_embeddings=tie)) for tie in (False, True))
    assert set(weights(untied).names) - set(weights(tied).names) == {"lm_head.weight"}
    assert total_params(untied) - total_params(tied) == 100 * 64


def test_expert_and_layer_columns():
    checkpoint = weights(preset("kimi-k2"))
    experts = [name for name, expert in zip(checkpoint.names, checkpoint.expert, strict=True) if expert]
    assert len(experts) == 60 * 384 * 6
    assert all(".experts." in name for name in experts)
    assert checkpoint.layer[checkpoint.names.index("model.layers.17.input_layernorm.weight")] == 17
    assert checkpoint.layer[checkpoint.names.index("lm_head.weight")] == -1


def test_aligned_rounds_up():
    checkpoint = Weights.from_totals(total_bytes=1000, n_tensors=3)
    assert checkpoint.nbytes.tolist() == [333, 333, 334]
    assert checkpoint.aligned_bytes().tolist() == [512, 512, 512]
    assert checkpoint.aligned_bytes(2).tolist() == [334, 334, 334]


def test_from_totals_with_a_largest_tensor():
    checkpoint = Weights.from_totals(total_bytes=1000, n_tensors=4, largest_bytes=500)
    assert checkpoint.nbytes.tolist() == [500, 166, 166, 168]
    assert Weights.from_totals(7, 1, largest_bytes=7).nbytes.tolist() == [7]


@pytest.mark.parametrize(
    ("total", "count", "largest", "message"),
    [
        (100, 0, None, "n_tensors = 0: from 1 to"),
        (3, 4, None, "total_bytes = 3: at least 1 byte for each of 4 tensors"),
        (100, 4, 98, "largest_bytes = 98: at least the even share of 4 tensors"),
        (100, 4, 24, "largest_bytes = 24: at least the even share"),
        (100, 1, 99, "largest_bytes = 99"),
    ],
)
def test_from_totals_refuses_what_does_not_fit(total, count, largest, message):
    with pytest.raises(UserError, match=message):
        Weights.from_totals(total, count, largest)


@given(st.integers(1, 500), st.integers(500, 10**7), st.integers(0, 499), st.integers(0, 10**9))
def test_from_totals_keeps_the_totals(others, share, rest, more):
    largest = share + rest + more
    total = others * share + min(rest, others - 1) + largest
    checkpoint = Weights.from_totals(total, others + 1, largest)
    assert (len(checkpoint), checkpoint.total_bytes, checkpoint.nbytes.max()) == (others + 1, total, largest)
    assert Weights.from_totals(total, others + 1).total_bytes == total


def small(**changes):
    base = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96}
    base |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100}
    return base | changes


FLAGS = ["attention_bias", "attention_out_bias", "mlp_bias", "norm_bias", "qk_norm", "gated_ffn", "tie_word_embeddings"]
FLAGS += ["embedding_norm", "no_bias", "alibi", "new_decoder_architecture", "sandwich_norms", "pre_norms", "head_bias"]
RESIDUALS = [{}, {"parallel_residual": False}, {"parallel_residual": True}]
RESIDUALS += [{"parallel_residual": True, "shared_norm": shared} for shared in (True, False)]
GATED_DELTA = ("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim")
GATED_DELTA += ("linear_conv_kernel_dim", "full_attention_interval")
KIMI_DELTA = ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
OF_INDEXER = ("index_topk", "index_n_heads", "index_head_dim", "index_topk_freq", "index_skip_topk_offset")
OF_COMPRESSED = ("o_groups", "o_lora_rank", "index_topk", "index_n_heads", "index_head_dim")
OWN_KEYS = {  # refused by other families
    **{name: OF_INDEXER for name, family in FAMILIES.items() if family.indexer},
    **{name: OF_COMPRESSED for name, family in FAMILIES.items() if family.compressed},
    **{name: GATED_DELTA for name, family in FAMILIES.items() if family.mixer == "gated_delta"},
    **{name: KIMI_DELTA for name, family in FAMILIES.items() if family.mixer == "kimi_delta"},
}


SIZES = ("mamba_d_head", "mamba_d_state", "mamba_d_conv", "mamba_chunk_size", "mamba_dt_rank", "mamba_d_inner")
SIZES += (
    "decay_low_rank_dim",
    "a_low_rank_dim",
    "v_low_rank_dim",
    "gate_low_rank_dim",
    "conv_L_cache",
    "block_multiple_of",
    "block_ffn_dim_multiplier",
)
ATTENTION_LAYERS = {"bamba": ("attn_layer_indices",), "lfm2": ("full_attn_idxs",), "lfm2_moe": ("full_attn_idxs",)}
PERIODS = ("attn_layer_period", "expert_layer_period")
OFFSETS = ("attn_layer_offset", "expert_layer_offset")
LINEAR_OR_FULL = ("linear_attention", "full_attention")
OPTIONS = ("mamba_conv_bias", "mamba_proj_bias", "mamba_rms_norm", "conv_bias", "block_auto_adjust_ff_dim")


@st.composite
def mixer_keys(draw, model_type):
    """The keys of what replaces attention and of layers, most by their canonical names."""
    family = FAMILIES.get(model_type, Family())
    if not family.mixer or (model_type in OWN_KEYS and not family.alone):
        return {}
    groups = draw(st.integers(1, 3))
    letters = draw(st.lists(st.sampled_from("M*-E"), min_size=5, max_size=9))
    return {
        **{key: draw(st.integers(1, 9)) for key in SIZES},
        **{key: draw(st.integers(1, 4)) for key in PERIODS if model_type == "jamba"},
        **{key: 0 for key in OFFSETS if model_type == "jamba"},
        **{key: draw(st.booleans()) for key in OPTIONS},
        **({"hybrid_override_pattern": "".join(letters)} if family.alone and family.experts else {}),
        **({"shared_intermediate_size": draw(st.integers(1, 90))} if model_type == "granitemoehybrid" else {}),
        **{key: draw(st.lists(st.integers(0, 4))) for key in ATTENTION_LAYERS.get(model_type, ())},
        **({"rwkv_head_dim": 1} if model_type == "rwkv7" else {}),
        "moe_latent_size": draw(st.integers(0, 9)),
        "mamba_n_groups": groups,
        "mamba_n_heads": groups * draw(st.integers(1, 3)),
    }


MLA = {"kv_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6}


def fit(config, family, types):
    """The config without what its family refuses: experts of a dense one, lists of another length, heads too wide."""
    layers = config["num_hidden_layers"]
    if family.experts is None and config["model_type"] in FAMILIES:
        config = {key: value for key, value in config.items() if key not in EXPERT_KEYS}
    if family.layers_key in ("layer_types", "full_attn_layers") and "full_attn_idxs" not in config:
        config = config | {"layer_types": types}
    for key in {"attn_layer_indices", "full_attn_idxs"} & {*config}:
        config = config | {key: [number for number in config[key] if number < layers]}
    if "hybrid_override_pattern" in config:
        config = config | {"hybrid_override_pattern": config["hybrid_override_pattern"][:layers]}
    if family.mixer == "mamba2 beside attention":
        config = config | {"mamba_d_ssm": config["mamba_n_heads"] * config["mamba_d_head"]}
    if family.mixer == "mamba2 as wide as expand":
        wide = {"hidden_size": config["mamba_n_heads"] * config["mamba_d_head"], "mamba_expand": 1}
        config = config | wide
    return config


@st.composite
def configs(draw):
    """Small configs of every family, with keys of all families drawn at random; of an unknown type those it reads."""
    kv = draw(st.integers(1, 4))
    layers = draw(st.integers(1, 5))
    model_type = draw(st.sampled_from([*FAMILIES, "some_model"]))
    family = FAMILIES.get(model_type, Family())
    positions = draw(st.integers(family.design.positions == "learned", 3))
    config = small(
        model_type=model_type,
        num_hidden_layers=layers,
        hidden_size=draw(st.integers(1, 300)),
        **dict.fromkeys(("num_attention_heads", "swa_num_attention_heads"), kv * draw(st.integers(1, 4))),
        **dict.fromkeys(("num_key_value_heads", "swa_num_key_value_heads"), kv),
        head_dim=draw(st.integers(1, 40)),
        intermediate_size=draw(st.integers(1, 300)),
        moe_intermediate_size=draw(st.integers(1, 200)),
        **dict.fromkeys(("n_routed_experts", "num_experts", "num_local_experts"), draw(st.integers(3, 6))),
        num_experts_per_tok=draw(st.integers(1, 3)),
        n_shared_experts=draw(st.integers(0, 2)),
        first_k_dense_replace=draw(st.integers(0, 2)),
        decoder_sparse_step=draw(st.integers(1, 2)),
        moe_layer_freq=draw(st.integers(1, 2)),
        **dict.fromkeys(("num_nextn_predict_layers", "mtp_num_hidden_layers"), draw(st.integers(0, 2))),
        q_lora_rank=draw(st.integers(1, 20) if family.indexer or family.compressed else st.none() | st.integers(1, 20)),
        position_embeddings=positions,
        max_position_embeddings=positions or None,
        norm=draw(st.sampled_from(NORMS)),
        **draw(st.sampled_from(RESIDUALS)),
        **{key: draw(st.booleans()) for key in FLAGS if draw(st.booleans())},
        **MLA,
        **{key: draw(st.integers(1, 9)) for key in OWN_KEYS.get(model_type, ())},
        **draw(mixer_keys(model_type)),
        num_kv_shared_layers=draw(st.integers(0, 1)),
        **draw(st.sampled_from([{}, {"hidden_size_per_layer_input": 5}])),
    )
    found = fit(config, family, draw(st.lists(st.sampled_from(LINEAR_OR_FULL), min_size=layers, max_size=layers)))
    return found if model_type in FAMILIES else read_keys(found)


@given(configs(), st.booleans(), st.booleans())
def test_bytes_are_elements_times_itemsize(config, mtp, fp8):
    checkpoint = weights(from_hf_config(config), mtp=mtp, fp8=fp8)
    sizes = [prod(shape) * ITEMSIZE[dtype] for shape, dtype in zip(checkpoint.shapes, checkpoint.dtypes, strict=True)]
    assert checkpoint.nbytes.tolist() == sizes
    assert checkpoint.total_bytes == sum(sizes)
    assert len(set(checkpoint.names)) == len(checkpoint) == len(checkpoint.expert) == len(checkpoint.layer)
    assert np.all(checkpoint.aligned_bytes() % 256 == 0)


@given(configs())
def test_tensors_hold_the_parameters_of_the_closed_form(config):
    spec = from_hf_config(config)
    elements = sum(prod(shape) for shape in weights(spec, mtp=False).shapes)
    assert elements == total_params(spec) == closed_form.total(spec)
    copies = 2 * spec.mtp_copies * spec.num_nextn_predict_layers * spec.vocab_size * spec.hidden_size
    assert sum(prod(shape) for shape in weights(spec).shapes) == closed_form.total(spec, mtp=True) + copies


@pytest.mark.parametrize("name", preset_names())
def test_tensors_of_presets_hold_the_parameters_of_the_closed_form(name):
    spec = preset(name)
    assert sum(map(prod, weights(spec, mtp=False, fp8=False).shapes)) == closed_form.total(spec)


@given(configs())
def test_the_familys_own_names_of_keys_mean_the_same(config):
    family = FAMILIES.get(config["model_type"], Family())
    assume(not family.towers)  # Llama's names are those of both stacks
    own = family.own
    names = list(own.values())  # one of GPT-2's is two of Llama's
    renamed = {}
    for key, value in config.items():
        name = own.get(key, key)
        free = names.count(name) == 1 and name not in config  # another key of Llama's may go by it
        outer, _, inner = (name if free else key).partition(".")
        renamed[outer] = (renamed.get(outer, {}) | {inner: value}) if inner else value
    assert from_hf_config(renamed) == from_hf_config(config)


@given(configs())
def test_only_experts_are_ever_idle(config):
    spec = from_hf_config(config)
    assume(spec.weight_sets == 1)  # of two sets a token passes one
    checkpoint = weights(replace(spec, quantization=None), mtp=False)
    expert = sum(prod(s) for s, e in zip(checkpoint.shapes, checkpoint.expert, strict=True) if e)
    share = spec.moe.num_experts_per_tok / spec.moe.n_routed_experts if spec.moe else 1
    assert active_params(spec) == pytest.approx(total_params(spec) - expert * (1 - share))
