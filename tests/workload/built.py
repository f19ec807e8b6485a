"""Models as transformers builds them on torch's meta device: their configs, and how many parameters they have.

`python -m tests.workload.built` writes built.jsonl where transformers is installed: a line for each text decoder that
runcast reads. It is no dependency of the tests; see test_built.py.
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
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 16, "moe_topk": 2},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"] * 8},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "phimoe": {"head_dim": 128},
}
VERSION, N_CAUSAL, N_DECODERS = "5.24.0", 196, 143
"""A release of transformers, its types with a causal language model, and those of them that are text decoders."""
NOT_BUILT = ("longcat_flash", "dbrx", "qwen4_exp_text")
"""Types whose models transformers 5.24 cannot build, or builds with matrices of experts that compute nothing."""


class Built(NamedTuple):
    """A text decoder: its config.json, and its parameters, a tied matrix counted once (None: it cannot be built)."""

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


def build(model_type: str) -> Built:
    """A model with the default config of its type."""
    import torch

    config = transformers().CONFIG_MAPPING[model_type](**CHANGES.get(model_type, {}))
    with TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        saved = json.loads((Path(folder) / "config.json").read_text())
    if model_type in NOT_BUILT:
        return Built(model_type, saved, None)
    with torch.device("meta"):
        model = getattr(transformers(), causal_types()[model_type])._from_config(config)
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


if __name__ == "__main__":
    models = map(build, decoder_types())
    FILE.write_text("".join(f"{_line(model)}\n" for model in models if not reason(model.config)))
    print(len(read_models()), "of", len(decoder_types()), file=sys.stderr)
