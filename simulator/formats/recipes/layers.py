"""Which layers of a model have what, by Megatron-LM's arguments, as keys of a Hugging Face config.

Experts, windows and linear attention have a number for each layer; Mamba-2 and what stands beside it have a letter.
"""

import re
from collections.abc import Mapping
from typing import Any

from ...models.hybrid import ATTENTION, DENSE, EXPERTS, REPLACED
from .arguments import Arguments
from .picks import COMPRESSED, SPARSE

_LETTERS = (REPLACED, ATTENTION, DENSE, EXPERTS)  # also Megatron-LM's: core/models/hybrid/hybrid_layer_allocation.py
_LATENT = "+"
_DELTAS = {"G": "gated_delta", "K": "kimi_delta"}
"""Letters of Megatron-LM for attention to latents, and for what stands in the place of Mamba-2."""
_NOT_MODELLED = {"D": "sparse attention (DeepSeek-V3.2's)"} | dict.fromkeys("CHW", "attention of DeepSeek-V4")
"""Further letters of Megatron-LM, for what is modelled where all layers have it."""
GATED_DELTA = "gated_delta_net"
_PATTERN, _SHARES = "hybrid_layer_pattern", ("hybrid_attention_ratio", "hybrid_mlp_ratio")
_MOST_LAYERS = 10_000
_RUN = re.compile(r"\(?\[?([01](?:,[01])*)\]?\)?(?:\*(\d{1,4}))?")
_EVERY = re.compile(r"0*[1-9]\d{0,3}")
_EXPANSION, _CONVOLUTION, _CHUNK = 2, 4, 128  # width of Mamba-2, its convolution, its chunks (core/ssm/mamba_mixer.py)


def read_pattern(args: Arguments) -> str | None:
    """The letter of each layer (`M-M*-`); None for a model whose layers have attention and a network each."""
    shares = [args.number(name) or 0.0 for name in _SHARES]
    if not args.has(_PATTERN) and any(shares):
        layers = args.require("num_layers", "the number of layers")
        if not all(0 <= share <= 1 for share in shares) or sum(shares) > 1 or layers > _MOST_LAYERS:
            given = next(name for name, share in zip(_SHARES, shares, strict=True) if share)
            args.fault(given, f"expected shares of at most {_MOST_LAYERS:,} layers, 1 of both together at most")
            return None
        pattern = deal_out(layers, *shares)
        args.imply(_PATTERN, pattern, f"{args.spelling(_SHARES[0])} and {args.spelling(_SHARES[1])}")
        args.assumed.append(f"hybrid_layer_pattern = {pattern}: by the shares of attention and networks")
    elif not args.has(_PATTERN):
        return None
    pattern = "".join(_stages(args))
    _check_letters(args, pattern)
    if args.has("num_layers") and args.whole("num_layers") != len(pattern):
        args.fault("num_layers", f"{args.spelling(_PATTERN)} has {len(pattern)} layers")
    return pattern.translate(_AS_OURS)


_AS_OURS = str.maketrans({_LATENT: ATTENTION} | dict.fromkeys(_DELTAS, REPLACED))
"""Megatron-LM's letters as those of configs, in which the model type says what is meant."""


def _check_letters(args: Arguments, pattern: str) -> None:
    """Note what cannot stand in one pattern: all attention is of one kind, and so is what replaces it."""
    others = "".join(dict.fromkeys(one for one in pattern if one not in (*_LETTERS, _LATENT, *_DELTAS)))
    mixed = [kind for kind in (REPLACED + "".join(_DELTAS), ATTENTION + _LATENT) if len(set(kind) & set(pattern)) > 1]
    latent = args.switch("multi_latent_attention")
    if others and others[0] in _NOT_MODELLED:
        why = "is not modelled in a pattern: without one, each layer has it and a network"
        args.fault(_PATTERN, f"{others[0]}, {_NOT_MODELLED[others[0]]}, {why}")
    elif others or not pattern:
        wanted = "M (Mamba), G, K (delta rules), * (attention), + (latent), - (feed-forward) or E (experts)"
        args.fault(_PATTERN, f"{others or 'nothing'}: not read; expected {wanted}")
    elif mixed:
        args.fault(_PATTERN, f"{' and '.join(sorted(set(mixed[0]) & set(pattern)))} in one pattern are not modelled")
    elif latent and ATTENTION in pattern:
        args.fault("multi_latent_attention", f"latent attention in a {args.spelling(_PATTERN)} is +, not *", True)
    elif _LATENT in pattern and not latent:
        args.fault(_PATTERN, "+ needs --multi-latent-attention")


def pattern_type(args: Arguments) -> str:
    """What the model type of a pattern says beside its family: what replaces attention, and the kind of attention."""
    pattern = "".join(_stages(args))
    delta = next((f"_{kind}" for letter, kind in _DELTAS.items() if letter in pattern), "")
    return delta + ("_mla" if _LATENT in pattern else "")


def deal_out(layers: int, attention: float, networks: float) -> str:
    """The pattern of a stack with these shares of layers, as Megatron-LM's `allocate_layers` makes it.

    Attention is spread evenly between runs of Mamba-2; networks then take the place of Mamba-2 at even distances.
    """
    with_attention, with_networks = round(layers * attention), round(layers * networks)
    left = layers - with_attention
    found = _spread(REPLACED * layers, ATTENTION, left / (with_attention + 1))
    return _spread(found, DENSE, (left - with_networks) / with_networks) if with_networks else found


def _spread(pattern: str, letter: str, apart: float) -> str:
    """The pattern with a letter in place of Mamba-2, so many layers of Mamba-2 apart."""
    found, wait = [], apart
    for one in pattern:
        turns = one == REPLACED and wait < 0.5
        found.append(letter if turns else one)
        wait += (apart if turns else -1.0) * (one == REPLACED)
    return "".join(found)


def count_mtp_layers(args: Arguments) -> int:
    """Layers of multi-token prediction: as many as given, or as parts of a pattern behind a `/`."""
    ahead = args.hint(_PATTERN).replace(_LATENT, ATTENTION).split("/")[1:]
    if any(part not in (ATTENTION + DENSE, ATTENTION + EXPERTS) for part in ahead):
        line = "each MTP layer is one of attention and one FFN here, whatever its pattern"
        args.not_modelled.append(f"{args.spelling(_PATTERN)} /{'/'.join(ahead)}: {line}")
    return args.whole("mtp_num_layers", len(ahead), minimum=0)


def layers_per_stage(args: Arguments) -> list[int] | None:
    """Layers of each stage where bars split the pattern (`M-|M*-`), None where none do."""
    stages = _stages(args)
    return [len(stage) for stage in stages] if len(stages) > 1 else None


def _stages(args: Arguments) -> list[str]:
    return args.hint(_PATTERN).partition("/")[0].split("|")


def mixer_keys(args: Arguments, pattern: str | None, hidden: int, layers: int) -> dict[str, Any]:
    """Keys of what replaces attention, in the layers where it does; none where all layers have attention."""
    is_linear = _has_linear_attention(args)
    kind = pattern_type(args).removesuffix("_mla") if pattern is not None else ""
    if pattern is not None and not kind:
        width = args.whole("mamba_head_dim", 64)
        return {
            "hybrid_override_pattern": pattern,
            "mamba_head_dim": width,
            "mamba_num_heads": args.whole("mamba_num_heads", max(_EXPANSION * hidden // width, 1)),
            "ssm_state_size": args.whole("mamba_state_dim", 128),
            "n_groups": args.whole("mamba_num_groups", 8),
            "conv_kernel": _CONVOLUTION,
            "chunk_size": _CHUNK,
        }
    if not is_linear and not kind:
        return {}
    found: dict[str, Any] = {"hybrid_override_pattern": pattern} if pattern is not None else {}
    if pattern is None:
        linear = _numbers(args, "linear_attention_freq", layers)
        found["layer_types"] = ["linear_attention" if number else "full_attention" for number in linear]
    sizes = {name: args.whole(name, default) for name, default in _LINEAR.items()}
    return found | (_kimi_keys(args, sizes) if kind == "_kimi_delta" else sizes)


_LINEAR = {
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}  # fmt: skip
"""Sizes of linear attention by name, and Megatron-LM's defaults."""


def _kimi_keys(args: Arguments, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Keys of Kimi Delta Attention, whose heads of keys and values are as many and as wide."""
    for of in ("num_{}_heads", "{}_head_dim"):
        keys, values = (f"linear_{of.format(part)}" for part in ("key", "value"))
        if sizes[keys] != sizes[values]:
            args.fault(values, f"{sizes[keys]}, as {args.spelling(keys)}, in layers of letter K")
    return {
        "linear_num_heads": sizes["linear_num_value_heads"],
        "linear_head_dim": sizes["linear_value_head_dim"],
        "linear_conv_kernel_dim": sizes["linear_conv_kernel_dim"],
    }


def _has_linear_attention(args: Arguments) -> bool:
    """Whether most layers have linear attention."""
    has = args.choice("experimental_attention_variant", "", ("", GATED_DELTA, SPARSE, COMPRESSED)) == GATED_DELTA
    if args.has("linear_attention_freq") and not has:
        given, needed = args.spelling("linear_attention_freq"), "--experimental-attention-variant"
        args.assumed.append(f"{given} counts for nothing without {needed}, as in Megatron-LM")
    return has


def gate_keys(args: Arguments) -> dict[str, bool]:
    """Keys of the gate of what attention gives: of each value, or one for a head."""
    if not args.switch("attention_output_gate"):
        return {"output_gate": False} if _has_linear_attention(args) else {}
    each = args.choice("gated_attention_proj_granularity", "elementwise", ("elementwise", "headwise"))
    return {"output_gate": True} | ({"gate_per_head": True} if each == "headwise" else {})


def window_keys(args: Arguments, layers: int) -> dict[str, Any]:
    """Keys of layers with a window: `127,0` is a token itself and 127 before it."""
    size = re.fullmatch(r"\(?(\d{1,9}),-?\d{1,9}\)?", re.sub(r"\s", "", args.text("window_size")))
    if size is None:
        if args.has("window_size"):
            args.fault("window_size", "expected tokens before and after, such as 127,0")
        return {}
    kinds = ("full_attention", "sliding_attention")
    types = [kinds[number] for number in _numbers(args, "window_attn_skip_freq", layers)]
    return {"sliding_window": int(size[1]) + 1, "layer_types": types}


def expert_keys(args: Arguments, layers: int) -> dict[str, Any]:
    """Keys of the layers with experts: every n-th, or a list such as ([0]*3+[1]*58)."""
    text = _text_without_spaces(args, "moe_layer_freq", "1")
    if _EVERY.fullmatch(text):
        return {"moe_layer_freq": int(text)} if int(text) > 1 else {}
    dense = [number for number, moe in enumerate(expert_layers(args, layers)) if not moe]
    if dense == list(range(len(dense))):
        return {"first_k_dense_replace": len(dense)} if dense else {}
    return {"mlp_only_layers": dense}


def expert_layers(args: Arguments, layers: int) -> list[int]:
    """A 1 for each layer with experts, a 0 for the others."""
    text = _text_without_spaces(args, "moe_layer_freq", "1")
    if _EVERY.fullmatch(text):
        return [int(number % int(text) == 0) for number in range(layers)]
    return _listed(args, "moe_layer_freq", text, layers)


def _numbers(args: Arguments, name: str, layers: int) -> list[int]:
    """A 1 or a 0 for each layer: from a list, or from a number n that gives every n-th layer a 0."""
    text = _text_without_spaces(args, name, "0")
    if not re.fullmatch(r"\d{1,4}", text):
        return _listed(args, name, text, layers)
    return [int(int(text) == 0 or number % int(text) != 0) for number in range(1, layers + 1)]


def _text_without_spaces(args: Arguments, name: str, default: str) -> str:
    return re.sub(r"\s", "", args.text(name, default))


def _listed(args: Arguments, name: str, text: str, layers: int) -> list[int]:
    """The list of 1 and 0 that a text such as ([0]*3+[1]*58) writes; a fault is noted if it is none for all layers."""
    inside = text[1:-1] if text.startswith("(") and text.endswith(")") else text
    runs = [_RUN.fullmatch(part) for part in inside.split("+")]
    found = [int(one) for run in runs if run for one in run[1].split(",") * int(run[2] or 1)]
    if None not in runs and len(found) == layers:
        return found
    args.fault(name, f"expected a number, or a list for {layers} layers such as ([0]*1+[1]*{layers - 1})")
    return [1] * layers
