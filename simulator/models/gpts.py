"""Families that descend from GPT: LayerNorm, mostly with biases, and feed-forward networks without a gate."""

from dataclasses import replace

from .family import Family, built, full_every

LAYER_NORM = built(norm="layer", norm_bias=True, gated_ffn=False)
_BIASED = replace(LAYER_NORM, attention_bias=True, mlp_bias=True)
_GPT = replace(_BIASED, hidden_act="gelu", fused_qkv=True, tie_word_embeddings=True)
_GPT_NEW = replace(_GPT, hidden_act="gelu_new")
_SIDE_BY_SIDE = replace(_BIASED, hidden_act="gelu_new", parallel_residual=True, shared_norm=True, head_bias=True)
_FAIRSEQ = replace(_BIASED, hidden_act="gelu", tie_word_embeddings=True)
_COHERE = built(norm="layer", parallel_residual=True, shared_norm=True, tie_word_embeddings=True, qk_norm_weights="own")

_GPT2_KEYS = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "position_embeddings": "n_positions",
    "hidden_act": "activation_function",
}
_GPTJ_KEYS = {key: name for key, name in _GPT2_KEYS.items() if key != "position_embeddings"}
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
_DBRX_KEYS = {
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "attn_config.kv_n_heads",
    "max_position_embeddings": "max_seq_len",
    "num_experts": "ffn_config.moe_num_experts",
    "num_experts_per_tok": "ffn_config.moe_top_k",
    "moe_intermediate_size": "ffn_config.ffn_hidden_size",
}
_OPT_KEYS = {
    "intermediate_size": "ffn_dim",
    "hidden_act": "activation_function",
    "position_embeddings": "max_position_embeddings",
    "attention_bias": "enable_bias",
    "mlp_bias": "enable_bias",
}
_XGLM_KEYS = {
    "hidden_size": "d_model",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "attention_heads",
    "intermediate_size": "ffn_dim",
}
_GPT_NEO_KEYS = {
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "position_embeddings": "max_position_embeddings",
    "sliding_window": "window_size",
    "layer_types": "attention_layers",
}
_FALCON_KEYS = {
    "intermediate_size": "ffn_hidden_size",
    "hidden_act": "activation",
    "num_key_value_heads": "num_kv_heads",
    "attention_bias": "bias",
    "mlp_bias": "bias",
    "parallel_residual": "parallel_attn",
}
_STABLELM_KEYS = {"attention_bias": "use_qkv_bias", "parallel_residual": "use_parallel_residual"}

GPTS = {
    "gpt2": Family(replace(_GPT_NEW, positions="learned"), _GPT2_KEYS, ffn_ratio=True),
    "gpt-sw3": Family(replace(_GPT_NEW, positions="learned"), _GPT2_KEYS, ffn_ratio=True),
    "openai-gpt": Family(
        replace(_GPT, positions="learned", pre_norms=False, sandwich_norms=True, final_norm=False),
        own=_GPT2_KEYS | {"hidden_act": "afn"},
        ffn_ratio=True,
    ),
    "gpt_bigcode": Family(
        replace(_GPT, hidden_act="gelu_pytorch_tanh", positions="learned"), _GPT2_KEYS, ffn_ratio=True, multi_query=True
    ),
    "gpt_neo": Family(
        replace(_GPT_NEW, fused_qkv=False, attention_bias=False, attention_out_bias=True, positions="learned"),
        own=_GPT_NEO_KEYS,
        defaults=full_every(2),
        full_first=True,
        ffn_ratio=True,
    ),
    "ctrl": Family(
        replace(_GPT, hidden_act="relu", fused_qkv=False, positions="none", head_bias=True),
        own=_GPTJ_KEYS | {"intermediate_size": "dff"},
    ),
    "gptj": Family(replace(_SIDE_BY_SIDE, attention_bias=False), _GPTJ_KEYS, ffn_ratio=True),
    "codegen": Family(replace(_SIDE_BY_SIDE, attention_bias=False, fused_qkv=True), _GPTJ_KEYS, ffn_ratio=True),
    "phi": Family(replace(_SIDE_BY_SIDE, qk_norm_bias=True)),
    "gpt_neox": Family(
        replace(_GPT, tie_word_embeddings=False, parallel_residual=True),
        own={"parallel_residual": "use_parallel_residual"},
    ),
    "gpt_neox_japanese": Family(
        replace(_GPT, attention_bias=False, mlp_bias=False),
        own={"expansion_ratio": "intermediate_multiple_size"},
        ffn_ratio=True,
    ),
    "persimmon": Family(
        replace(_BIASED, hidden_act="relu2", fused_qkv=True, qk_norm=True, qk_norm_bias=True),
    ),
    "bloom": Family(replace(_GPT, positions="alibi", embedding_norm=True), _BLOOM_KEYS, ffn_ratio=True),
    "mpt": Family(replace(_GPT, positions="learned"), _MPT_KEYS, _MPT_ONLY, ffn_ratio=True, no_bias=True),
    "dbrx": Family(built(norm="layer", fused_qkv=True), own=_DBRX_KEYS, experts="num_experts"),
    "opt": Family(
        replace(_FAIRSEQ, hidden_act="relu", positions="learned"),
        own=_OPT_KEYS,
        only={"do_layer_norm_before": (True,), "layer_norm_elementwise_affine": (True,)},
        position_offset=2,
    ),
    "biogpt": Family(
        replace(_FAIRSEQ, positions="learned"),
        own={"position_embeddings": "max_position_embeddings"},
        position_offset=2,
    ),
    "xglm": Family(replace(_FAIRSEQ, positions="none"), _XGLM_KEYS),
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
    "nemotron": Family(replace(LAYER_NORM, hidden_act="relu2")),
    "jais2": Family(replace(_BIASED, hidden_act="relu2")),
    "stablelm": Family(
        built(norm="layer", norm_bias=True, shared_norm=True, qk_norm_weights="own"), _STABLELM_KEYS, out_bias=False
    ),
    "cohere": Family(_COHERE),
    "cohere2": Family(_COHERE, defaults=full_every(4)),
    "cohere_compass_text": Family(_COHERE, window_needs_flag=True),
    "cohere2_moe": Family(_COHERE, experts="num_experts", expert_width="intermediate_size"),
    "phimoe": Family(
        built(norm="layer", norm_bias=True), experts="num_local_experts", expert_width="intermediate_size"
    ),
    "olmo": Family(built(norm="layer", norm_weights=False)),
}
