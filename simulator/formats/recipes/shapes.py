"""A model's shape between Megatron-LM's arguments and the keys of a Hugging Face config, and the preset that it is.

What arguments leave open has Megatron-LM's default, not Hugging Face's.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...base.errors import UserError
from ...models import ModelSpec, from_hf_config, preset, preset_names
from .given import Given

PADDING = 128  # --make-vocab-size-divisible-by
_GPT2_VOCABULARY = 50257
_UNSAID = "vocab_size"
_MTP = "num_nextn_predict_layers"
POSITIONS = {"learned_absolute": "learned", "rope": "rotary", "yarn": "rotary", "none": "none"}
_POSITION_TYPES = {"learned": "learned_absolute", "rotary": "rope", "none": "none"}
_ARRAY = re.compile(r"\(?\[?([01](?:,[01])*)\]?\)?(?:\*(\d{1,4}))?")


@dataclass(frozen=True)
class Shape:
    """A model as a scenario names it: the `[model]` table, or the keys of a config that it should name."""

    spec: ModelSpec
    model: Mapping[str, Any]
    config: Mapping[str, Any] | None


def read_shape(given: Given, tp: int) -> Shape | None:
    """The model that the arguments describe; None where there were faults, which the notes hold."""
    for name in given.other_models():
        given.fault(name, "not modelled; only decoders with attention in every layer, dense or with experts")
    config = _config(given)
    if given.notes.faults:
        return None
    known = _preset_of(config, given, tp)
    if known is None and _UNSAID not in config:
        given.missing("vocab_size", "the number of tokens; no preset has this shape, which would tell")
        return None
    if known is not None:
        config[_UNSAID] = preset(known).vocab_size
    try:
        spec = from_hf_config(config, given.where)
    except UserError as error:
        given.notes.faults.extend(error.faults)
        return None
    return Shape(spec, _named(known, config), None) if known else Shape(spec, {}, config)


def _named(known: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The preset, with what differs from it in multi-token prediction."""
    spec, mtp = preset(known), config.get(_MTP, 0)
    changes = {}
    if mtp not in (0, spec.num_nextn_predict_layers):
        changes[_MTP] = mtp
    named: dict[str, Any] = {"preset": known} | ({"overrides": changes} if changes else {})
    return named | ({"mtp": False} if spec.num_nextn_predict_layers and not mtp else {})


def _config(given: Given) -> dict[str, Any]:
    hidden, heads = given.needed("hidden_size", "the width of the model"), given.needed("num_attention_heads", "heads")
    layers = given.needed("num_layers", "the number of layers")
    gated = given.switch("swiglu") or given.switch("geglu")
    ffn = given.whole("ffn_hidden_size", _default_ffn(hidden, gated))
    bias = given.switch("add_bias_linear", True)
    layer_norm = given.choice("normalization", "layernorm", ("layernorm", "rmsnorm")) == "layernorm"
    positions = POSITIONS[given.choice("position_embedding_type", _positions_by_default(given), tuple(POSITIONS))]
    config = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": ffn,
        "hidden_act": "silu" if given.switch("swiglu") else "relu2" if given.switch("squared_relu") else "gelu",
        "gated_ffn": gated,
        "mlp_bias": bias,
        "attention_bias": bias or given.switch("add_qkv_bias"),
        "attention_out_bias": bias,
        "norm": "layer" if layer_norm else "rms",
        "norm_bias": layer_norm,
        "tie_word_embeddings": not given.switch("untie_embeddings_and_output_weights"),
        "positions": positions,
        "torch_dtype": "bfloat16",
    }
    config |= _attention(given, heads) | _experts(given, layers, ffn)
    if longest := given.optional("max_position_embeddings"):
        config["max_position_embeddings"] = longest
    if positions == "learned":
        config["position_embeddings"] = longest or given.whole("seq_length")
    if mtp := given.whole("mtp_num_layers", 0, minimum=0):
        config[_MTP] = mtp
    if vocabulary := _vocabulary(given):
        config[_UNSAID] = vocabulary
    config["model_type"] = _model_type(given)
    return config


def _positions_by_default(given: Given) -> str:
    return "rope" if given.switch("rotary") else "learned_absolute"


def _default_ffn(hidden: int, gated: bool) -> int:
    return hidden * 4 * 2 // 3 // 64 * 64 if gated else 4 * hidden


def _attention(given: Given, heads: int) -> dict[str, Any]:
    if given.switch("multi_latent_attention"):
        query = {"q_lora_rank": rank} if (rank := given.optional("q_lora_rank")) else {}
        return query | {
            "kv_lora_rank": given.whole("kv_lora_rank", 32),
            "qk_nope_head_dim": given.whole("qk_head_dim", 128),
            "qk_rope_head_dim": given.whole("qk_pos_emb_head_dim", 64),
            "v_head_dim": given.whole("v_head_dim", 128),
        }
    flags = given.has("num_query_groups") and given.spelled("num_query_groups").startswith("--")
    grouped = given.switch("group_query_attention", given.has("num_query_groups") and not flags)
    if flags and not grouped and given.whole("num_query_groups") != heads:
        given.fault("num_query_groups", "means nothing without --group-query-attention")
    keys: dict[str, Any] = {"num_key_value_heads": given.whole("num_query_groups", heads) if grouped else heads}
    if width := given.optional("kv_channels"):
        keys["head_dim"] = width
    return keys | {"use_qk_norm": given.switch("qk_layernorm")}


def _experts(given: Given, layers: int, ffn: int) -> dict[str, Any]:
    if not (experts := given.optional("num_experts")):
        return {}
    width = given.whole("moe_ffn_hidden_size", ffn)
    keys: dict[str, Any] = {
        "num_experts_per_tok": given.whole("moe_router_topk", 2),
        "moe_intermediate_size": width,
        _experts_key(given): experts,
    }
    if shared := given.optional("moe_shared_expert_intermediate_size"):
        keys["shared_expert_intermediate_size"] = shared
    return keys | _which_layers(given, layers)


def _which_layers(given: Given, layers: int) -> dict[str, Any]:
    """Every n-th layer, or a list such as ([0]*3+[1]*58) with a number per layer."""
    text = re.sub(r"\s", "", given.text("moe_layer_freq", "1"))
    if re.fullmatch(r"\d{1,4}", text) and int(text) > 0:
        return {"moe_layer_freq": int(text)} if int(text) > 1 else {}
    pattern = _pattern(text)
    if len(pattern) != layers:
        given.fault(
            "moe_layer_freq", f"expected a number, or a list for {layers} layers such as ([0]*1+[1]*{layers - 1})"
        )
        return {}
    dense = [number for number, moe in enumerate(pattern) if not moe]
    if dense == list(range(len(dense))):
        return {"first_k_dense_replace": len(dense)} if dense else {}
    return {"mlp_only_layers": dense}


def _pattern(text: str) -> list[int]:
    """The list that the text writes, empty where it writes none."""
    text = text[1:-1] if text.startswith("(") and text.endswith(")") else text
    found: list[int] = []
    for part in text.split("+"):
        match = _ARRAY.fullmatch(part)
        if match is None:
            return []
        found += [int(digit) for digit in match[1].split(",")] * int(match[2] or 1)
    return found


def _model_type(given: Given) -> str:
    """A family whose code fixes nothing that the keys do not say."""
    latent, experts = given.switch("multi_latent_attention"), given.has("num_experts")
    balanced = given.switch("moe_router_enable_expert_bias")
    if latent:
        return ("deepseek_v3" if balanced else "deepseek_v2") if experts else "mla"
    if not experts:
        return "llama"
    return "qwen2_moe" if given.switch("moe_shared_expert_gate") else "glm4_moe" if balanced else "qwen3_moe"


def _experts_key(given: Given) -> str:
    return "num_experts" if _model_type(given).startswith("qwen") else "n_routed_experts"


def _vocabulary(given: Given) -> int | None:
    if padded := given.optional("padded_vocab_size"):
        return padded
    if said := given.optional("vocab_size"):
        return said
    if given.text("tokenizer_type").startswith("GPT2BPE"):
        given.notes.assumed.append(f"vocab_size = {_GPT2_VOCABULARY}: that of the GPT-2 tokenizer")
        return _GPT2_VOCABULARY
    return None


def _multiple(given: Given, vocabulary: int, tp: int) -> int:
    multiple = padding(given) * tp
    return -(-vocabulary // multiple) * multiple


def padding(given: Given) -> int:
    """The multiple to which Megatron-LM pads the vocabulary on each rank."""
    return 1 if given.has("padded_vocab_size") else given.whole("make_vocab_size_divisible_by", PADDING)


def _preset_of(config: Mapping[str, Any], given: Given, tp: int) -> str | None:
    """The preset of this shape; where several are, the one that the tokenizer or the longest context speaks of."""
    unsaid = _UNSAID not in config
    try:
        spec = from_hf_config({_UNSAID: 1} | dict(config), given.where)
    except UserError:
        return None  # said again, with its reason, by whoever reads the keys next
    same = [name for name in preset_names() if outline(preset(name)) == outline(spec)]
    found = [name for name in same if unsaid or preset(name).vocab_size == spec.vocab_size]
    found = found or [name for name in same if _padded_alike(given, preset(name).vocab_size, spec.vocab_size, tp)]
    if not found:
        return None
    tokenizer = _loose(given.text("tokenizer_model"))
    named = [name for name in found if _loose(name) in tokenizer]
    context = [name for name in found if preset(name).max_position_embeddings == spec.max_position_embeddings]
    best = (named or context or found)[0]
    if unsaid:
        size = preset(best).vocab_size
        others = f", as might {' and '.join(set(found) - {best})}" if len(found) > 1 else ""
        given.notes.assumed.append(f"vocab_size = {size}: that of preset {best}, which has this shape{others}")
    return best


def _padded_alike(given: Given, one: int, other: int, tp: int) -> bool:
    return _multiple(given, one, tp) == _multiple(given, other, tp)


def outline(spec: ModelSpec) -> tuple[Any, ...]:
    """All that makes two models the same to a training step, but for vocabulary and multi-token prediction."""
    return tuple(_outline(spec))


def _outline(spec: ModelSpec) -> Iterator[Any]:
    layers, moe = spec.num_hidden_layers, spec.moe
    yield from (layers, spec.hidden_size, spec.num_attention_heads, spec.mla, spec.indexer, spec.linear_attention)
    yield from (spec.num_key_value_heads, spec.head_dim, spec.gated_ffn, spec.tie_word_embeddings)
    yield from (spec.attention_bias, spec.attention_out_bias, spec.mlp_bias, spec.norm, spec.norm_bias)
    yield from (spec.positions, spec.position_embeddings, spec.parallel_residual, spec.shared_norm, spec.embedding_norm)
    yield spec.hidden_act if spec.hidden_act.startswith("relu") else ""
    yield from (spec.qk_norm, spec.output_gate, spec.sandwich_norms, spec.attention_sinks, spec.sliding_layers)
    yield from (moe and (moe.n_routed_experts, moe.num_experts_per_tok, moe.moe_intermediate_size, moe.layers),)
    yield from (moe and moe.shared_intermediate_size, moe and moe.shared_gate)
    yield spec.intermediate_size if moe is None or len(moe.layers) < layers else None


def _loose(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def arguments_of(spec: ModelSpec, where: str = "scenario") -> list[str]:
    """The model's shape as lines of arguments.

    Raises:
        UserError: the model has what these arguments do not say; one line each.
    """
    if unsaid := _not_said(spec):
        raise UserError(*(f"{where}: model: {spec.name} has {what}, which no argument says" for what in unsaid))
    return [*_dense_lines(spec), *_attention_lines(spec), *_expert_lines(spec)]


def _not_said(spec: ModelSpec) -> list[str]:
    features = {
        "an attention that picks tokens": spec.indexer is not None,
        "linear attention": spec.linear_attention is not None,
        "sliding windows": bool(spec.sliding_layers),
        "attention sinks": spec.attention_sinks,
        "gated attention": spec.output_gate,
        "norms behind each part": spec.sandwich_norms,
        "attention and feed-forward side by side": spec.parallel_residual,
        "a norm behind its embedding": spec.embedding_norm,
        f"positions by {spec.positions}": spec.positions not in POSITIONS.values(),
        f"activation {spec.hidden_act}": spec.hidden_act == "relu",
        "norms without bias": (spec.norm == "layer") != spec.norm_bias,
        "biases in attention that are not those in its feed-forward": spec.attention_out_bias != spec.mlp_bias,
    }
    return [what for what, has in features.items() if has]


def _dense_lines(spec: ModelSpec) -> Iterator[str]:
    yield f"--num-layers {spec.num_hidden_layers}"
    yield f"--hidden-size {spec.hidden_size}"
    yield f"--ffn-hidden-size {spec.intermediate_size}"
    yield f"--num-attention-heads {spec.num_attention_heads}"
    yield f"--vocab-size {spec.vocab_size}"
    if positions := spec.position_embeddings or spec.max_position_embeddings:
        yield f"--max-position-embeddings {positions}"
    if spec.gated_ffn:
        yield "--quick-geglu" if spec.hidden_act.startswith("gelu") else "--swiglu"
    elif spec.hidden_act == "relu2":
        yield "--squared-relu"
    if not spec.mlp_bias:
        yield "--disable-bias-linear"
    if spec.attention_bias and not spec.mlp_bias:
        yield "--add-qkv-bias"
    yield f"--normalization {'LayerNorm' if spec.norm == 'layer' else 'RMSNorm'}"
    yield f"--position-embedding-type {_POSITION_TYPES[spec.positions]}"
    if not spec.tie_word_embeddings:
        yield "--untie-embeddings-and-output-weights"
    if spec.num_nextn_predict_layers:
        yield f"--mtp-num-layers {spec.num_nextn_predict_layers}"


def _attention_lines(spec: ModelSpec) -> Iterator[str]:
    if mla := spec.mla:
        yield "--multi-latent-attention"
        if mla.q_lora_rank:
            yield f"--q-lora-rank {mla.q_lora_rank}"
        yield f"--kv-lora-rank {mla.kv_lora_rank}"
        yield f"--qk-head-dim {mla.qk_nope_head_dim}"
        yield f"--qk-pos-emb-head-dim {mla.qk_rope_head_dim}"
        yield f"--v-head-dim {mla.v_head_dim}"
        return
    if spec.num_key_value_heads != spec.num_attention_heads:
        yield "--group-query-attention"
        yield f"--num-query-groups {spec.num_key_value_heads}"
    if spec.head_dim * spec.num_attention_heads != spec.hidden_size:
        yield f"--kv-channels {spec.head_dim}"
    if spec.qk_norm:
        yield "--qk-layernorm"


def _expert_lines(spec: ModelSpec) -> Iterator[str]:
    if (moe := spec.moe) is None:
        return
    yield f"--num-experts {moe.n_routed_experts}"
    yield f"--moe-router-topk {moe.num_experts_per_tok}"
    yield f"--moe-ffn-hidden-size {moe.moe_intermediate_size}"
    if moe.shared_intermediate_size:
        yield f"--moe-shared-expert-intermediate-size {moe.shared_intermediate_size}"
    if moe.shared_gate:
        yield "--moe-shared-expert-gate"
    if moe.correction_bias:
        yield "--moe-router-enable-expert-bias"
    pattern = [int(spec.is_moe(layer)) for layer in range(spec.num_hidden_layers)]
    if not all(pattern):
        yield f"--moe-layer-freq '({_runs(pattern)})'"


def _runs(pattern: list[int]) -> str:
    """A list of zeros and ones as Megatron-LM reads it: [0]*3+[1]*58."""
    runs: list[list[int]] = []
    for value in pattern:
        if not runs or runs[-1][0] != value:
            runs.append([value, 0])
        runs[-1][1] += 1
    return "+".join(f"[{value}]*{count}" for value, count in runs)
