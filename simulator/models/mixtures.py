"""Families with a mixture of experts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .family import Family, LayerKeys, built, first_dense, full_every, shared_experts
from .keys import Keys
from .layer_keys import COMPRESSED
from .llamas import ERNIE, FOUR_NORMS, OLMO2, QWEN2, QWEN3, QWEN3_5

_DEEPSEEK_V3 = Family(mla=True, experts="n_routed_experts", correction_bias=True)
_DEEPSEEK_V32 = replace(_DEEPSEEK_V3, indexer=True)
_ALL_MOE = Family(experts="num_local_experts", expert_width="intermediate_size")
_GLM4_MOE = Family(out_bias=False, experts="n_routed_experts", correction_bias=True)
_HEAD_NORMS = built(qk_norm=True)
_HEAD_NORMS_AND_SINKS = built(qk_norm=True, attention_sinks=True)


def _mimo_keys(keys: Keys, sliding: Sequence[int], layers: int) -> LayerKeys:
    """Layers with a window have twice the heads of k and v, and sinks."""
    heads = keys.whole("swa_num_key_value_heads", default=2 * keys.whole("num_key_value_heads"))
    return {number: {"num_key_value_heads": heads, "attention_sinks": True} for number in sliding}


def _compressed_keys(keys: Keys, sliding: Sequence[int], layers: int) -> LayerKeys:
    """Tokens per entry, by the kind of a layer, or listed: 0, few (then entries are picked), or many."""
    kinds, given = keys.sequence("layer_types"), keys.get("compress_rates")
    rates = given if isinstance(given, Mapping) else dict(zip(COMPRESSED, (4, 128), strict=True))
    ratios = [rates.get(kind, 0) for kind in kinds] if kinds else keys.sequence("compress_ratios")
    picked = rates.get(COMPRESSED[0])
    found = {
        number: {"compress_ratio": ratio, "entries_are_picked": ratio == picked} for number, ratio in enumerate(ratios)
    }
    return {number: changes for number, changes in found.items() if number < layers}


MIXTURES = {
    "mixtral": replace(_ALL_MOE, design=built(moe_name="block_sparse_moe", matrix_names=("w1", "w3", "w2"))),
    "granitemoe": _ALL_MOE,
    "granitemoeshared": _ALL_MOE,
    "granitemoe_swa": replace(_ALL_MOE, design=built(attention_sinks=True), defaults=full_every(4), full_first=True),
    "gpt_oss": replace(
        _ALL_MOE,
        design=built(attention_bias=True, attention_sinks=True, mlp_bias=True),
        router_bias=True,
        defaults=full_every(2),
    ),
    "grok-1": replace(
        _ALL_MOE,
        design=built(hidden_act="gelu", tie_word_embeddings=True, sandwich_norms=True),
        experts="num_experts",
    ),
    "llama4_text": replace(
        _ALL_MOE,
        design=built(qk_norm=True, qk_norm_weights="none", window_is_chunk=True),
        own={"sliding_window": "attention_chunk_size"},
        defaults={**full_every(4), **shared_experts(1)},
    ),
    "aria_text": replace(_ALL_MOE, experts="moe_num_experts"),
    "hunyuan_v1_moe": replace(_ALL_MOE, design=_HEAD_NORMS, experts="num_experts", defaults=shared_experts(1)),
    "minimax_m2": replace(_ALL_MOE, design=built(qk_norm=True, qk_norm_weights="own"), correction_bias=True),
    "minimax_m3_vl_text": replace(_ALL_MOE, design=_HEAD_NORMS, correction_bias=True),
    "olmoe": replace(_ALL_MOE, design=built(qk_norm=True, qk_norm_weights="own"), experts="num_experts"),
    "flex_olmo": replace(_ALL_MOE, design=OLMO2, experts="num_experts"),
    "qwen2_moe": replace(QWEN2, experts="num_experts", shared_gate=True),
    **dict.fromkeys(("qwen3_moe", "qwen3_vl_moe_text"), replace(QWEN3, experts="num_experts")),
    "qwen3_5_moe_text": replace(
        QWEN3_5,
        experts="num_experts",
        shared_gate=True,
    ),
    "lara_mini": Family(
        replace(_HEAD_NORMS, tie_word_embeddings=True),
        mixer="gated_delta",
        layers_key="layer_types",
        experts="num_experts",
    ),
    "flint": replace(QWEN3, design=_HEAD_NORMS_AND_SINKS, experts="num_experts"),
    "mellum": Family(_HEAD_NORMS, window_needs_flag=True, experts="num_local_experts"),
    "kolibri1": Family(replace(_HEAD_NORMS, sandwich_norms=True), experts="num_local_experts", defaults=full_every(5)),
    "dots1": replace(QWEN3, experts="n_routed_experts", correction_bias=True),
    "ernie4_5_moe": replace(ERNIE, experts="moe_num_experts", correction_bias=True),
    "exaone_moe": Family(_HEAD_NORMS, experts="num_experts", correction_bias=True),
    "hy_v3": Family(_HEAD_NORMS, experts="num_experts", correction_bias=True, defaults=first_dense(1)),
    "laguna": Family(
        replace(_HEAD_NORMS, output_gate=True, gate_per_head=True),
        only={"gating": (True, "per-head")},
        window_needs_flag=True,
        experts="num_experts",
        correction_bias=True,
        defaults=first_dense(1),
    ),
    "afmoe": Family(
        replace(FOUR_NORMS, qk_norm=True, output_gate=True),
        experts="num_experts",
        correction_bias=True,
    ),
    "beam": Family(
        replace(FOUR_NORMS, qk_norm=True, output_gate=True),
        experts="num_experts",
        correction_bias=True,
        defaults={**first_dense(3), **full_every(6)},
    ),
    "mimo_v2_flash": Family(
        out_bias=False, experts="n_routed_experts", correction_bias=True, defaults=first_dense(1), layer_keys=_mimo_keys
    ),
    "deepseek_v2": Family(mla=True, experts="n_routed_experts"),
    "deepseek_v3": _DEEPSEEK_V3,
    "deepseek_v32": _DEEPSEEK_V32,
    "kimi_k2": _DEEPSEEK_V3,
    "sarvam_mla": _DEEPSEEK_V3,
    "axk1": replace(_DEEPSEEK_V3, defaults=first_dense(1), expert_norms=("mlp.post_mlp_layernorm",)),
    "longcat_flash": Family(
        own={
            "num_hidden_layers": "num_layers",
            "intermediate_size": "ffn_hidden_size",
            "moe_intermediate_size": "expert_ffn_hidden_size",
        },
        defaults={"decoder_sparse_step": 2},
        sublayers=2,
        mla=True,
        experts="n_routed_experts",
        beside_experts="intermediate_size",
    ),
    "arctic": Family(
        own={"decoder_sparse_step": "moe_layer_frequency"},
        experts="num_local_experts",
        expert_width="intermediate_size",
        beside_experts="hidden_size",
        expert_norms=("residual_layernorm",),
    ),
    "dots3_note_text": replace(
        _DEEPSEEK_V32, design=built(output_gate=True, gate_per_head=True), defaults=first_dense(1)
    ),
    "hy_v4": replace(_DEEPSEEK_V32, design=built(output_gate=True, attention_sinks=True), defaults=first_dense(1)),
    "inkling_text": Family(
        built(qk_norm=True, embedding_norm=True, positions="none", convolved=("k", "v", "o")),
        experts="n_routed_experts",
    ),
    "zaya": Family(
        built(
            tie_word_embeddings=True, qk_norm=True, qk_norm_weights="none", convolved=("q", "k"), conv_mixes_heads=True
        ),
        own={"conv_kernel_size": "cca_time0"},
        defaults={"zero_expert_num": 1},
        experts="num_experts",
    ),
    "deepseek_v4": Family(
        built(streams_mix=True),
        compressed=True,
        experts="n_routed_experts",
        correction_bias=True,
        layer_keys=_compressed_keys,
    ),
    "axk2": replace(
        _DEEPSEEK_V32,
        design=built(output_gate=True, gate_from_latents=True),
        defaults=first_dense(1),
    ),
    **dict.fromkeys(("glm4_moe", "glm4v_moe_text"), _GLM4_MOE),
    "sarvam_moe": _GLM4_MOE,
    "solar_open": _GLM4_MOE,
    "glm4_moe_lite": _DEEPSEEK_V3,
    "glm_moe_dsa": replace(_DEEPSEEK_V3, design=built(mtp_copies=False), indexer=True),
}
