"""What a recipe changes of a model that it names: Megatron-LM's arguments as overrides of the keys of a config.

A change that no key of the model's config says is named as not modelled.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...base.errors import UserError
from ...models import ModelSpec, from_hf_config, preset_config, read_keys
from ...models.hybrid import DENSE, EXPERTS, REPLACED, layers_of
from ...models.keys import EXPERT_KEYS
from ...models.stack import layers_with_indexer
from .arguments import Arguments
from .layers import expert_layers, read_pattern, window_keys
from .picks import LOSS, has_loss, is_sparse, period_keys
from .shapes import POSITIONS, Shape

MTP = ("num_nextn_predict_layers", "mtp_num_hidden_layers")
"""Keys that say layers of multi-token prediction, of which a model has one."""

_SIZES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "num_layers": ("num_hidden_layers", ("num_hidden_layers",)),
    "hidden_size": ("hidden_size", ("hidden_size",)),
    "ffn_hidden_size": ("intermediate_size", ("intermediate_size",)),
    "num_attention_heads": ("num_attention_heads", ("num_attention_heads",)),
    "num_query_groups": ("num_key_value_heads", ("num_key_value_heads",)),
    "kv_channels": ("head_dim", ("head_dim",)),
    "vocab_size": ("vocab_size", ("vocab_size",)),
    "q_lora_rank": ("mla.q_lora_rank", ("q_lora_rank",)),
    "kv_lora_rank": ("mla.kv_lora_rank", ("kv_lora_rank",)),
    "qk_head_dim": ("mla.qk_nope_head_dim", ("qk_nope_head_dim",)),
    "qk_pos_emb_head_dim": ("mla.qk_rope_head_dim", ("qk_rope_head_dim",)),
    "v_head_dim": ("mla.v_head_dim", ("v_head_dim",)),
    "num_experts": ("moe.n_routed_experts", EXPERT_KEYS),
    "moe_router_topk": ("moe.num_experts_per_tok", ("num_experts_per_tok",)),
    "moe_ffn_hidden_size": ("moe.moe_intermediate_size", ("moe_intermediate_size", "intermediate_size")),
    "moe_shared_expert_intermediate_size": ("moe.shared_intermediate_size", ("shared_expert_intermediate_size",)),
    "moe_latent_size": ("moe.latent_size", ("moe_latent_size",)),
    "mamba_state_dim": ("linear_attention.state_size", ("mamba_d_state",)),
    "mamba_num_heads": ("linear_attention.num_heads", ("mamba_n_heads",)),
    "mamba_head_dim": ("linear_attention.head_dim", ("mamba_d_head",)),
    "mamba_num_groups": ("linear_attention.num_groups", ("mamba_n_groups",)),
    "linear_num_key_heads": ("linear_attention.num_key_heads", ("linear_num_key_heads",)),
    "linear_num_value_heads": ("linear_attention.num_value_heads", ("linear_num_value_heads",)),
    "linear_key_head_dim": ("linear_attention.key_head_dim", ("linear_key_head_dim",)),
    "linear_value_head_dim": ("linear_attention.value_head_dim", ("linear_value_head_dim",)),
    "linear_conv_kernel_dim": ("linear_attention.conv_kernel", ("linear_conv_kernel_dim",)),
    "dsa_indexer_n_heads": ("indexer.num_heads", ("index_n_heads",)),
    "dsa_indexer_head_dim": ("indexer.head_dim", ("index_head_dim",)),
    "dsa_indexer_topk": ("indexer.topk", ("index_topk",)),
}
"""Arguments that are sizes, each with the field of a ModelSpec that has it and the keys that may say it."""

_SWITCHES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "qk_layernorm": ("qk_norm", ("qk_norm",)),
    "swiglu": ("gated_ffn", ("gated_ffn",)),
    "geglu": ("gated_ffn", ("gated_ffn",)),
    "multi_latent_attention": ("mla", ()),
    "moe_shared_expert_gate": ("moe.shared_gate", ()),
    "moe_router_enable_expert_bias": ("moe.correction_bias", ()),
    "attention_output_gate": ("output_gate", ()),
}
"""The same of arguments that are on or off."""

_UNSAID = ("experimental_attention_variant", "linear_attention_freq")
"""Arguments that say which layers have linear attention, in ways that no key of a named model does."""


@dataclass(frozen=True)
class _Change:
    """What an argument says of a model: fields of a ModelSpec with their values, and the keys of a config that say it.

    No key says it where `keys` is empty.
    """

    argument: str
    fields: Mapping[str, Any]
    keys: Mapping[str, Any]

    def holds(self, spec: ModelSpec) -> bool:
        """Whether a model is so."""
        return all(_is_same(_field(spec, name), value) for name, value in self.fields.items())


def change_model(args: Arguments, shape: Shape) -> Shape:
    """A named model with all that a recipe changes of it, but for multi-token prediction.

    A UserError if sizes do not fit each other; one line each.
    """
    known = shape.model.get("preset")
    config = dict(shape.config or {}) if known is None else preset_config(known)
    changes = [one for one in _changes(args, shape.spec, config) if not one.holds(shape.spec)]
    wanted = _with_changes(args, config, shape.spec, [one for one in changes if one.keys])
    kept = [one for one in changes if one.keys and one.holds(wanted)]
    name = f"preset {known}" if known else "the model's config"
    for one in changes:
        if one not in kept:
            text = ", ".join(args.texts(one.argument)) or "true"
            args.not_modelled.append(
                f"{args.spelling(one.argument)} = {text}: {name} has {_own_value(one, shape.spec)}"
            )
    spec = _with_changes(args, config, shape.spec, kept)
    overrides = _all_keys(kept)
    if known is None:
        return Shape(spec, {}, config | overrides)
    return Shape(spec, {"preset": known} | ({"overrides": overrides} if overrides else {}), None)


def _with_changes(args: Arguments, config: Mapping[str, Any], spec: ModelSpec, changes: list[_Change]) -> ModelSpec:
    keys = _all_keys(changes)
    return from_hf_config({**config, **keys}, args.where, spec.name, strict=keys) if keys else spec


def _all_keys(changes: list[_Change]) -> dict[str, Any]:
    return {key: value for one in changes for key, value in one.keys.items()}


def _own_value(change: _Change, spec: ModelSpec) -> str:
    """What the model has in place of a change, where a word or a number says it."""
    values = [_field(spec, name) for name in change.fields]
    plain = [json.dumps(value) for value in values if isinstance(value, int | str)]
    return f"{', '.join(plain) or 'none'}, and no key of it says another"


def _changes(args: Arguments, spec: ModelSpec, config: Mapping[str, Any]) -> Iterator[_Change]:
    layers = args.optional("num_layers") or spec.num_hidden_layers
    for name, (field, keys) in _SIZES.items():
        if args.has(name) and (value := args.optional(name, minimum=0)) is not None:
            yield _Change(name, {field: value}, key_of(config, keys, value) if _counts(name, spec) else {})
    for name, (field, keys) in _SWITCHES.items():
        if args.has(name):
            on = args.switch(name)
            yield _Change(name, {field: on}, key_of(config, keys, on))
    yield from _texts(args, spec)
    yield from _biases(args, spec)
    yield from _layer_lists(args, spec, config, layers)
    yield from _of_indexer(args, spec)
    for name in filter(args.gives, () if is_sparse(args) and spec.indexer else _UNSAID):
        yield _Change(name, {"linear_attention": name}, {})


def _of_indexer(args: Arguments, spec: ModelSpec) -> Iterator[_Change]:
    """Which layers have an indexer, and whether it learns; off where the recipe's attention is another."""
    if spec.indexer is None:
        return
    if args.has("experimental_attention_variant") and not is_sparse(args):
        yield _Change("experimental_attention_variant", {"indexer": False}, {})
    if args.has(LOSS):
        learns = has_loss(args)
        yield _Change(LOSS, {"indexer.learns": learns}, {"index_loss": learns})
    if args.has("dsa_indexer_topk_freq"):
        keys = period_keys(args)
        layers = layers_with_indexer(spec.n_layers + spec.num_nextn_predict_layers, *keys.values())
        yield _Change("dsa_indexer_topk_freq", {"indexer.layers": layers}, keys)


def _counts(name: str, spec: ModelSpec) -> bool:
    """Whether a size is one of the model's: no layer is of `ffn_hidden_size` where all have experts."""
    return name != "ffn_hidden_size" or spec.moe is None or len(spec.moe.layers) < spec.num_hidden_layers


def key_of(config: Mapping[str, Any], keys: Sequence[str], value: Any) -> dict[str, Any]:
    """The first of these keys that means something in a config, with its new value; none where none does."""
    found = sorted(keys, key=lambda key: key not in config)  # what the config has counts before its other names
    return next(({key: value} for key in found if _is_read({**config, key: value}, key)), {})


def _is_read(config: Mapping[str, Any], key: str) -> bool:
    try:
        return key in read_keys(config)
    except UserError:  # such as experts in a model that has none
        return False


def _texts(args: Arguments, spec: ModelSpec) -> Iterator[_Change]:
    """What arguments say by a word, or by being off."""
    if args.has("untie_embeddings_and_output_weights"):
        name, field = "untie_embeddings_and_output_weights", "tie_word_embeddings"
        yield _Change(name, {field: not args.switch(name)}, {field: not args.switch(name)})
    if norm := args.hint("normalization").lower():
        by_layer = {"norm": "layer", "norm_bias": True} if norm == "layernorm" else {"norm": "rms", "norm_bias": False}
        yield _Change("normalization", by_layer, by_layer if norm in ("layernorm", "rmsnorm") else {})
    if word := args.hint("position_embedding_type").lower():
        positions = POSITIONS.get(word)
        said = {"positions": positions} if positions and positions != "learned" else {}
        yield _Change("position_embedding_type", {"positions": positions or word}, said)
    if args.has("softmax_type"):
        sinks = args.hint("softmax_type").lower() != "vanilla"
        yield _Change("softmax_type", {"attention_sinks": sinks}, {"attention_sinks": sinks})
    squared = spec.hidden_act == "relu2"
    if args.has("squared_relu") and args.switch("squared_relu") != squared:
        function = "silu" if squared else "relu2"
        yield _Change("squared_relu", {"hidden_act": function}, {"hidden_act": function})


def _biases(args: Arguments, spec: ModelSpec) -> Iterator[_Change]:
    """Biases of all matrices, or of those of q, k and v alone."""
    given = [name for name in ("add_bias_linear", "add_qkv_bias") if args.has(name)]
    if given:
        everywhere = args.switch("add_bias_linear", spec.mlp_bias)
        of_qkv = everywhere or args.switch("add_qkv_bias", spec.attention_bias and not spec.mlp_bias)
        found = {"mlp_bias": everywhere, "attention_bias": of_qkv, "attention_out_bias": everywhere}
        yield _Change(given[-1], found, found)


def _layer_lists(args: Arguments, spec: ModelSpec, config: Mapping[str, Any], layers: int) -> Iterator[_Change]:
    """Which layers have experts, windows, or what a letter says."""
    if args.has("moe_layer_freq") and spec.moe:
        routed = expert_layers(args, layers)
        dense = routed.index(1) if 1 in routed else layers
        by_count = not any(routed[:dense]) and all(routed[dense:])
        keys: dict[str, Any] = {"first_k_dense_replace": dense} if by_count else {"moe_layer_freq": routed}
        numbers = tuple(number for number, one in enumerate(routed) if one)
        yield _Change("moe_layer_freq", {"moe.layers": numbers}, keys)
    if args.gives("window_size") and re.search(r"\d", args.hint("window_size")):
        window = window_keys(args, layers)
        types = window.get("layer_types", [])
        sliding = tuple(number for number, kind in enumerate(types) if kind == "sliding_attention")
        fields = {"sliding_layers": sliding} | ({"sliding_window": window["sliding_window"]} if sliding else {})
        yield _Change("window_size", fields, window if spec.linear_attention is None else {})
    if (pattern := read_pattern(args)) is not None and pattern != config.get("hybrid_override_pattern"):
        said = {"hybrid_override_pattern": pattern, "num_hidden_layers": len(pattern)}
        parts = {"network_layers": layers_of(pattern, DENSE, EXPERTS)}
        parts["linear_attention.layers"] = layers_of(pattern, REPLACED)
        yield _Change("hybrid_layer_pattern", parts, said if "hybrid_override_pattern" in config else {})


def _field(spec: ModelSpec, name: str) -> Any:
    """A field of a model, or of a part of it (`moe.layers`); None where it has no such part."""
    value: Any = spec
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def _is_same(value: Any, wanted: Any) -> bool:
    """Whether a field is as wanted; a part that is not there is off."""
    return value == wanted or bool(value) == wanted if isinstance(wanted, bool) else (value or 0) == (wanted or 0)
