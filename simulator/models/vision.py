"""Families of towers that read images or sounds, by the `model_type` of their table in a config.

A `Reader` gives a tower without what joins it to a model, of which `composites` knows; Qwen's and GLM's towers have
that themselves. Images of any size are as large as the scenario says, else of `_PATCHES` patches.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from .encoder_decoders import SOUNDS, read_sounds
from .family import Family, built
from .keys import Keys
from .model import ModelSpec
from .parts import Inputs, Projector

_PATCHES = 1024
_VIT = built(
    norm="layer", norm_bias=True, gated_ffn=False, hidden_act="gelu", attention_bias=True, attention_out_bias=True,
    mlp_bias=True, positions="none", causal=False,
)  # fmt: skip
_ROTARY = replace(_VIT, positions="rotary", final_norm=False)
_SIZES = {"vocab_size": 1}  # towers have none, but the reader of stacks asks for it
_DEPTH = {"num_hidden_layers": "depth", "num_attention_heads": "num_heads"}
_FRAMES = _SIZES | {"temporal_patch_size": 2}


class Reader(NamedTuple):
    """How a tower is built, and what completes it from its keys; `renamed` are Llama's keys that mean others here."""

    family: Family
    complete: Callable[[Keys, ModelSpec], ModelSpec]
    renamed: Mapping[str, str] = {}


def _patch(keys: Keys, channels: str = "num_channels", default: int = 14) -> tuple[tuple[int, int], ...]:
    """One GEMM for a patch: of its values in all colours, and in as many frames as it spans."""
    values = keys.whole(channels, default=3) * keys.whole("temporal_patch_size", default=1)
    return ((values * _side(keys, "patch_size", default) ** 2, 1),)


def _side(keys: Keys, key: str, default: int) -> int:
    """The side of a square, which some configs give as a pair."""
    value = keys.get(key)
    return (
        value[0]
        if isinstance(value, list | tuple) and value and type(value[0]) is int
        else keys.whole(key, default=default)
    )


def _grid(keys: Keys, image: int = 336, patch: int = 14) -> int:
    """Patches of a square image."""
    return (_side(keys, "image_size", image) // _side(keys, "patch_size", patch)) ** 2


def _of_fixed_size(
    keys: Keys, spec: ModelSpec, *, own_tokens: int = 0, bias: bool = True, pools: bool = False, image: int = 224,
    patch: int = 16,
) -> ModelSpec:  # fmt: skip
    """A vision transformer with a position for each patch of a square image, and for tokens of its own."""
    span = _grid(keys, image, patch) + own_tokens
    inputs = Inputs(span, patches=_patch(keys, default=patch), patch_bias=bias, own_tokens=own_tokens, pools=pools)
    return replace(spec, positions="learned", position_embeddings=span, inputs=inputs)


def _clip(keys: Keys, spec: ModelSpec) -> ModelSpec:
    return _of_fixed_size(keys, spec, own_tokens=1, bias=False, patch=32)


def _siglip(keys: Keys, spec: ModelSpec) -> ModelSpec:
    return _of_fixed_size(keys, spec, pools=keys.flag("vision_use_head", True))


def _idefics(keys: Keys, spec: ModelSpec) -> ModelSpec:
    return _of_fixed_size(keys, spec, patch=32)


def _intern(keys: Keys, spec: ModelSpec) -> ModelSpec:
    return _of_fixed_size(keys, spec, own_tokens=1, image=448, patch=14)


def _llama4(keys: Keys, spec: ModelSpec) -> ModelSpec:
    return _of_fixed_size(keys, spec, own_tokens=1, bias=False, image=448, patch=14)


def _pixtral(keys: Keys, spec: ModelSpec) -> ModelSpec:
    return replace(spec, inputs=Inputs(_PATCHES, patches=_patch(keys, default=16)))


def _merger(keys: Keys, spec: ModelSpec, out: int, copies: int = 1) -> Projector:
    """Qwen's: a norm, and two GEMMs on tokens of which each is made of neighbours."""
    merge = keys.whole("spatial_merge_size", default=2) ** 2
    joined = merge * spec.hidden_size
    return Projector(((joined, joined), (joined, out)), merge, norm=spec.hidden_size, copies=copies)


def _qwen2(keys: Keys, spec: ModelSpec) -> ModelSpec:
    inputs = Inputs(_PATCHES, patches=_patch(keys, "in_channels"))
    width = keys.whole("mlp_ratio", default=4) * spec.hidden_size
    projector = _merger(keys, spec, keys.whole("out_width"))
    return replace(spec, intermediate_size=width, inputs=replace(inputs, projector=projector))


def _qwen2_5(keys: Keys, spec: ModelSpec) -> ModelSpec:
    """Most layers see windows of an image; a patch of them is as if it saw so many others."""
    inputs = Inputs(_PATCHES, patches=_patch(keys, "in_channels"))
    inputs = replace(inputs, projector=_merger(keys, spec, keys.whole("out_hidden_size", default=3584)))
    side = keys.whole("window_size", default=112) // keys.whole("patch_size", default=14)
    return _windowed(keys, replace(spec, inputs=inputs), "fullatt_block_indexes", side)


def _windowed(keys: Keys, spec: ModelSpec, whole: str, side: int) -> ModelSpec:
    """All layers but those that the key `whole` lists see square windows of `side` patches."""
    others = keys.sequence(whole)
    sliding = tuple(number for number in range(spec.num_hidden_layers) if number not in others)
    return replace(spec, sliding_layers=sliding, sliding_window=side**2)


def _qwen3(keys: Keys, spec: ModelSpec) -> ModelSpec:
    positions = keys.whole("num_position_embeddings", default=2304)
    inputs = Inputs(_PATCHES, patches=_patch(keys, "in_channels", 16), patch_bias=True)
    copies = 1 + len(keys.sequence("deepstack_visual_indexes"))
    projector = _merger(keys, spec, keys.whole("out_hidden_size", default=3584), copies)
    return replace(spec, position_embeddings=positions, inputs=replace(inputs, projector=projector))


def _glm(keys: Keys, spec: ModelSpec) -> ModelSpec:
    """A convolution joins patches, and a gated network follows."""
    out, width = keys.whole("out_hidden_size"), keys.whole("intermediate_size")
    merge = keys.whole("spatial_merge_size", default=2) ** 2
    matrices = ((merge * spec.hidden_size, out), (out, out), (out, width), (out, width), (width, out))
    projector = Projector(matrices, merge, bias=False, norm=out)
    inputs = Inputs(_PATCHES, patches=_patch(keys, "in_channels"), patch_bias=True, projector=projector)
    return replace(spec, intermediate_size=out, position_embeddings=_grid(keys), inputs=inputs)


def _sam(keys: Keys, spec: ModelSpec) -> ModelSpec:
    """Segment Anything's: most layers see windows; a neck of convolutions follows."""
    spec, out = _of_fixed_size(keys, spec, image=1024), keys.whole("output_channels", default=256)
    neck = ((spec.hidden_size, out), (9 * out, out))
    inputs = spec.inputs and replace(spec.inputs, projector=Projector(neck, bias=False))
    side = keys.whole("window_size", default=14)
    return _windowed(keys, replace(spec, inputs=inputs), "global_attn_indexes", side)


_QWEN3 = Reader(
    Family(replace(_ROTARY, hidden_act="gelu_pytorch_tanh", fused_qkv=True), _DEPTH, defaults=_FRAMES), _qwen3
)
_SIGLIP = Reader(Family(_VIT, defaults=_SIZES), _siglip)

READERS: Mapping[str, Reader] = {
    "clip_vision_model": Reader(Family(replace(_VIT, embedding_norm=True), defaults=_SIZES), _clip),
    **dict.fromkeys(("siglip_vision_model", "siglip2_vision_model"), _SIGLIP),
    **dict.fromkeys(("idefics3_vision", "smolvlm_vision"), Reader(Family(_VIT, defaults=_SIZES), _idefics)),
    "internvl_vision": Reader(
        Family(replace(_VIT, attention_bias=False, final_norm=False), {"qk_norm": "use_qk_norm"}, defaults=_SIZES),
        _intern,
    ),
    "llama4_vision_model": Reader(Family(replace(_VIT, embedding_norm=True), defaults=_SIZES), _llama4),
    "pixtral": Reader(
        Family(built(causal=False, embedding_norm=True, final_norm=False), defaults=_SIZES), _pixtral
    ),
    "qwen2_vl_vision": Reader(
        Family(_ROTARY, _DEPTH, defaults=_FRAMES | {"intermediate_size": 1}),
        _qwen2,
        renamed={"hidden_size": "embed_dim", "out_width": "hidden_size"},
    ),
    "qwen2_5_vl_vision": Reader(
        Family(built(causal=False, attention_bias=True, attention_out_bias=True, mlp_bias=True, final_norm=False,
                     fused_qkv=True), _DEPTH, defaults=_FRAMES | {"fullatt_block_indexes": (7, 15, 23, 31)}),
        _qwen2_5,
    ),
    **dict.fromkeys(("qwen3_vl_vision", "qwen3_vl_moe_vision", "qwen3_5_vision", "qwen3_5_moe_vision"), _QWEN3),
    "glm4v_vision": Reader(
        Family(built(causal=False, embedding_norm=True, fused_qkv=True), _DEPTH, defaults=_FRAMES), _glm
    ),
    "got_ocr2_vision": Reader(Family(_VIT, {"intermediate_size": "mlp_dim"}, defaults=_SIZES), _sam),
    **dict.fromkeys(("qwen2_audio_encoder", "voxtral_encoder"), Reader(SOUNDS, read_sounds)),
}  # fmt: skip
