"""Diffusion transformers, from the config of their transformer as diffusers writes it (`_class_name`).

Tokens are patches of a latent image and, where they go through the same layers, of the prompt: `batch.seq_len` counts
both. The projection of patches and its inverse stand in for embedding and head; their "vocabulary" is a patch's values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .family import Family, LayerKeys, built
from .keys import Keys

_DIT = built(
    norm="layer", norm_weights=False, gated_ffn=False, hidden_act="gelu_pytorch_tanh", attention_bias=True,
    attention_out_bias=True, mlp_bias=True, head_bias=True, causal=False, modulation=6,
)  # fmt: skip
_TIME = 256  # sines and cosines of a time step
_CLASSES = {
    "FluxTransformer2DModel": "flux",
    "SD3Transformer2DModel": "sd3",
    "QwenImageTransformer2DModel": "qwen_image",
    "DiTTransformer2DModel": "dit",
}


KNOWN_CLASSES = ", ".join(_CLASSES)


def _single_layers(keys: Keys, sliding: Sequence[int], layers: int) -> LayerKeys:
    """FLUX: the last layers have one set of weights, and attention beside the FFN behind one norm."""
    single = {"parallel_residual": True, "shared_norm": True, "weight_sets": 1, "modulation": 3}
    single["attention_out_bias"] = False  # one bias for the sum of both
    return dict.fromkeys(range(keys.whole("double_layers", default=layers), layers), single)


def _last_layer(keys: Keys, sliding: Sequence[int], layers: int) -> LayerKeys:
    """Stable Diffusion 3: nothing reads what the last layer would make of the text."""
    return {layers - 1: {"text_ends": True}}


_JOINT = replace(_DIT, weight_sets=2, qk_norm=True)

DIFFUSION = {
    "flux": Family(_JOINT, layer_keys=_single_layers),
    "sd3": Family(replace(_JOINT, positions="none"), layer_keys=_last_layer),
    "qwen_image": Family(_JOINT),
    "dit": Family(replace(_DIT, positions="none", own_conditioning=True)),
}


def is_diffusion(config: Mapping[str, Any]) -> bool:
    """Whether a config is one of a diffusion transformer that we know."""
    return str(config.get("_class_name")) in _CLASSES


def as_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with Llama's names of keys; what is missing or of the wrong type is found where they are read."""
    number = {key: value for key, value in config.items() if isinstance(value, int) and not isinstance(value, bool)}
    kind = _CLASSES[config["_class_name"]]
    heads, dim = number.get("num_attention_heads"), number.get("attention_head_dim")
    hidden = heads * dim if heads and dim else None
    packed = kind in ("flux", "qwen_image")  # their configs count the values of a patch
    channels, side = number.get("in_channels"), 1 if packed else number.get("patch_size", 1)
    return {
        "model_type": kind,
        "num_hidden_layers": number["num_layers"] + number.get("num_single_layers", 0)
        if "num_layers" in number
        else None,
        "double_layers": number.get("num_layers"),
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "head_dim": dim,
        "intermediate_size": 4 * hidden if hidden else None,
        "vocab_size": channels * side**2 if channels else None,
        "conditioning": _vectors(config, kind, number, hidden or 1),
        "dtype": "bfloat16",
        "source": config.get("source", config.get("_name_or_path")),
    }


def _vectors(config: Mapping[str, Any], kind: str, number: Mapping[str, int], hidden: int) -> list[list[int]]:
    """Matrices on vectors of a sequence: of time steps, guidance, labels or the pooled prompt; and the prompt's."""
    inputs = [_TIME] + [_TIME] * bool(config.get("guidance_embeds"))
    inputs += [number["pooled_projection_dim"]] if "pooled_projection_dim" in number else []
    pairs = [[into, hidden] for into in inputs] + [[hidden, hidden]] * len(inputs)
    if kind == "dit":
        return [*pairs, [number.get("num_embeds_ada_norm", 1000) + 1, hidden]]
    return [*pairs, [number.get("joint_attention_dim", hidden), hidden]]
