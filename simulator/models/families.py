"""Model families: what a `model_type` fixes in code and its config.json does not say. Configs are read in `hf`.

What is no family here and cannot be read as llama-like is in `refused`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

_EXPERT_KEYS = ("n_routed_experts", "num_experts", "num_local_experts")


@dataclass(frozen=True)
class Family:
    """One `model_type`, as its Hugging Face implementation builds it.

    `attention_bias` is the default of that key and `out_bias` whether the key also covers the output projection.
    `experts` is the key that counts experts (None: a dense family) and `expert_width` the key of their width.
    `indexer` and `linear_attention` say that the config has the keys of those; see `ModelSpec` for the rest.
    `window_needs_flag` is Qwen's `use_sliding_window`; `alternating_window` has every other layer slide.
    `own` is what its config calls the keys of Llama's, and `only` the values of keys beside which it is another model.
    `act`, `tied`, `positions` are defaults of `hidden_act`, `tie_word_embeddings`, and of what says where a token is;
    `position_offset` is OPT's, which learns two positions more than it can use. `ffn_ratio`: the width of the FFN may
    be left out, for 4 times the hidden size. `multi_query` is Falcon's key for one head of k and v, `no_bias` MPT's
    against all biases.
    """

    own: Mapping[str, str] = field(default_factory=dict)
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    act: str = "silu"
    gated: bool = True
    ffn_ratio: bool = False
    tied: bool = False
    norm: str = "rms"
    norm_bias: bool = False
    embedding_norm: bool = False
    parallel_residual: bool = False
    shared_norm: bool = False
    positions: str = "rotary"
    position_offset: int = 0
    fused_qkv: bool = False
    multi_query: bool = False
    no_bias: bool = False
    attention_bias: bool = False
    out_bias: bool = True
    qk_norm: bool = False
    output_gate: bool = False
    fused_gate_up: bool = False
    sandwich_norms: bool = False
    attention_sinks: bool = False
    mlp_bias: bool = False
    mla: bool = False
    indexer: bool = False
    linear_attention: bool = False
    experts: str | None = None
    expert_width: str = "moe_intermediate_size"
    shared_gate: bool = False
    correction_bias: bool = False
    router_bias: bool = False
    window_needs_flag: bool = False
    alternating_window: bool = False
    mtp_copies: bool = True
    mtp_apart: bool = False
    trunk: str = "model"


_QWEN2 = Family(attention_bias=True, out_bias=False, window_needs_flag=True)
_DEEPSEEK_V3 = Family(mla=True, experts="n_routed_experts", correction_bias=True)
_GPT_OSS = Family(
    attention_bias=True,
    attention_sinks=True,
    mlp_bias=True,
    experts="num_local_experts",
    expert_width="intermediate_size",
    router_bias=True,
    alternating_window=True,
)
_GLM_MOE_DSA = Family(mla=True, indexer=True, experts="n_routed_experts", correction_bias=True, mtp_copies=False)
_QWEN3_5 = Family(
    qk_norm=True,
    output_gate=True,
    linear_attention=True,
    mtp_copies=False,
    mtp_apart=True,
    trunk="model.language_model",
)
_GPT2_KEYS = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "position_embeddings": "n_positions",
    "hidden_act": "activation_function",
}
_BLOOM_KEYS = {
    "hidden_size": "n_embed",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "seq_length",
}
_MPT_KEYS = {
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "attn_config.kv_n_heads",
    "max_position_embeddings": "max_seq_len",
    "position_embeddings": "max_seq_len",
    "alibi": "attn_config.alibi",
    "rope": "attn_config.rope",
}
_MPT_ONLY = {
    "attn_config.attn_type": ("multihead_attention", "grouped_query_attention"),
    "attn_config.qk_ln": (False,),
    "attn_config.qk_gn": (False,),
    "ffn_config.ffn_type": ("mptmlp",),
    "norm_type": ("layernorm", "low_precision_layernorm"),
    "learned_pos_emb": (True,),
}
_OPT_KEYS = {
    "intermediate_size": "ffn_dim",
    "hidden_act": "activation_function",
    "position_embeddings": "max_position_embeddings",
    "attention_bias": "enable_bias",
    "mlp_bias": "enable_bias",
}
_FALCON_KEYS = {
    "intermediate_size": "ffn_hidden_size",
    "hidden_act": "activation",
    "num_key_value_heads": "num_kv_heads",
    "attention_bias": "bias",
    "mlp_bias": "bias",
    "parallel_residual": "parallel_attn",
}
_BIASED: dict[str, Any] = {"attention_bias": True, "mlp_bias": True, "norm": "layer", "norm_bias": True}
_GPT: dict[str, Any] = _BIASED | {"act": "gelu", "gated": False, "fused_qkv": True}
_GPT2 = Family(**_GPT | {"act": "gelu_new"}, own=_GPT2_KEYS, ffn_ratio=True, tied=True, positions="learned")
_BLOOM = Family(**_GPT, own=_BLOOM_KEYS, ffn_ratio=True, tied=True, positions="alibi", embedding_norm=True)
_MPT = Family(**_GPT, own=_MPT_KEYS, only=_MPT_ONLY, ffn_ratio=True, tied=True, positions="learned", no_bias=True)
_GPT_NEOX = Family(**_GPT, own={"parallel_residual": "use_parallel_residual"}, parallel_residual=True)
_OPT = Family(
    **_BIASED,
    own=_OPT_KEYS,
    only={"do_layer_norm_before": (True,), "layer_norm_elementwise_affine": (True,)},
    act="relu",
    gated=False,
    tied=True,
    positions="learned",
    position_offset=2,
)
_FALCON = Family(
    own=_FALCON_KEYS,
    only={"num_ln_in_parallel_attn": (2,)},
    act="gelu",
    gated=False,
    ffn_ratio=True,
    tied=True,
    norm="layer",
    norm_bias=True,
    parallel_residual=True,
    shared_norm=True,
    fused_qkv=True,
    multi_query=True,
)
_STARCODER2 = Family(
    **_BIASED,
    own={"attention_bias": "use_bias", "mlp_bias": "use_bias"},
    act="gelu_pytorch_tanh",
    gated=False,
    tied=True,
)
_GROK_1 = Family(act="gelu", tied=True, sandwich_norms=True, experts="num_experts", expert_width="intermediate_size")
_GEMMA = Family(own={"hidden_act": "hidden_activation"}, act="gelu_pytorch_tanh", tied=True)
FAMILIES = {
    "llama": Family(),
    "mistral": Family(),
    "mixtral": Family(experts="num_local_experts", expert_width="intermediate_size"),
    "qwen2": _QWEN2,
    "qwen2_moe": replace(_QWEN2, experts="num_experts", shared_gate=True),
    "qwen3": Family(qk_norm=True, window_needs_flag=True),
    "qwen3_moe": Family(qk_norm=True, experts="num_experts", window_needs_flag=True),
    "deepseek_v2": Family(mla=True, experts="n_routed_experts"),
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "glm4": Family(out_bias=False, fused_gate_up=True, sandwich_norms=True),
    "glm4_moe": Family(out_bias=False, experts="n_routed_experts", correction_bias=True),
    "glm4_moe_lite": _DEEPSEEK_V3,
    "glm_moe_dsa": _GLM_MOE_DSA,
    "qwen3_5_text": _QWEN3_5,
    "gpt_oss": _GPT_OSS,
    "gpt2": _GPT2,
    "gpt_neox": _GPT_NEOX,
    "bloom": _BLOOM,
    "mpt": _MPT,
    "opt": _OPT,
    "falcon": _FALCON,
    "starcoder2": _STARCODER2,
    "nemotron": Family(act="relu2", gated=False, norm="layer", norm_bias=True),
    "grok-1": _GROK_1,
    "gemma": _GEMMA,
    "gemma2": replace(_GEMMA, sandwich_norms=True, alternating_window=True),
}


def family_of(model_type: str, config: Mapping[str, Any]) -> Family:
    """The family of a `model_type`; an unknown one is llama-like, with MLA or experts if the config has their keys."""
    return FAMILIES.get(model_type) or _llama_like(config)


def _llama_like(config: Mapping[str, Any]) -> Family:
    given = {key for key, value in config.items() if value is not None}
    experts = next((key for key in _EXPERT_KEYS if key in given), None)
    width = "moe_intermediate_size" if "moe_intermediate_size" in given else "intermediate_size"
    return Family(mla="kv_lora_rank" in given, experts=experts, expert_width=width)
