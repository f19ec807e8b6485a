"""Which layers of a model have what, by Megatron-LM's arguments, as keys of a Hugging Face config.

Experts, windows and linear attention have a number for each layer; Mamba-2 and what stands beside it have a letter.
"""

import re
from typing import Any

from ...models.hybrid import ATTENTION, DENSE, EXPERTS, REPLACED
from .arguments import Arguments
from .picks import COMPRESSED, SPARSE

_LETTERS = (REPLACED, ATTENTION, DENSE, EXPERTS)  # also Megatron-LM's: core/ssm/mamba_hybrid_layer_allocation.py
GATED_DELTA = "gated_delta_net"
_PATTERN, _SHARES = "hybrid_layer_pattern", ("hybrid_attention_ratio", "hybrid_mlp_ratio")
_RUN = re.compile(r"\(?\[?([01](?:,[01])*)\]?\)?(?:\*(\d{1,4}))?")
_EVERY = re.compile(r"0*[1-9]\d{0,3}")
_EXPANSION, _CONVOLUTION, _CHUNK = 2, 4, 128  # width of Mamba-2, its convolution, its chunks (core/ssm/mamba_mixer.py)


def read_pattern(args: Arguments) -> str | None:
    """The letter of each layer (`M-M*-`); None for a model whose layers have attention and a network each."""
    shares = [name for name in _SHARES if args.number(name)]
    if not args.has(_PATTERN):
        for name in shares:
            args.fault(name, "shares of layers are not read: give --hybrid-override-pattern")
        return None
    pattern = "".join(_stages(args))
    others = "".join(dict.fromkeys(letter for letter in pattern if letter not in _LETTERS))
    if others or not pattern:
        args.fault(
            _PATTERN,
            f"{others or 'nothing'}: not read; expected M (Mamba), * (attention), - (feed-forward) or E (experts)",
        )
    elif args.switch("multi_latent_attention"):
        args.fault("multi_latent_attention", f"latent attention in a {args.spelling(_PATTERN)} is not modelled", True)
    if args.has("num_layers") and args.whole("num_layers") != len(pattern):
        args.fault("num_layers", f"{args.spelling(_PATTERN)} has {len(pattern)} layers")
    return pattern


def count_mtp_layers(args: Arguments) -> int:
    """Layers of multi-token prediction: as many as given, or as parts of a pattern behind a `/`."""
    ahead = args.hint(_PATTERN).split("/")[1:]
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
    _note_gates(args, is_linear)
    if pattern is not None:
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
    if not is_linear:
        return {}
    linear = _numbers(args, "linear_attention_freq", layers)
    return {
        "layer_types": ["linear_attention" if number else "full_attention" for number in linear],
        "linear_num_key_heads": args.whole("linear_num_key_heads", 16),
        "linear_num_value_heads": args.whole("linear_num_value_heads", 32),
        "linear_key_head_dim": args.whole("linear_key_head_dim", 128),
        "linear_value_head_dim": args.whole("linear_value_head_dim", 128),
        "linear_conv_kernel_dim": args.whole("linear_conv_kernel_dim", 4),
    }


def _has_linear_attention(args: Arguments) -> bool:
    """Whether most layers have linear attention."""
    has = args.choice("experimental_attention_variant", "", ("", GATED_DELTA, SPARSE, COMPRESSED)) == GATED_DELTA
    if args.has("linear_attention_freq") and not has:
        given, needed = args.spelling("linear_attention_freq"), "--experimental-attention-variant"
        args.assumed.append(f"{given} counts for nothing without {needed}, as in Megatron-LM")
    return has


def _note_gates(args: Arguments, is_linear: bool) -> None:
    """Note where attention is gated here and not in the recipe, or the other way round."""
    gated = args.switch("attention_output_gate")
    if is_linear and not gated:
        args.assumed.append("attention is gated here, as in Qwen3-Next")
    elif gated and not is_linear:
        args.not_modelled.append(f"{args.spelling('attention_output_gate')}: gates go with linear attention")


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
