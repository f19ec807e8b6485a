"""Model families: what a `model_type` fixes in code and its config.json does not say. Configs are read in `hf`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_EXPERT_KEYS = ("n_routed_experts", "num_experts", "num_local_experts")


@dataclass(frozen=True)
class Family:
    """One `model_type`, as its Hugging Face implementation builds it.

    `attention_bias` is the default of that key and `out_bias` whether the key also covers the output projection.
    `experts` is the key that counts experts (None: a dense family) and `expert_width` the key of their width.
    `indexer` and `linear_attention` say that the config has the keys of those; see `ModelSpec` for the rest.
    `window_needs_flag` is Qwen's `use_sliding_window`; `alternating_window` has every other layer slide.
    """

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
FAMILIES = {
    "llama": Family(),
    "mistral": Family(),
    "mixtral": Family(experts="num_local_experts", expert_width="intermediate_size"),
    "qwen2": Family(attention_bias=True, out_bias=False, window_needs_flag=True),
    "qwen2_moe": Family(True, False, experts="num_experts", shared_gate=True, window_needs_flag=True),
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
}


def family_of(model_type: str, config: Mapping[str, Any]) -> Family:
    """The family of a `model_type`; an unknown one is llama-like, with MLA or experts if the config has their keys."""
    return FAMILIES.get(model_type) or _llama_like(config)


def _llama_like(config: Mapping[str, Any]) -> Family:
    given = {key for key, value in config.items() if value is not None}
    experts = next((key for key in _EXPERT_KEYS if key in given), None)
    width = "moe_intermediate_size" if "moe_intermediate_size" in given else "intermediate_size"
    return Family(mla="kv_lora_rank" in given, experts=experts, expert_width=width)
