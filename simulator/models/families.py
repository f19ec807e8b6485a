"""Model families: what a `model_type` fixes that its config.json does not say, and which models are refused."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .keys import Keys
from .model import ModelSpec

_EXPERT_KEYS = ("n_routed_experts", "num_experts", "num_local_experts")


def _built(**design: Any) -> ModelSpec:
    """A model without sizes that is built like Llama, except for these fields."""
    return ModelSpec("", 0, 0, 0, 0, 0, 0, 0, **design)


@dataclass(frozen=True)
class Family:
    """One `model_type`, as its Hugging Face implementation builds it.

    `design` is a model without sizes: what its code fixes, and the defaults of keys. `own` maps Llama's keys to those
    of its configs; with a value outside of `only` the model is not the one we know. `out_bias`: `attention_bias` also
    covers the output projection. `ffn_ratio`: a missing FFN width means 4 times the hidden size. `ffn_width` is the key
    of an FFN's width. `mla` and `indexer`: its configs have those keys. `experts` is the key of the number of experts
    (None: dense) and `expert_width` of their width; see `Moe` for the rest. `mixer` replaces attention in some layers,
    a key of `hybrid.MIXERS`; `alone`: each layer holds one part. `narrow_ffn`: LFM2's FFN is narrower than its config
    says. `window_needs_flag`: Qwen's `use_sliding_window`; `alternating_window`: every other layer has a window.
    `position_offset`: OPT learns two positions more than it uses. `multi_query`: Falcon's key for one head of k and v.
    `no_bias`: MPT's key against all biases.
    """

    design: ModelSpec = _built()  # noqa: RUF009
    own: Mapping[str, str] = field(default_factory=dict)
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    out_bias: bool = True
    ffn_ratio: bool = False
    ffn_width: str = "intermediate_size"
    mla: bool = False
    indexer: bool = False
    mixer: str = ""
    alone: bool = False
    narrow_ffn: bool = False
    experts: str | None = None
    expert_width: str = "moe_intermediate_size"
    shared_gate: bool = False
    correction_bias: bool = False
    router_bias: bool = False
    window_needs_flag: bool = False
    alternating_window: bool = False
    position_offset: int = 0
    multi_query: bool = False
    no_bias: bool = False


_QWEN2 = Family(_built(attention_bias=True), out_bias=False, window_needs_flag=True)
_QWEN3 = Family(_built(qk_norm=True), window_needs_flag=True)
_QWEN3_5 = Family(
    _built(qk_norm=True, output_gate=True, mtp_copies=False, mtp_apart=True, trunk="model.language_model"),
    mixer="gated_delta",
)
_DEEPSEEK_V3 = Family(mla=True, experts="n_routed_experts", correction_bias=True)
_ALL_MOE = Family(experts="num_local_experts", expert_width="intermediate_size")
_LAYER_NORM = _built(norm="layer", norm_bias=True, gated_ffn=False)
_BIASED = replace(_LAYER_NORM, attention_bias=True, mlp_bias=True)
_GPT = replace(_BIASED, hidden_act="gelu", fused_qkv=True, tie_word_embeddings=True)
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
    _built(positions="none", tie_word_embeddings=True),
    _MAMBA2_KEYS | {"mamba_d_inner": "intermediate_size", "mamba_dt_rank": "time_step_rank"},
    mixer="mamba",
    alone=True,
)
_LFM2_MOE_KEYS = {"first_k_dense_replace": "num_dense_layers"}
_LFM2 = Family(
    _built(qk_norm=True, tie_word_embeddings=True, matrix_names=("w1", "w3", "w2")),
    {"intermediate_size": "block_ff_dim", "tie_word_embeddings": "tie_embedding"},
    mixer="short convolution",
    narrow_ffn=True,
)
_KIMI_LINEAR_KEYS = {
    "full_attn_layers": "linear_attn_config.full_attn_layers",
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
_GEMMA = _built(hidden_act="gelu_pytorch_tanh", tie_word_embeddings=True)
_GEMMA_KEYS = {"hidden_act": "hidden_activation"}
FAMILIES = {
    "llama": Family(),
    "mistral": Family(),
    "mixtral": replace(_ALL_MOE, design=_built(moe_name="block_sparse_moe", matrix_names=("w1", "w3", "w2"))),
    "qwen2": _QWEN2,
    "qwen2_moe": replace(_QWEN2, experts="num_experts", shared_gate=True),
    "qwen3": _QWEN3,
    "qwen3_moe": replace(_QWEN3, experts="num_experts"),
    "deepseek_v2": Family(mla=True, experts="n_routed_experts"),
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "glm4": Family(_built(fused_gate_up=True, sandwich_norms=True), out_bias=False),
    "glm4_moe": Family(out_bias=False, experts="n_routed_experts", correction_bias=True),
    "glm4_moe_lite": _DEEPSEEK_V3,
    "glm_moe_dsa": replace(_DEEPSEEK_V3, design=_built(mtp_copies=False), indexer=True),
    "qwen3_5_text": _QWEN3_5,
    "qwen3_5_moe_text": replace(_QWEN3_5, experts="num_experts", shared_gate=True),
    "gpt_oss": replace(
        _ALL_MOE,
        design=_built(attention_bias=True, attention_sinks=True, mlp_bias=True),
        router_bias=True,
        alternating_window=True,
    ),
    "gpt2": Family(replace(_GPT, hidden_act="gelu_new", positions="learned"), _GPT2_KEYS, ffn_ratio=True),
    "gpt_neox": Family(
        replace(_GPT, tie_word_embeddings=False, parallel_residual=True),
        own={"parallel_residual": "use_parallel_residual"},
    ),
    "bloom": Family(replace(_GPT, positions="alibi", embedding_norm=True), _BLOOM_KEYS, ffn_ratio=True),
    "mpt": Family(replace(_GPT, positions="learned"), _MPT_KEYS, _MPT_ONLY, ffn_ratio=True, no_bias=True),
    "opt": Family(
        replace(_BIASED, hidden_act="relu", tie_word_embeddings=True, positions="learned"),
        own=_OPT_KEYS,
        only={"do_layer_norm_before": (True,), "layer_norm_elementwise_affine": (True,)},
        position_offset=2,
    ),
    "falcon": Family(
        replace(_GPT, attention_bias=False, mlp_bias=False, parallel_residual=True, shared_norm=True),
        own=_FALCON_KEYS,
        only={"num_ln_in_parallel_attn": (2,)},
        ffn_ratio=True,
        multi_query=True,
    ),
    "starcoder2": Family(
        replace(_BIASED, hidden_act="gelu_pytorch_tanh", tie_word_embeddings=True),
        own={"attention_bias": "use_bias", "mlp_bias": "use_bias"},
    ),
    "nemotron": Family(replace(_LAYER_NORM, hidden_act="relu2")),
    "mamba2": Family(_built(positions="none"), _MAMBA2_KEYS, mixer="mamba2", alone=True),
    "nemotron_h": Family(
        _built(hidden_act="relu2", gated_ffn=False, positions="none", mtp_copies=False),
        _NEMOTRON_H_KEYS,
        mixer="mamba2",
        alone=True,
        experts="n_routed_experts",
        correction_bias=True,
    ),
    "bamba": Family(mixer="mamba2"),
    "granitemoehybrid": Family(
        _built(positions="none"),
        {"shared_expert_intermediate_size": "shared_intermediate_size"},
        {"position_embedding_type": ("nope", "rope")},
        ffn_width="shared_intermediate_size",
        mixer="mamba2",
        experts="num_local_experts",
        expert_width="intermediate_size",
    ),
    "falcon_h1": Family(only={"projectors_bias": (False,)}, mixer="mamba2 beside attention"),
    "mamba": _MAMBA,
    "falcon_mamba": _MAMBA,
    "jamba": Family(
        _built(positions="none"), mixer="mamba with norms", experts="num_experts", expert_width="intermediate_size"
    ),
    "lfm2": _LFM2,
    "lfm2_moe": replace(_LFM2, own=_LFM2_MOE_KEYS, narrow_ffn=False, experts="num_experts", correction_bias=True),
    "qwen3_next": Family(
        _built(qk_norm=True, output_gate=True, mtp_copies=False),
        mixer="gated_delta",
        experts="num_experts",
        shared_gate=True,
    ),
    "kimi_linear": Family(
        _built(positions="none"),
        _KIMI_LINEAR_KEYS,
        mla=True,
        mixer="kimi_delta",
        experts="num_experts",
        correction_bias=True,
    ),
    "rwkv7": Family(
        replace(_LAYER_NORM, hidden_act="relu2", positions="none", embedding_norm=True),
        {"rwkv_head_dim": "head_dim"},
        {"attn": (None,)},
        ffn_ratio=True,
        mixer="rwkv7",
    ),
    "grok-1": replace(
        _ALL_MOE,
        design=_built(hidden_act="gelu", tie_word_embeddings=True, sandwich_norms=True),
        experts="num_experts",
    ),
    "gemma": Family(_GEMMA, _GEMMA_KEYS),
    "gemma2": Family(
        replace(_GEMMA, sandwich_norms=True, second_norms=("pre_feedforward_layernorm", "post_feedforward_layernorm")),
        _GEMMA_KEYS,
        alternating_window=True,
    ),
}


def family_of(model_type: str, config: Mapping[str, Any]) -> Family:
    """The family of a `model_type`; an unknown one is llama-like, with MLA or experts if the config has their keys."""
    return FAMILIES.get(model_type) or _llama_like(config)


def _llama_like(config: Mapping[str, Any]) -> Family:
    given = {key for key, value in config.items() if value is not None}
    experts = next((key for key in _EXPERT_KEYS if key in given), None)
    width = "moe_intermediate_size" if "moe_intermediate_size" in given else "intermediate_size"
    return Family(mla="kv_lora_rank" in given, experts=experts, expert_width=width)


# Models that we cannot size, by `model_type` or by a key of layers that Llama lacks. A `model_type` that is neither a
# family nor here is read as llama-like.

_ENCODERS = "an encoder"
_ENCODER_DECODERS = "encoder and decoder"
_STATE_SPACE = "state-space or recurrent layers"
_SHARED = "layers that share weights"
_SEVERAL_MEDIA = "towers for other media than text"
_OTHER_ATTENTION = "another kind of attention"
_OTHER_DECODERS = "a decoder whose norms, biases or layers differ from Llama's"

REFUSED_TYPES = {
    _ENCODERS: (
        *("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "albert", "electra", "mpnet", "nomic_bert"),
        *("deberta", "deberta-v2", "modernbert", "longformer", "big_bird", "esm", "vit", "dinov2", "wav2vec2"),
    ),
    _ENCODER_DECODERS: ("t5", "mt5", "umt5", "t5gemma", "longt5", "bart", "mbart", "pegasus", "marian", "whisper"),
    _STATE_SPACE: (
        *("rwkv", "rwkv5", "rwkv6", "xlstm", "retnet", "hyena"),
        *("recurrent_gemma", "plamo2", "minimax"),
    ),
    _SHARED: ("zamba", "zamba2"),
    _OTHER_DECODERS: (
        *("phi", "phimoe", "gptj", "gpt_neo", "gpt_bigcode", "codegen", "openai-gpt", "xlnet", "ctrl", "xglm"),
        *("stablelm", "persimmon", "cohere", "cohere2", "olmo", "olmo2", "olmo3", "olmoe", "dbrx", "arctic"),
        *("gemma3_text", "gemma3n_text", "llama4_text", "minicpm3"),
    ),
}
REFUSED_KEYS = {
    _SHARED: ("num_mem_blocks",),
    _SEVERAL_MEDIA: ("text_config", "vision_config"),
    _ENCODER_DECODERS: ("is_encoder_decoder", "encoder_layers", "num_decoder_layers", "relative_attention_num_buckets"),
    _ENCODERS: ("type_vocab_size",),
    _STATE_SPACE: (
        *("hybrid_override_pattern", "layers_block_type", "block_types", "attn_layer_period", "ssm_cfg", "lru_width"),
        *("mamba_d_state", "mamba_d_conv", "ssm_state_size", "state_size", "attention_hidden_size"),
    ),
    _OTHER_ATTENTION: ("linear_attn_config", "compress_ratios", "o_lora_rank"),
}
KEY_OF_INDEXER, KEY_OF_LINEAR_ATTENTION = "index_topk", "linear_num_value_heads"  # refused outside their families


def refuse(keys: Keys, family: Family, model_type: str) -> None:
    """Note why the model cannot be sized, if it cannot; the first sign is enough."""
    for key, why in _signs(keys, family, model_type):
        known = f"known are {', '.join(sorted(FAMILIES))}, and others that are built like Llama"
        keys.fault(key, f"not modelled: {why}; {known}")
        return
    for key, values in family.only.items():
        if keys.has(key) and keys.get(key) not in values:
            keys.fault(key, f"not modelled; {' or '.join(map(repr, values))}")


def _signs(keys: Keys, family: Family, model_type: str) -> Iterator[tuple[str, str]]:
    yield from (("model_type", why) for why, types in REFUSED_TYPES.items() if model_type in types)
    signs_of = {why: signs for why, signs in REFUSED_KEYS.items() if why != _STATE_SPACE or not family.mixer}
    known = {name.partition(".")[0] for name in family.own.values()}
    yield from ((key, why) for why, signs in signs_of.items() for key in signs if key not in known and keys.get(key))
    foreign = [] if family.indexer else [KEY_OF_INDEXER]
    foreign += [] if family.mixer else [KEY_OF_LINEAR_ATTENTION]
    yield from ((key, _OTHER_ATTENTION) for key in foreign if keys.get(key))
