"""What is trained or served: a model's shape, its parameters, and the tensors of its checkpoint."""

from .hf import from_hf_config, load_hf_config, read_keys
from .model import ModelSpec
from .parts import Fp8, Mla, Moe
from .presets import preset, preset_config, preset_names
from .tensors import Weights, active_params, total_params, trained_params, weights

__all__ = [
    "Fp8",
    "Mla",
    "ModelSpec",
    "Moe",
    "Weights",
    "active_params",
    "from_hf_config",
    "load_hf_config",
    "preset",
    "preset_config",
    "preset_names",
    "read_keys",
    "total_params",
    "trained_params",
    "weights",
]
