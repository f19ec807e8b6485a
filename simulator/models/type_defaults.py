"""What transformers sets where the config of a `model_type` leaves a key out (data/model_types.toml)."""

import json
from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from ..base.files import read_toml
from .keys import Keys

SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
"""Keys that only a part of a model may leave out: a whole config without them is taken for a mistake."""
_WHOLE = {"gated_ffn", "norm", "norm_bias", "positions", "attention_out_bias"}
"""Keys of configs that runcast writes of other tools' arguments: nothing that matters is left out of these."""


def defaults_of(model_type: str, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values of keys by their names in a config, such as `n_embd`; none of a type that is not of transformers."""
    found: Mapping[str, Any] = {} if {*config} >= _WHOLE else _tables().get(model_type, {})
    return found


def list_filled(keys: Keys, model_type: str, fixed: Collection[str] = ()) -> list[str]:
    """A note on the keys that a config leaves out, if there are any but those that most of its type leave out."""
    left_out = {key: value for key, value in sorted(keys.filled.items()) if key not in fixed and value != ()}
    said = [f"{key} = {json.dumps(value)}" for key, value in left_out.items()]
    return [f"not given, so as transformers sets it for {model_type}: {', '.join(said)}"] if said else []


@cache
def _tables() -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]] = read_toml(files("runcast.data") / "model_types.toml")
    return found
