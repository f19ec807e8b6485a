"""Hybrid models: which layers have attention, which have what replaces it, and the sizes of that, from a config.

A config says it by a pattern of letters, a list of names, the numbers of the layers with attention, or a period.
Here a layer is a letter of Megatron's and Nemotron-H's patterns: `*` attention, `M` what replaces it, `-` an FFN, `E`
experts. Layers of Nemotron-H are one of these; in other models each layer of letter `*` or `M` also has an FFN.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..base.errors import shorten
from .keys import Keys
from .mixers import KimiDelta, Lightning, LinearAttention, Mamba, Mamba2, Mixer, Rwkv7, ShortConvolution

ATTENTION, REPLACED, DENSE, EXPERTS = "*M-E"

_LETTERS = {
    "attention": ATTENTION, "full_attention": ATTENTION, "sliding_attention": ATTENTION,
    "linear_attention": REPLACED, "mamba": REPLACED,
    "mamba2": REPLACED, "conv": REPLACED, "mlp": DENSE, "moe": EXPERTS,
}  # fmt: skip
_PATTERN = "hybrid_override_pattern"
_LISTS = ("layers_block_type", "layer_types")
_RANKS = (("w", "decay"), ("a", "a"), ("v", "v"), ("g", "gate"))
_NUMBERS = ("attn_layer_indices", "full_attn_idxs")


def count_layers(keys: Keys) -> int | None:
    """The number of layers that a pattern or a list states; None without one."""
    stated = next((keys.get(key) for key in (_PATTERN, *_LISTS) if keys.has(key)), None)
    return len(stated) if isinstance(stated, str | list | tuple) else None


def read_layers(keys: Keys, layers: int, alone: bool, required: str) -> str:
    """A letter for each layer; without a key that says more, no layer has attention, unless such a key is `required`.

    `alone`: a layer holds one part, so it may be an FFN or experts.
    """
    if keys.has(_PATTERN):
        return _read_pattern(keys, layers, alone)
    for key in filter(keys.has, _LISTS):
        return _read_names(keys, key, layers, alone)
    for key in filter(keys.has, _NUMBERS):
        return _read_numbers(keys, key, layers, first=0)
    if keys.has("attn_type_list"):  # 1: attention
        kinds = [ATTENTION if kind == 1 else REPLACED for kind in keys.sequence("attn_type_list")]
        return _cut(keys, "attn_type_list", "".join(kinds), layers, "entries")
    if keys.has("full_attn_layers"):
        return _read_numbers(keys, "full_attn_layers", layers, first=1)
    if keys.has("attn_layer_period"):
        period = keys.whole("attn_layer_period")
        offset = keys.whole("attn_layer_offset", default=0, minimum=0, maximum=period - 1)
        return "".join(ATTENTION if number % period == offset else REPLACED for number in range(layers))
    if keys.has("full_attention_interval"):
        interval = keys.whole("full_attention_interval")
        return "".join(REPLACED if (number + 1) % interval else ATTENTION for number in range(layers))
    if required:
        keys.fault(required, "missing; it says which layers have attention")
    return REPLACED * layers


def _read_pattern(keys: Keys, layers: int, alone: bool) -> str:
    letters = keys.text(_PATTERN, "")
    known = _letters(alone)
    for place, letter in enumerate(letters, 1):
        if letter not in known:
            keys.fault(_PATTERN, f"letter {letter!r} at {place}: one of {', '.join(known)}")
            return REPLACED * layers
    return _cut(keys, _PATTERN, letters, layers, "letters")


def _read_names(keys: Keys, key: str, layers: int, alone: bool) -> str:
    names, known = list(map(str, keys.sequence(key))), _letters(alone)
    allowed = [name for name, letter in _LETTERS.items() if letter in known]
    for place, name in enumerate(names, 1):
        if name not in allowed:
            keys.fault(key, f"{shorten(repr(name), 20)} at {place}: one of {', '.join(allowed)}")
            return REPLACED * layers
    return _cut(keys, key, "".join(_LETTERS[name] for name in names), layers, "names")


def _letters(alone: bool) -> str:
    return ATTENTION + REPLACED + (DENSE + EXPERTS) * alone


def _cut(keys: Keys, key: str, letters: str, layers: int, unit: str) -> str:
    """The letters of all layers; only an override of the number of layers may leave some over."""
    if len(letters) < layers or (len(letters) > layers and not keys.may_cut()):
        keys.fault(key, f"{len(letters)} {unit} for {layers} layers")
        return REPLACED * layers
    return letters[:layers]


def _read_numbers(keys: Keys, key: str, layers: int, first: int) -> str:
    """Layers with attention by number; Kimi's config also lists the others, and each layer is in one of its lists."""
    numbers, every = keys.sequence(key), range(first, first + layers)
    others = keys.sequence("kda_layers") if first else []
    within = [number for number in numbers + others if number in every]
    if len(within) < len(numbers + others) and not keys.may_cut():
        keys.fault(key, f"numbers from {first} to {every[-1]}" + " with kda_layers" * bool(others))
    elif others and sorted(within) != [*every]:
        keys.fault(key, f"with kda_layers each of {first} to {every[-1]} once")
    return "".join(ATTENTION if number in numbers else REPLACED for number in every)


def _gated_delta(keys: Keys, layers: frozenset[int]) -> LinearAttention:
    return LinearAttention(
        num_key_heads=keys.whole("linear_num_key_heads"),
        num_value_heads=keys.whole("linear_num_value_heads"),
        key_head_dim=keys.whole("linear_key_head_dim"),
        value_head_dim=keys.whole("linear_value_head_dim"),
        conv_kernel=keys.whole("linear_conv_kernel_dim"),
        layers=layers,
    )


def _kimi_delta(keys: Keys, layers: frozenset[int]) -> KimiDelta:
    heads, dim, kernel = map(keys.whole, ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"))
    return KimiDelta(heads, dim, kernel, layers)


def _mamba2(keys: Keys, layers: frozenset[int]) -> Mamba2:
    """Keys have Bamba's names, or those that a family's `own` maps to them."""
    heads, groups = keys.whole("mamba_n_heads"), keys.whole("mamba_n_groups")
    keys.expect(heads % groups == 0, "mamba_n_groups", f"a divisor of the {heads} heads of Mamba-2")
    return Mamba2(
        num_heads=heads,
        head_dim=_head_dim(keys, heads),
        state_size=keys.whole("mamba_d_state"),
        num_groups=groups,
        conv_kernel=keys.whole("mamba_d_conv", default=4),
        chunk_size=keys.whole("mamba_chunk_size", default=256),
        layers=layers,
        conv_bias=keys.flag("mamba_conv_bias", True),
        proj_bias=keys.flag("mamba_proj_bias", False),
        gated_norm=keys.flag("mamba_rms_norm", True),
    )


def _head_dim(keys: Keys, heads: int) -> int:
    """A head's width; with "auto" all heads together are `mamba_expand` times as wide as the model."""
    if keys.get("mamba_d_head") != "auto":
        return keys.whole("mamba_d_head")
    inner = keys.whole("mamba_expand", default=2) * keys.whole("hidden_size")
    return max(keys.whole("mamba_d_ssm", default=inner) // heads, 1)


def _mamba2_as_wide(keys: Keys, layers: frozenset[int]) -> Mamba2:
    """Heads are together `mamba_expand` times as wide as the model; Nemotron-H's need not be."""
    found = _mamba2(keys, layers)
    inner = keys.whole("mamba_expand", default=2) * keys.whole("hidden_size")
    rule = f"{inner} = expand x hidden_size is the width of all heads, not {found.num_heads} x {found.head_dim}"
    keys.expect(found.inner_width == inner, "mamba_n_heads", rule)
    return found


def _mamba2_beside(keys: Keys, layers: frozenset[int]) -> Mamba2:
    """Falcon-H1's, whose gated norm is an option."""
    found = replace(_mamba2(keys, layers), beside_attention=True, gated_norm=keys.flag("mamba_rms_norm", False))
    inner = found.inner_width
    keys.expect(keys.whole("mamba_d_ssm", default=inner) == inner, "mamba_d_ssm", f"{inner}: that of all its heads")
    return found


def _mamba(keys: Keys, layers: frozenset[int]) -> Mamba:
    hidden = keys.whole("hidden_size")
    rank = -(-hidden // 16)
    inner = keys.whole("mamba_expand", default=2) * hidden
    return Mamba(
        inner_width=keys.whole("mamba_d_inner", default=inner),
        state_size=keys.whole("mamba_d_state", default=16),
        step_rank=rank if keys.get("mamba_dt_rank") == "auto" else keys.whole("mamba_dt_rank", default=rank),
        conv_kernel=keys.whole("mamba_d_conv", default=4),
        layers=layers,
        conv_bias=keys.flag("mamba_conv_bias", True),
        proj_bias=keys.flag("mamba_proj_bias", False),
    )


def _mamba_with_norms(keys: Keys, layers: frozenset[int]) -> Mamba:
    """Jamba's."""
    return replace(_mamba(keys, layers), inner_norms=True)


def _lightning(keys: Keys, layers: frozenset[int]) -> Lightning:
    heads = keys.whole("num_attention_heads")
    dim = keys.whole("head_dim", default=max(keys.whole("hidden_size") // heads, 1))
    return Lightning(heads, dim, keys.whole("block_size", default=256), layers)


def _rwkv7(keys: Keys, layers: frozenset[int]) -> Rwkv7:
    hidden, dim = keys.whole("hidden_size"), keys.whole("rwkv_head_dim", default=64)
    keys.expect(hidden % dim == 0, "rwkv_head_dim", f"a divisor of hidden_size = {hidden}")
    ranks = tuple((letter, keys.whole(f"{key}_low_rank_dim")) for letter, key in _RANKS)
    return Rwkv7(max(hidden // dim, 1), dim, ranks, layers)


def _short_convolution(keys: Keys, layers: frozenset[int]) -> ShortConvolution:
    return ShortConvolution(
        width=keys.whole("hidden_size"),
        conv_kernel=keys.whole("conv_L_cache"),
        layers=layers,
        bias=keys.flag("conv_bias", False),
    )


MIXERS: Mapping[str, Callable[[Keys, frozenset[int]], Mixer]] = {
    "gated_delta": _gated_delta,
    "kimi_delta": _kimi_delta,
    "mamba2": _mamba2,
    "mamba2 as wide as expand": _mamba2_as_wide,
    "mamba2 beside attention": _mamba2_beside,
    "mamba": _mamba,
    "mamba with norms": _mamba_with_norms,
    "rwkv7": _rwkv7,
    "lightning": _lightning,
    "short convolution": _short_convolution,
}
"""Readers of the sizes of what replaces attention."""


def layers_of(letters: str, *wanted: str) -> frozenset[int]:
    """The layers that have one of these letters."""
    return frozenset(number for number, letter in enumerate(letters) if letter in wanted)
