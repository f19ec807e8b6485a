"""Families that descend from Llama: dense, mostly RMSNorm without biases, and feed-forward networks with a gate."""

from collections.abc import Sequence
from dataclasses import replace

from .family import Family, LayerKeys, built, full_every
from .keys import Keys

POST_NORMS = built(
    pre_norms=False, sandwich_norms=True, second_norms=("post_attention_layernorm", "post_feedforward_layernorm")
)
FOUR_NORMS = built(sandwich_norms=True, second_norms=("pre_feedforward_layernorm", "post_feedforward_layernorm"))
OLMO2 = replace(POST_NORMS, qk_norm=True, qk_norm_weights="own")
ERNIE = Family(built(tie_word_embeddings=True), {"attention_bias": "use_bias", "mlp_bias": "use_bias"})
QWEN2 = Family(built(attention_bias=True), {"attention_bias": "qkv_bias"}, out_bias=False, window_needs_flag=True)
QWEN3 = Family(built(qk_norm=True), window_needs_flag=True)

QWEN3_5 = Family(
    built(qk_norm=True, output_gate=True, mtp_copies=False, mtp_apart=True, trunk="model.language_model"),
    defaults={"full_attention_interval": 4},
    mixer="gated_delta",
    layers_key="layer_types",
)

_TIED = built(tie_word_embeddings=True)
_GEMMA = built(hidden_act="gelu_pytorch_tanh", tie_word_embeddings=True)
_GEMMA2 = replace(_GEMMA, sandwich_norms=True, second_norms=FOUR_NORMS.second_norms)
_RELU2 = built(hidden_act="relu2", gated_ffn=False)
_APERTUS = Family(built(hidden_act="xielu", gated_ffn=False, qk_norm=True))


def _gemma4_keys(keys: Keys, sliding: Sequence[int], layers: int) -> LayerKeys:
    """Full attention has wider heads, and may take values from keys; layers that share keys may have wide networks."""
    wide: dict[str, object] = {"values_are_keys": keys.flag("attention_k_eq_v", False)}
    if not keys.has("per_layer_config"):
        wide["head_dim"] = keys.whole("global_head_dim", default=512)
    if wide["values_are_keys"] and keys.has("num_global_key_value_heads"):
        wide["num_key_value_heads"] = keys.whole("num_global_key_value_heads")
    found = {number: dict(wide) for number in range(layers) if number not in sliding}
    sharing = keys.whole("num_kv_shared_layers", default=0, minimum=0) * keys.flag("use_double_wide_mlp", False)
    for number in range(layers - sharing, layers):
        found.setdefault(number, {})["intermediate_size"] = 2 * keys.whole("intermediate_size")
    return found


def _post_norms_of_full_attention(keys: Keys, sliding: Sequence[int], layers: int) -> LayerKeys:
    """OLMo's hybrid: layers of linear attention have norms before each part, those of full attention after it."""
    full = [number for number, kind in enumerate(keys.sequence("layer_types")[:layers]) if kind == "full_attention"]
    return {number: {"pre_norms": False, "sandwich_norms": True} for number in full}


_GEMMA4 = Family(
    replace(_GEMMA2, qk_norm=True),
    experts="num_experts",
    experts_need_flag="enable_moe_block",
    beside_experts="intermediate_size",
    expert_norms=("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"),
    defaults=full_every(6),
    layer_keys=_gemma4_keys,
)

LLAMAS = {
    **dict.fromkeys(("llama", "mistral", "exaone", "internlm3", "iquestcoder", "ministral", "ministral3"), Family()),
    **dict.fromkeys(("helium", "granite", "diffllama"), Family()),
    "smollm3": Family(_TIED, window_needs_flag=True),
    "granite_swa": Family(replace(_TIED, attention_sinks=True), defaults=full_every(4), full_first=True),
    "cwm": Family(defaults=full_every(4), full_first=True),
    "seed_oss": Family(built(attention_bias=True), out_bias=False),
    "ernie4_5": ERNIE,
    "phi3": Family(built(fused_qkv=True, fused_gate_up=True)),
    "glm": Family(built(fused_gate_up=True, attention_bias=True), out_bias=False),
    **dict.fromkeys(
        ("glm4", "glm4v_text"),
        Family(built(fused_gate_up=True, sandwich_norms=True, attention_bias=True), out_bias=False),
    ),
    **dict.fromkeys(("qwen2", "qwen2_vl_text", "qwen2_5_vl_text"), QWEN2),
    **dict.fromkeys(("qwen3", "qwen3_vl_text"), QWEN3),
    "qwen3_5_text": QWEN3_5,
    "olmo_hybrid": Family(
        built(second_norms=POST_NORMS.second_norms, qk_norm=True, qk_norm_weights="own"),
        mixer="gated_delta",
        layers_key="layer_types",
        layer_keys=_post_norms_of_full_attention,
    ),
    "hunyuan_v1_dense": Family(built(qk_norm=True)),
    "doge": Family(built(qk_norm=True), only={"is_moe": (False,)}, experts="num_experts", experts_need_flag="is_moe"),
    "hyperclovax": Family(built(sandwich_norms=True), {"sandwich_norms": "use_post_norm"}),
    "arcee": Family(_RELU2),
    "nanochat": Family(replace(_RELU2, norm_weights=False, qk_norm=True, qk_norm_weights="none")),
    "bitnet": Family(built(hidden_act="relu2", sub_norms=True)),
    "apertus": _APERTUS,
    "apertus1p5_text": _APERTUS,
    "olmo2": Family(OLMO2),
    "olmo3": Family(OLMO2, defaults=full_every(4)),
    "exaone4": Family(replace(POST_NORMS, qk_norm=True)),
    "gemma": Family(_GEMMA),
    "vaultgemma": Family(_GEMMA, defaults=full_every(2)),
    "gemma2": Family(_GEMMA2, defaults=full_every(2)),
    "gemma3_text": Family(replace(_GEMMA2, qk_norm=True), defaults=full_every(6)),
    "gemma3n_text": Family(
        replace(_GEMMA2, qk_norm=True, altup=True),
        own={"hc_mult": "altup_num_inputs"},
        defaults=full_every(5),
    ),
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
    "minicpm3": Family(_TIED, mla=True),
    "youtu": Family(_TIED, mla=True),
    "mla": Family(mla=True),
    "sparse_mla": Family(mla=True, indexer=True),
    "modernbert-decoder": Family(
        replace(_TIED, hidden_act="gelu", norm="layer", embedding_norm=True, head_transform=True, head_bias=True),
        own={"head_bias": "decoder_bias"},
        defaults=full_every(3),
        full_first=True,
    ),
}
