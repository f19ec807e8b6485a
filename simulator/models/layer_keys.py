"""The keys that tell layers apart: windows, experts, and sizes of a layer's own."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .family import Family, LayerKeys
from .keys import Keys

_LISTED = {"num_attention_heads": "num_attention_heads_per_layer"} | {
    key: key for key in ("intermediate_size", "num_key_value_heads", "head_dim")
}
_OF_WINDOW = "swa_"  # the prefix of keys that hold in layers with a window
_SLIDING = "sliding_attention"
_WORDS = {
    "local": _SLIDING,
    "chunked_attention": _SLIDING,
    "global": "full_attention",
    "hybrid_sliding": _SLIDING,
    "moe": "sparse",
    "hash_moe": "sparse",
}
COMPRESSED = ["compressed_sparse_attention", "heavily_compressed_attention"]
"""Kinds of layers with a window and compressed attention beyond it; entries of the first are picked."""


def layer_types(keys: Keys, family: Family, layers: int) -> list[str]:
    """The kind of attention of each layer, empty where the config does not list them."""
    if not keys.has("layer_types"):
        return []
    if family.mixer:  # `hybrid` checks the list
        return [str(kind) for kind in keys.sequence("layer_types")][:layers]
    known = [_SLIDING, "full_attention"]
    known += ["indexed_attention"] * family.indexer
    known += COMPRESSED if family.compressed else []
    known += ["hybrid"] if family.design.convolved else []
    types = [_WORDS.get(str(kind), str(kind)) for kind in keys.sequence("layer_types")]
    if len(types) >= layers and set(types) <= set(known):
        return types[:layers]
    keys.fault("layer_types", f"{' or '.join(known)} for each of {layers} layers")
    return []


def sliding_layers(keys: Keys, family: Family, layers: int, kinds: Sequence[str]) -> tuple[int, ...]:
    """Qwen turns the window on from some layer on; others leave one layer of a pattern without, Mistral none."""
    on = keys.flag("use_sliding_window", not family.window_needs_flag) and keys.get("sliding_window") not in (None, -1)
    counted = family.window_needs_flag and (on or "max_window_layers" in keys.config)
    first = keys.whole("max_window_layers", default=0, minimum=0) if counted else 0
    if kinds:
        return tuple(number for number, kind in enumerate(kinds) if kind in (_SLIDING, *COMPRESSED))
    period, ahead = keys.whole("sliding_window_pattern", default=layers + 1), 0 if family.full_first else 1
    return tuple(number for number in range(first, layers) if (number + ahead) % period) if on else ()


def moe_layers(keys: Keys, layers: int) -> tuple[int, ...]:
    """A list; or the first MoE layer and a step (DeepSeek), or a step and the dense exceptions (Qwen)."""
    if keys.has("mlp_layer_types"):
        types = [_WORDS.get(str(kind), str(kind)) for kind in keys.sequence("mlp_layer_types")]
        if len(types) < layers or not set(types) <= {"dense", "sparse"}:
            keys.fault("mlp_layer_types", f"dense or sparse for each of {layers} layers")
        return tuple(number for number, kind in enumerate(types[:layers]) if kind == "sparse")
    if keys.has("expert_layer_period"):
        period = keys.whole("expert_layer_period")
        offset = keys.whole("expert_layer_offset", default=0, minimum=0, maximum=period - 1)
        return tuple(number for number in range(layers) if number % period == offset)
    if keys.has("moe_layers"):
        return tuple(sorted({*keys.sequence("moe_layers")} & {*range(layers)}))
    first = keys.whole("first_k_dense_replace", default=0, minimum=0)
    last = keys.whole("moe_layer_end_index", default=-1, minimum=-1)
    dense, step = keys.sequence("mlp_only_layers"), keys.whole("decoder_sparse_step", default=1)
    if isinstance(keys.get("moe_layer_freq"), list):
        return tuple(number for number, routes in enumerate(keys.sequence("moe_layer_freq")[:layers]) if routes)
    frequency = keys.whole("moe_layer_freq", default=1)
    numbers = range(first, layers if last < 0 else min(layers, last + 1))
    return tuple(i for i in numbers if i % frequency == 0 and (i + 1) % step == 0 and i not in dense)


def spread_lists(keys: Keys, layers: int) -> tuple[Keys, dict[int, dict[str, Any]]]:
    """Sizes that are listed by layer: the keys with those of the first layer, and the others by layer."""
    lists = {key: keys.get(name) for key, name in _LISTED.items() if isinstance(keys.get(name), list | tuple)}
    for key in [key for key, values in lists.items() if len(values) < layers]:
        keys.fault(key, f"one for each of {layers} layers")
        lists[key] = [1] * layers
    if not lists:
        return keys, {}
    found = {n: {key: values[n] for key, values in lists.items() if values[n] != values[0]} for n in range(layers)}
    return keys.change({key: values[0] for key, values in lists.items()}), found


def layer_keys(keys: Keys, family: Family, sliding: Sequence[int], layers: int) -> dict[int, dict[str, Any]]:
    """Keys with other values in some layers, by layer."""
    found: dict[int, dict[str, Any]] = {number: {} for number in range(layers)}
    for source in (family.layer_keys(keys, sliding, layers), _of_window(keys, sliding), _shared(keys, layers)):
        for number, changes in source.items():
            found[number].update(changes)
    for number, changes in _listed(keys):
        if number in found:
            found[number].update(changes)
    return {number: changes for number, changes in found.items() if changes}


def _of_window(keys: Keys, sliding: Sequence[int]) -> LayerKeys:
    names = [name for name in {**keys.config, **keys.of_type} if name.startswith(_OF_WINDOW) and keys.has(name)]
    changes = {name.removeprefix(_OF_WINDOW): keys.get(name) for name in names}
    return dict.fromkeys(sliding, changes)


def _shared(keys: Keys, layers: int) -> LayerKeys:
    """The last layers use keys and values of earlier ones (Gemma 3n, Gemma 4)."""
    count = keys.whole("num_kv_shared_layers", default=0, minimum=0, maximum=layers)
    return {number: {"shares_kv": True} for number in range(layers - count, layers)}


def _listed(keys: Keys) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """`per_layer_config` of transformers 5: the keys of a layer by its number."""
    given = keys.get("per_layer_config")
    if given is None:
        return
    if not isinstance(given, Mapping) or not all(_is_entry(*entry) for entry in given.items()):
        keys.fault("per_layer_config", "an object of objects, by the number of the layer")
        return
    yield from ((int(number), changes) for number, changes in given.items())


def _is_entry(number: Any, changes: Any) -> bool:
    return str(number).isdigit() and isinstance(changes, Mapping)
