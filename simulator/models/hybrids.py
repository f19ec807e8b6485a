"""Families whose layers have something else than attention: state spaces, linear attention, short convolutions."""

from dataclasses import replace

from .family import Family, built, first_dense
from .gpts import LAYER_NORM

_MAMBA2_KEYS = {
    "mamba_n_heads": "num_heads",
    "mamba_d_head": "head_dim",
    "mamba_d_state": "state_size",
    "mamba_n_groups": "n_groups",
    "mamba_d_conv": "conv_kernel",
    "mamba_chunk_size": "chunk_size",
    "mamba_expand": "expand",
    "mamba_conv_bias": "use_conv_bias",
    "mamba_proj_bias": "use_bias",
}
_MAMBA = Family(
    built(positions="none", tie_word_embeddings=True),
    _MAMBA2_KEYS | {"mamba_d_inner": "intermediate_size", "mamba_dt_rank": "time_step_rank"},
    mixer="mamba",
    alone=True,
)
_LFM2_MOE_KEYS = {"first_k_dense_replace": "num_dense_layers"}
_LFM2 = Family(
    built(qk_norm=True, tie_word_embeddings=True, matrix_names=("w1", "w3", "w2")),
    {"intermediate_size": "block_ff_dim", "tie_word_embeddings": "tie_embedding"},
    mixer="short convolution",
    layers_key="layer_types",
    narrow_ffn=True,
)
_KIMI_LINEAR_KEYS = {
    "full_attn_layers": "linear_attn_config.full_attn_layers",
    "kda_layers": "linear_attn_config.kda_layers",
    "linear_num_heads": "linear_attn_config.num_heads",
    "linear_head_dim": "linear_attn_config.head_dim",
    "linear_conv_kernel_dim": "linear_attn_config.short_conv_kernel_size",
    "num_experts_per_tok": "num_experts_per_token",
    "n_shared_experts": "num_shared_experts",
    "max_position_embeddings": "model_max_length",
}
_NEMOTRON_H_KEYS = _MAMBA2_KEYS | {
    "mamba_n_heads": "mamba_num_heads",
    "mamba_d_head": "mamba_head_dim",
    "mamba_d_state": "ssm_state_size",
    "hidden_act": "mlp_hidden_act",
    "shared_expert_intermediate_size": "moe_shared_expert_intermediate_size",
}
_NEMOTRON_H = Family(
    built(hidden_act="relu2", gated_ffn=False, positions="none", mtp_copies=False),
    _NEMOTRON_H_KEYS,
    mixer="mamba2",
    layers_key="hybrid_override_pattern",
    alone=True,
    experts="n_routed_experts",
    correction_bias=True,
)
HYBRIDS = {
    "mamba2": Family(
        built(positions="none"),
        _MAMBA2_KEYS,
        mixer="mamba2 as wide as expand",
        alone=True,
    ),
    "nemotron_h": _NEMOTRON_H,
    "nemotron_h_mla": replace(_NEMOTRON_H, mla=True),
    "nemotron_h_gated_delta": replace(_NEMOTRON_H, mixer="gated_delta"),
    "nemotron_h_gated_delta_mla": replace(_NEMOTRON_H, mixer="gated_delta", mla=True),
    "nemotron_h_kimi_delta": replace(_NEMOTRON_H, mixer="kimi_delta"),
    "nemotron_h_kimi_delta_mla": replace(_NEMOTRON_H, mixer="kimi_delta", mla=True),
    "bamba": Family(defaults={"attn_layer_indices": ()}, mixer="mamba2 as wide as expand"),
    "granitemoehybrid": Family(
        built(positions="none"),
        {"shared_expert_intermediate_size": "shared_intermediate_size"},
        {"position_embedding_type": ("nope", "rope")},
        ffn_width="shared_intermediate_size",
        mixer="mamba2 as wide as expand",
        layers_key="layer_types",
        experts="num_local_experts",
        expert_width="intermediate_size",
    ),
    "falcon_h1": Family(
        only={"projectors_bias": (False,)},
        mixer="mamba2 beside attention",
    ),
    "mamba": _MAMBA,
    "falcon_mamba": _MAMBA,
    "jamba": Family(
        built(positions="none"),
        mixer="mamba with norms",
        layers_key="attn_layer_period",
        experts="num_experts",
        fewest_experts=2,
        expert_width="intermediate_size",
    ),
    "lfm2": _LFM2,
    "lfm2_moe": replace(
        _LFM2,
        own=_LFM2_MOE_KEYS,
        narrow_ffn=False,
        experts="num_experts",
        correction_bias=True,
    ),
    "lfm3": Family(
        replace(_LFM2.design, sandwich_norms=True, output_gate=True, gate_per_head=True),
        mixer="short convolution",
        layers_key="layer_types",
    ),
    "minimax": Family(
        mixer="lightning",
        layers_key="layer_types",
        experts="num_local_experts",
        expert_width="intermediate_size",
    ),
    "qwen3_next": Family(
        built(qk_norm=True, output_gate=True, mtp_copies=False),
        defaults={"full_attention_interval": 4},
        mixer="gated_delta",
        layers_key="layer_types",
        experts="num_experts",
        shared_gate=True,
    ),
    "kimi_linear": Family(
        built(positions="none"),
        _KIMI_LINEAR_KEYS,
        defaults=first_dense(1),
        mla=True,
        mixer="kimi_delta",
        layers_key="full_attn_layers",
        experts="num_experts",
        correction_bias=True,
    ),
    "rwkv7": Family(
        replace(LAYER_NORM, hidden_act="relu2", positions="none", embedding_norm=True),
        {"rwkv_head_dim": "head_dim"},
        {"attn": (None,)},
        ffn_ratio=True,
        mixer="rwkv7",
    ),
}
