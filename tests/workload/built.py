"""Models as transformers builds them on torch's meta device: their configs, and how many parameters they have.

`python -m tests.workload.built` writes built.jsonl where transformers is installed: a line for each model that runcast
reads. It is no dependency of the tests; see test_built.py.
"""

import importlib
import json
import os
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from runcast.simulator.base.errors import UserError
from runcast.simulator.models import from_hf_config, read_keys

FILE, ROOT = Path(__file__).with_name("built.jsonl"), Path(__file__).parents[2]
_ENCODERS = ("bert-generation", "xlnet", "trocr")  # masked, or half of a model, though transformers does not say so
_ROTARY = {"rope_type": "default", "rope_theta": 10000.0}
CHANGES = {  # where the defaults of a config are no model: the class leaves sizes open that its code needs
    "cohere_compass_text": {"rope_parameters": {"full_attention": _ROTARY, "sliding_attention": _ROTARY}},
    "deepseek_v2": {"num_experts_per_tok": 6},
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1},
    "glm4_moe": {"head_dim": 128},
    "glm4v_moe_text": {"head_dim": 128},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 16, "moe_topk": 2},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"] * 8},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "phimoe": {"head_dim": 128},
}
VERSION, N_CAUSAL, N_DECODERS, N_READ_DECODERS = "5.24.0", 196, 143, 130
"""A release of transformers, its types with a causal language model, the text decoders of them, and those we read."""
OTHERS = (
    *(
        "t5",
        "mt5",
        "umt5",
        "m2m_100",
        "distilbert",
        "mpnet",
        "modernbert",
        "eurobert",
        "llava",
        "llava_next",
        "paligemma",
    ),
    *("mistral3", "internvl", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "idefics3", "smolvlm"),
    *("cohere2_vision", "glm4v", "qwen2_audio", "voxtral"),
)
"""Types without a causal language model that runcast reads: encoders, encoder-decoders, and models with towers."""
NO_CONFIG = ("gemma4_assistant",)
"""Types whose default config transformers refuses."""
NOT_BUILT = ("longcat_flash", "dbrx", "qwen4_exp_text")
"""Types whose models transformers 5.24 cannot build, or builds with matrices of experts that compute nothing."""


class Built(NamedTuple):
    """A model: its config.json, and its parameters, a tied matrix counted once (None: it cannot be built)."""

    model_type: str
    config: dict[str, Any]
    params: int | None


@cache
def transformers() -> Any:
    """The package, offline. It must not find our folder `kernels`, which has the name of a package that it can use."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != ROOT]
    return importlib.import_module("transformers")


def causal_types() -> dict[str, str]:
    """The class with a causal language model of each `model_type`."""
    return dict(transformers().models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def decoder_types() -> list[str]:
    """Those that are text decoders: no encoder beside it, no masked language model, no other media than text."""
    encoders = {*transformers().models.auto.modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, *_ENCODERS}
    configs = transformers().CONFIG_MAPPING
    return [each for each in causal_types() if each not in encoders and _is_decoder(configs[each])]


def _is_decoder(config_class: Any) -> bool:
    parts = set(config_class.sub_configs) - {"attn_config", "ffn_config"}
    return not parts and "is_encoder_decoder" not in config_class.__annotations__


def class_name(model_type: str) -> str:
    """The class of a whole model: with its encoder and towers, if it has such, else the causal language model."""
    auto = transformers().models.auto.modeling_auto
    masked, causal = auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, causal_types()
    whole = {
        **auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES, **auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        **auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES, **auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    }  # fmt: skip
    is_decoder = model_type in causal and (model_type in decoder_types() or model_type in masked)
    encodes = "is_encoder_decoder" in transformers().CONFIG_MAPPING[model_type].__annotations__
    return str(({} if is_decoder and not encodes else whole).get(model_type) or {**masked, **causal}[model_type])


def as_saved(config: Any) -> dict[str, Any]:
    """The keys of the config.json that transformers writes of a config."""
    with TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        saved: dict[str, Any] = json.loads((Path(folder) / "config.json").read_text())
        return saved


def build(model_type: str) -> Built:
    """A model with the default config of its type; it is not built if runcast does not read it."""
    import torch

    config = transformers().CONFIG_MAPPING[model_type](**CHANGES.get(model_type, {}))
    saved = as_saved(config)
    if model_type in NOT_BUILT or reason(saved):
        return Built(model_type, saved, None)
    with torch.device("meta"):
        model = getattr(transformers(), class_name(model_type))._from_config(config)
    return Built(model_type, saved, sum(each.numel() for each in model.parameters()))


def read_models() -> list[Built]:
    """The lines of built.jsonl; their configs have the keys that runcast reads."""
    return [Built(**json.loads(line)) for line in FILE.read_text().splitlines()]


def reason(config: dict[str, Any]) -> str:
    """Why runcast does not read a config; empty if it does."""
    try:
        from_hf_config(config)
    except UserError as error:
        return error.faults[0]
    return ""


def _line(model: Built) -> str:
    return json.dumps(model._replace(config=read_keys(model.config))._asdict(), separators=(",", ":"))


def all_types() -> list[str]:
    """The types that are tried: all with a causal language model, and others that runcast reads."""
    return [*causal_types(), *OTHERS]


def build_all() -> list[Built]:
    """The model of each type."""
    return [build(model_type) for model_type in all_types() if model_type not in NO_CONFIG]


if __name__ == "__main__":
    models = build_all()
    FILE.write_text("".join(f"{_line(model)}\n" for model in models if not reason(model.config)))
    read = {model.model_type for model in read_models()}
    print(f"{len(read & {*causal_types()})} of {N_CAUSAL}, {len(read & {*decoder_types()})} of {N_DECODERS}")
