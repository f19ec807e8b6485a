"""A model's shape from Megatron-LM's arguments to the keys of a Hugging Face config, and the preset that it is.

The other way is in `shape_flags`. What arguments leave open has Megatron-LM's default, not Hugging Face's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...base.errors import UserError
from ...models import ModelSpec, from_hf_config, preset, preset_names
from ...models.model import unusual
from ...models.parts import Moe
from .arguments import Arguments, loose
from .layers import (
    GATED_DELTA,
    count_mtp_layers,
    expert_keys,
    gate_keys,
    mixer_keys,
    pattern_type,
    read_pattern,
    window_keys,
)
from .picks import compressed_keys, indexer_keys, is_compressed, is_sparse
from .vocabulary import is_bert, is_t5, stated_vocabulary, tokenizer_vocabulary, usual_vocabulary

PADDING = 128  # --make-vocab-size-divisible-by
_UNSAID = "vocab_size"
HYBRID = "nemotron_h"
"""The family with a part of a layer, and a letter for it, in each layer."""
_GATED_DELTA_TYPES = ("qwen3_next", "qwen3_5_text")
_MTP = "num_nextn_predict_layers"
POSITIONS = {"learned_absolute": "learned", "rope": "rotary", "yarn": "rotary", "none": "none"}


@dataclass(frozen=True)
class Shape:
    """A model as a scenario names it: the `[model]` table, or the keys of a config that it should name."""

    spec: ModelSpec
    model: Mapping[str, Any]
    config: Mapping[str, Any] | None


def read_shape(args: Arguments, tp: int) -> Shape:
    """The model that the arguments describe; faults are raised."""
    args.check_readable()
    config = _t5(args) if is_t5(args) else _bert(args) if is_bert(args) else _config(args)
    args.check()
    if _UNSAID not in config and (tokens := tokenizer_vocabulary(args)):
        config[_UNSAID] = tokens
    args.check()
    known = _preset_of(config, args, tp)
    if known is not None:
        config[_UNSAID] = preset(known).vocab_size
    elif _UNSAID not in config:
        config[_UNSAID] = usual_vocabulary(args)
    spec = from_hf_config(config, args.where)
    _note_left_out(args, spec)
    return Shape(spec, _named(known, config), None) if known else Shape(spec, {}, config)


def _note_left_out(args: Arguments, spec: ModelSpec) -> None:
    """Note the parts that arguments ask for, and that the model does not have here."""
    moe, gate, bias = spec.moe, "moe_shared_expert_gate", "moe_router_enable_expert_bias"
    if _has_sinks(args) and not spec.attention_sinks:
        softmax = f"{args.spelling('softmax_type')} {args.text('softmax_type')}"
        args.not_modelled.append(f"{softmax}: multi-latent attention has no sinks here")
    if moe and args.switch(gate) and not moe.shared_gate:
        args.not_modelled.append(f"{args.spelling(gate)}: the shared experts of {spec.model_type} have no gate here")
    if moe and args.switch(bias) and not moe.correction_bias:
        args.not_modelled.append(f"{args.spelling(bias)}: the experts of {spec.model_type} have no bias here")


def _named(known: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The preset, with what differs from it in multi-token prediction."""
    layers, mtp = preset(known).num_nextn_predict_layers, config.get(_MTP, 0)
    named: dict[str, Any] = {"preset": known} | ({"overrides": {_MTP: mtp}} if mtp not in (0, layers) else {})
    return named | ({"mtp": False} if layers and not mtp else {})


_NOT_IN_BERT = (
    "swiglu", "geglu", "squared_relu", "group_query_attention", "multi_latent_attention", "num_experts", "qk_layernorm",
    "untie_embeddings_and_output_weights", "rotary", "kv_channels", "hybrid_layer_pattern", "window_size",
    "mtp_num_layers", "experimental_attention_variant",
)  # fmt: skip
"""Arguments that make another model of BERT."""


def _bert(args: Arguments) -> dict[str, Any]:
    """Megatron-LM's BERT, whose sizes may differ; a fault is noted for what else differs."""
    args.assumed.append("the model is Megatron-LM's BERT: by its program, its flags or a vocabulary of WordPiece")
    for name in filter(args.gives, _NOT_IN_BERT):
        args.fault(name, "not read of BERT, which a program, flag or vocabulary (WordPiece, without --merge-file) says")
    if "pretrain_gpt" in args.hint("program") and args.has("vocab_file"):
        args.fault("vocab_file", "without --merge-file it is of WordPiece, which goes with pretrain_bert.py")
    args.choice("normalization", "layernorm", ("layernorm",))
    args.choice("position_embedding_type", "learned_absolute", ("learned_absolute",))
    hidden, longest = args.require("hidden_size", "the width of the model"), args.optional("max_position_embeddings")
    config = {
        "model_type": "megatron-bert",
        "hidden_size": hidden,
        "num_hidden_layers": args.require("num_layers", "the number of layers"),
        "num_attention_heads": args.require("num_attention_heads", "heads"),
        "intermediate_size": args.whole("ffn_hidden_size", 4 * hidden),
        "max_position_embeddings": longest or args.whole("seq_length"),
        "type_vocab_size": 0 if args.switch("bert_no_binary_head") else 2,
        _UNSAID: stated_vocabulary(args),
    }
    return {key: value for key, value in config.items() if value is not None}


def _t5(args: Arguments) -> dict[str, Any]:
    """Megatron-LM's T5, with norms first, learned positions and biases: in Hugging Face's words a Pegasus."""
    args.assumed.append("the model is Megatron-LM's T5: by its program, or by its decoder")
    for name in filter(args.gives, (name for name in _NOT_IN_BERT if name != "kv_channels")):
        args.fault(name, "not read of T5, which a program or a decoder behind an encoder says")
    args.choice("normalization", "layernorm", ("layernorm",))
    args.choice("position_embedding_type", "learned_absolute", ("learned_absolute",))
    if args.whole("pipeline_model_parallel_size") > 1:
        args.fault("pipeline_model_parallel_size", "1: how stages divide an encoder and a decoder is not read")
    hidden, layers = args.require("hidden_size", "the width of the model"), args.require("num_layers", "the layers")
    heads, width = args.require("num_attention_heads", "heads"), args.whole("ffn_hidden_size", 4 * hidden)
    if args.has("kv_channels") and args.whole("kv_channels") * heads != hidden:
        args.fault("kv_channels", f"of T5 {hidden // heads}: the hidden size over the heads")
    depths = {"encoder": layers, "decoder": args.whole("decoder_num_layers", layers)}
    config = {"model_type": "pegasus", "d_model": hidden}
    for stack, depth in depths.items():
        config |= {f"{stack}_layers": depth, f"{stack}_attention_heads": heads, f"{stack}_ffn_dim": width}
    longest = args.optional("max_position_embeddings") or args.whole("seq_length")
    tokens = stated_vocabulary(args)
    return {**config, "max_position_embeddings": longest} | ({_UNSAID: tokens} if tokens else {})


def _config(args: Arguments) -> dict[str, Any]:
    hidden, heads = args.require("hidden_size", "the width of the model"), args.require("num_attention_heads", "heads")
    pattern = read_pattern(args)
    args.check()
    layers = args.require("num_layers", "the number of layers") if pattern is None else len(pattern)
    gated, activation = _activation(args)
    narrow = gated and activation == "silu"  # a gate alone keeps the width (training/arguments.py: only args.swiglu)
    ffn = args.whole("ffn_hidden_size", hidden * 4 * 2 // 3 // 64 * 64 if narrow else 4 * hidden)
    bias = args.switch("add_bias_linear", True)
    layer_norm = args.choice("normalization", "layernorm", ("layernorm", "rmsnorm")) == "layernorm"
    by_default = "rope" if args.switch("rotary") else "learned_absolute"
    positions = POSITIONS[args.choice("position_embedding_type", by_default, POSITIONS)]
    longest = args.optional("max_position_embeddings")
    attention: dict[str, Any]
    if is_compressed(args):
        attention = compressed_keys(args, layers)
    elif args.switch("multi_latent_attention"):
        attention = {key: args.optional(name) or size for name, (key, size) in LATENTS.items()}
    else:
        attention = _attention(args, heads)
    config = {
        "model_type": _model_type(args),
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": ffn,
        "hidden_act" if pattern is None else "mlp_hidden_act": activation,
        "gated_ffn": gated,
        "mlp_bias": bias,
        "attention_bias": bias or args.switch("add_qkv_bias"),
        "attention_out_bias": bias,
        "norm": "layer" if layer_norm else "rms",
        "norm_bias": layer_norm,
        "tie_word_embeddings": not args.switch("untie_embeddings_and_output_weights"),
        "positions": positions,
        "torch_dtype": "bfloat16",
        **attention,
        **_experts(args, layers, ffn),
        **window_keys(args, layers),
        **mixer_keys(args, pattern, hidden, layers),
        **gate_keys(args),
        **indexer_keys(args),
        **_streams(args),
        "max_position_embeddings": longest,
        "position_embeddings": (longest or args.whole("seq_length")) if positions == "learned" else None,
        _MTP: count_mtp_layers(args) or None,
        _UNSAID: stated_vocabulary(args),
    }
    return {key: value for key, value in config.items() if value is not None}


def _streams(args: Arguments) -> dict[str, Any]:
    """Keys of several residual streams, of which layers make mixtures (arXiv 2512.24880)."""
    if not args.switch("enable_mhc_connections"):
        return {}
    return {"hc_mult": args.whole("mhc_num_residual_streams", 4), "streams_mix": True}


def _activation(args: Arguments) -> tuple[bool, str]:
    """Whether networks are gated, and their function; Megatron-LM's YAML says both by a word (yaml_arguments.py)."""
    word = args.hint("activation_func").lower()
    if word == "swiglu" or args.switch("swiglu"):
        return True, "silu"
    return args.switch("geglu"), "relu2" if word == "squaredrelu" or args.switch("squared_relu") else "gelu"


LATENTS = {
    "q_lora_rank": ("q_lora_rank", None), "kv_lora_rank": ("kv_lora_rank", 32),
    "qk_head_dim": ("qk_nope_head_dim", 128), "qk_pos_emb_head_dim": ("qk_rope_head_dim", 64),
    "v_head_dim": ("v_head_dim", 128),
}  # fmt: skip
"""Arguments of multi-latent attention, each with the key of a config that it says, and Megatron-LM's default."""


def _attention(args: Arguments, heads: int) -> dict[str, Any]:
    given = args.has("num_query_groups")
    flags = given and args.spelling("num_query_groups").startswith("--")
    grouped = args.switch("group_query_attention", given and not flags)
    if flags and not grouped and args.whole("num_query_groups") != heads:
        groups = f"{args.spelling('num_query_groups')} {args.text('num_query_groups')}"
        args.assumed.append(f"{groups} counts for nothing without --group-query-attention, as in Megatron-LM")
    says_all = _says_all(_model_type(args))
    groups_alone = 1 if args.spelling("group_query_attention").startswith("--") else heads  # training/arguments.py
    return {
        "num_key_value_heads": args.whole("num_query_groups", groups_alone) if grouped else heads,
        "head_dim": args.optional("kv_channels") or (args.whole("hidden_size") // heads if says_all else None),
        "use_qk_norm": args.switch("qk_layernorm"),
        "attention_sinks": _has_sinks(args) or None,
    }


def _says_all(kind: str) -> bool:
    """Whether it is a family with defaults of sizes, in place of which Megatron-LM's own are written."""
    return kind.startswith(HYBRID) or kind in _GATED_DELTA_TYPES


def _has_sinks(args: Arguments) -> bool:
    return args.choice("softmax_type", "vanilla", ("vanilla", "learnable", "off-by-one")) != "vanilla"


def _experts(args: Arguments, layers: int, ffn: int) -> dict[str, Any]:
    if not (experts := args.optional("num_experts")):
        return {}
    kind, width = _model_type(args), args.whole("moe_ffn_hidden_size", ffn)
    shared, top_k = args.optional("moe_shared_expert_intermediate_size"), args.whole("moe_router_topk", 2)
    hybrid = args.has("hybrid_layer_pattern")
    dense = {} if hybrid else expert_keys(args, layers)
    if kind == "gpt_oss":
        sizes = {"num_local_experts": experts, "intermediate_size": width}
        sizes |= {"dense_intermediate_size": ffn} if dense else {}
    else:
        count = "num_experts" if kind.startswith("qwen") else "n_routed_experts"
        sizes = {count: experts, "moe_intermediate_size": width}
    return {
        "num_experts_per_tok": top_k,
        **sizes,
        f"{'moe_' if hybrid else ''}shared_expert_intermediate_size": shared or (0 if _says_all(kind) else None),
        "moe_latent_size": args.optional("moe_latent_size"),
        **dense,
    }


def _model_type(args: Arguments) -> str:
    """A family whose code fixes nothing that the keys do not say."""
    latent, experts = args.switch("multi_latent_attention"), args.has("num_experts")
    gated, balanced = args.switch("moe_shared_expert_gate"), args.switch("moe_router_enable_expert_bias")
    if args.has("hybrid_layer_pattern"):
        return HYBRID + pattern_type(args)
    if args.hint("experimental_attention_variant") == GATED_DELTA:
        return _GATED_DELTA_TYPES[not experts]
    if is_compressed(args):
        return "deepseek_v4"
    if is_sparse(args):
        return "deepseek_v32" if experts else "sparse_mla"
    if latent:
        return ("deepseek_v3" if balanced else "deepseek_v2") if experts else "mla"
    if not experts:
        return "llama"
    if _has_sinks(args) and not gated and not balanced:
        return "gpt_oss"
    return "qwen2_moe" if gated else "glm4_moe" if balanced else "qwen3_moe"


def padding(args: Arguments) -> int:
    """The multiple to which Megatron-LM pads the vocabulary on each rank."""
    return 1 if args.has("padded_vocab_size") else args.whole("make_vocab_size_divisible_by", PADDING)


def _preset_of(config: Mapping[str, Any], args: Arguments, tp: int) -> str | None:
    """The preset of this shape; where several are, the one that the tokenizer or the longest context speaks of."""
    unsaid = _UNSAID not in config
    try:
        spec = from_hf_config({_UNSAID: 1} | dict(config), args.where)
    except UserError:
        return None  # said again, with its reason, by whoever reads the keys next
    presets, shape = _presets(), outline(spec)
    same = [name for name, known in _outlines().items() if known == shape]
    padded = padding(args) * tp
    found = [name for name in same if unsaid or presets[name].vocab_size == spec.vocab_size]
    found = found or [n for n in same if -(-presets[n].vocab_size // padded) == -(-spec.vocab_size // padded)]
    if not found:
        return None
    tokenizer = loose(args.hint("tokenizer_model"))
    named = [name for name in found if loose(name) in tokenizer]
    context = [name for name in found if presets[name].max_position_embeddings == spec.max_position_embeddings]
    best = (named or context or found)[0]
    if unsaid:
        size = presets[best].vocab_size
        others = f", as might {' and '.join(name for name in found if name != best)}" if len(found) > 1 else ""
        args.assumed.append(f"vocab_size = {size}: that of preset {best}, which has this shape{others}")
    return best


NO_SIZES = {
    *("name", "model_type", "dtype", "quantization", "assumptions", "trunk", "moe_name", "matrix_names"),
    *("second_norms", "fused_gate_up", "fused_qkv", "router_bias", "stacked_experts", "correction_bias"),
    *("vocab_size", "max_position_embeddings", "num_nextn_predict_layers", "mtp_copies", "mtp_apart"),
    *("sliding_window", "hidden_act", "intermediate_size", "moe"),
}
"""Fields in which models may differ and be the same to a training step; of the last row `outline` says what counts."""


@cache
def _presets() -> Mapping[str, ModelSpec]:
    """All presets by name."""
    return {name: preset(name) for name in preset_names()}


@cache
def _outlines() -> Mapping[str, tuple[Any, ...]]:
    """Outlines of all presets by name."""
    return {name: outline(spec) for name, spec in _presets().items()}


def outline(spec: ModelSpec) -> tuple[Any, ...]:
    """All that makes two models the same to a training step, but for vocabulary and multi-token prediction."""
    moe = spec.moe
    dense = spec.intermediate_size if moe is None or len(moe.layers) < spec.num_hidden_layers else None
    relu = spec.hidden_act if spec.hidden_act.startswith("relu") else ""
    return _sizes(spec), moe and _sizes(moe), dense, relu


def _sizes(record: ModelSpec | Moe) -> dict[str, Any]:
    return {name: value for name, value in unusual(record).items() if name not in NO_SIZES}
