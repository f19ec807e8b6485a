"""Models with towers for other media than text: a config with a table for each, and what joins them.

`text_config` is the trunk, read by its own family; a table such as `vision_config` is a tower, of `vision`. A projector
follows the tower, by the `model_type` of the whole.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from .keys import Keys
from .model import ModelSpec
from .parts import Projector
from .stack import read_stack
from .type_defaults import defaults_of, list_filled
from .vision import READERS

TEXT = "text_config"
_OF_ALL = ("tie_word_embeddings", "dtype", "torch_dtype", "quantization_config")
"""Keys of the whole that are the trunk's."""
Join = Callable[[Keys, ModelSpec, int], Projector | None]
"""The projector, from the keys of the whole, the tower, and the trunk's width."""


class Composite(NamedTuple):
    """How a tower's states become tokens of the trunk; `text` is the trunk's family where its table does not say it."""

    join: Join
    table: str = "vision_config"
    text: str = "llama"
    tower: str = ""


def _own_projector(keys: Keys, tower: ModelSpec, out: int) -> Projector | None:
    """The tower brings its projector."""
    return tower.inputs.projector if tower.inputs else None


def _linear_projector(keys: Keys, tower: ModelSpec, out: int) -> Projector:
    return Projector(((tower.hidden_size, out),))


def _two_layer_projector(keys: Keys, tower: ModelSpec, out: int) -> Projector:
    return Projector(((tower.hidden_size, out), (out, out)), bias=keys.flag("multimodal_projector_bias", True))


def _averaging_projector(keys: Keys, tower: ModelSpec, out: int) -> Projector:
    """Gemma 3: patches are averaged, so that an image has as many tokens as the config says."""
    assert tower.inputs is not None
    merge = max(tower.inputs.span // keys.whole("mm_tokens_per_image", default=256), 1)
    return Projector(((tower.hidden_size, out),), merge, bias=False, norm=tower.hidden_size, norm_bias=False)


def _joining_projector(factor: int, keys: Keys, tower: ModelSpec, out: int, *, bias: bool, norm: bool) -> Projector:
    """`factor` neighbours become one token, then two GEMMs."""
    into = factor * tower.hidden_size
    return Projector(((into, out), (out, out)), factor, bias=bias, norm=into * norm)


def _intern_projector(keys: Keys, tower: ModelSpec, out: int) -> Projector:
    ratio = keys.get("downsample_ratio")
    factor = round(1 / ratio**2) if isinstance(ratio, float) and 0 < ratio <= 1 else 4
    return _joining_projector(factor, keys, tower, out, bias=True, norm=True)


def _mistral_projector(keys: Keys, tower: ModelSpec, out: int) -> Projector:
    merge, hidden = keys.whole("spatial_merge_size", default=2) ** 2, tower.hidden_size
    bias = keys.flag("multimodal_projector_bias", False)
    return Projector(((merge * hidden, hidden), (hidden, out), (out, out)), merge, bias=bias, norm=hidden)


def _llama4_projector(keys: Keys, tower: ModelSpec, out: int) -> Projector:
    of = keys.table("vision_config", {}, {})
    width, given = of.whole("projector_output_dim", default=4096), of.whole("vision_output_dim", default=7680)
    first = (of.whole("intermediate_size"), of.whole("projector_input_dim", default=4096))
    return Projector((first, (first[1], width), (given, out)), merge=4, bias=False)


def _idefics_projector(keys: Keys, tower: ModelSpec, out: int) -> Projector:
    """Idefics 3: neighbours become one token, then one GEMM."""
    merge = keys.whole("scale_factor", default=2) ** 2
    return Projector(((merge * tower.hidden_size, out),), merge, bias=False)


def _cohere_projector(keys: Keys, tower: ModelSpec, out: int) -> Projector:
    merge, width = keys.whole("downsample_factor", default=2) ** 2, keys.whole("alignment_intermediate_size")
    return Projector(((merge * tower.hidden_size, width), (width // 2, out)), merge)


def _got_projector(keys: Keys, tower: ModelSpec, out: int) -> Projector:
    """Behind the neck two convolutions with stride two, and a GEMM."""
    assert tower.inputs is not None
    assert tower.inputs.projector is not None
    neck = tower.inputs.projector.matrices
    channels = neck[-1][1]
    return Projector((*neck, (9 * channels, 2 * channels), (18 * channels, out), (out, out)), merge=16, bias=False)


def _audio_projector(keys: Keys, tower: ModelSpec, out: int) -> Projector:
    return Projector(((tower.hidden_size, out),), merge=2)


def _voxtral_projector(keys: Keys, tower: ModelSpec, out: int) -> Projector:
    return _joining_projector(4, keys, tower, out, bias=False, norm=False)


COMPOSITES: Mapping[str, Composite] = {
    **dict.fromkeys(("llava", "llava_next"), Composite(_two_layer_projector, tower="clip_vision_model")),
    "paligemma": Composite(_linear_projector, text="gemma", tower="siglip_vision_model"),
    "gemma3": Composite(_averaging_projector, text="gemma3_text", tower="siglip_vision_model"),
    **{name: Composite(_own_projector, text=f"{name}_text") for name in ("gemma4", "gemma4_unified")},
    "mistral3": Composite(_mistral_projector, text="mistral", tower="pixtral"),
    "internvl": Composite(_intern_projector, text="qwen2", tower="internvl_vision"),
    "llama4": Composite(_llama4_projector, text="llama4_text", tower="llama4_vision_model"),
    "qwen2_vl": Composite(_own_projector, text="qwen2", tower="qwen2_vl_vision"),
    "qwen2_5_vl": Composite(_own_projector, text="qwen2", tower="qwen2_5_vl_vision"),
    **{name: Composite(_own_projector, text=f"{name}_text", tower=f"{name}_vision") for name in (
        "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")},
    **{name: Composite(_own_projector, text=f"{name}_text", tower="glm4v_vision") for name in ("glm4v", "glm4v_moe")},
    **{name: Composite(_idefics_projector, tower=f"{name}_vision") for name in ("idefics3", "smolvlm")},
    "cohere2_vision": Composite(_cohere_projector, text="cohere2", tower="siglip_vision_model"),
    "got_ocr2": Composite(_got_projector, text="qwen2", tower="got_ocr2_vision"),
    "qwen2_audio": Composite(_audio_projector, "audio_config", "qwen2", "qwen2_audio_encoder"),
    "voxtral": Composite(_voxtral_projector, "audio_config", tower="voxtral_encoder"),
}  # fmt: skip


def trunk_config(config: Mapping[str, Any], of: Composite) -> Mapping[str, Any]:
    """The config of the trunk: its own table, or in older files all other keys; ties are the whole's."""
    table = config.get(TEXT)
    if not isinstance(table, Mapping):
        return {key: value for key, value in config.items() if key not in (of.table, TEXT)} | {"model_type": of.text}
    shared = {key: config[key] for key in _OF_ALL if config.get(key) is not None}
    return {"model_type": of.text} | dict(table) | shared


def read_tower(keys: Keys, of: Composite, width: int) -> ModelSpec | None:
    """The tower that the table describes, with its projector to the trunk's width; None without a table."""
    if not keys.has(of.table):
        return None
    table = keys.table(of.table, {}, {})
    model_type = table.text("model_type", of.tower)
    if model_type == keys.text("model_type", ""):  # Qwen's older files name the whole here, too
        model_type = of.tower
    reader = READERS.get(model_type)
    if reader is None:
        known = f"known are {', '.join(READERS)}, and model.unknown = 'approximate' prices the text alone"
        table.fault("model_type", f"not modelled; {known}")
        return None
    of_type = defaults_of(model_type, {})
    table = keys.table(of.table, {}, {}, of_type)
    own = keys.table(of.table, reader.family.own, reader.family.defaults, of_type)
    own = own.change({key: table.get(name) for key, name in reader.renamed.items()})
    tower = reader.complete(own, read_stack(own, reader.family, model_type, of.table.removesuffix("_config")))
    assert tower.inputs is not None
    inputs = replace(tower.inputs, projector=of.join(keys, tower, width))
    return replace(tower, inputs=inputs, assumptions=tuple(list_filled(own, model_type, reader.family.defaults)))
