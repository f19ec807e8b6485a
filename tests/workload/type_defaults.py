"""The defaults of transformers' configs: what a `model_type` has where its config leaves a key out.

`python -m tests.workload.type_defaults` writes data/model_types.toml where transformers is installed. It holds what
moves a model that runcast reads: its defaults alone, or with one of its sizes or switches changed.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, replace
from typing import Any
from unittest.mock import patch

from runcast.simulator.base.errors import UserError
from runcast.simulator.models import from_hf_config, read_keys, type_defaults
from runcast.simulator.models.families import FAMILIES
from runcast.simulator.models.keys import Keys
from runcast.simulator.models.model import ModelSpec
from runcast.simulator.models.stack import read_stack
from runcast.simulator.models.vision import READERS

from .built import CHANGES, ROOT, as_saved, transformers

FILE = ROOT / "data/model_types.toml"
HEAD = """\
# What transformers {version} sets where a config leaves a key out, by `model_type`: the defaults of its classes
# of configs (src/transformers/models/*/configuration_*.py), of keys that move a model which runcast reads. What a class
# computes of other keys is not here. Written by `python -m tests.workload.type_defaults`.

"""
_UNBUILT = ("num_nextn_predict_layers", "mtp_num_hidden_layers")  # transformers has no layers that predict more tokens
_SIZES = re.compile(r"^(hidden_size|d_model|n_embd|num_attention_heads|n_head|num_heads)$")
Config = Mapping[str, Any]


def plain_defaults(model_type: str) -> dict[str, Any]:
    """Numbers, texts and switches that the class of a config has by default."""
    found = {each.name: each.default for each in fields(transformers().CONFIG_MAPPING[model_type])}
    return {key: value for key, value in found.items() if _is_plain(value) and key not in _UNBUILT}


def _is_plain(value: Any) -> bool:
    return value is not MISSING and isinstance(value, bool | int | float | str)


def _read(config: Config) -> ModelSpec | None:
    """The layers that a config describes; None where it cannot be read."""
    with suppress(UserError, AssertionError, ZeroDivisionError):
        if config["model_type"] not in READERS:
            return replace(from_hf_config(config), assumptions=(), max_position_embeddings=0)
        spec, keys = _read_tower(config)
        keys.check()
        return spec
    return None


def _read_tower(config: Config) -> tuple[ModelSpec, Keys]:
    reader = READERS[config["model_type"]]
    keys = Keys(config, "tower", reader.family.own, reader.family.defaults)
    keys = keys.change({key: keys.get(name) for key, name in reader.renamed.items()})
    return reader.complete(keys, read_stack(keys, reader.family, config["model_type"], "tower")), keys


def _keys_read(config: Config) -> set[str]:
    """The keys that runcast reads of a config."""
    with suppress(UserError, AssertionError, ZeroDivisionError):
        return _read_tower(config)[1].asked if config["model_type"] in READERS else {*read_keys(config)}
    return set()


def _changed(config: Config) -> Iterator[Config]:
    """Configs with one size or switch changed."""
    yield from ({**config, key: 2 * size} for key, size in config.items() if _SIZES.match(key))
    yield from ({**config, key: not on} for key, on in config.items() if isinstance(on, bool))


def _moves(key: str, value: Any, config: Config) -> bool:
    """Whether a model that can be read is another one, or none, without this value of the key."""
    whole = _read(config) if config.get(key) == value else None
    return whole is not None and whole != _read({name: value for name, value in config.items() if name != key})


def defaults(model_type: str) -> dict[str, Any]:
    """The defaults that count."""
    plain = plain_defaults(model_type)
    opened = CHANGES.get(model_type, {})
    config_class = transformers().CONFIG_MAPPING[model_type]
    saved = as_saved(config_class(**opened))
    stated = {key: saved[key] for key in saved if key in {each.name for each in fields(config_class)}}
    bases = [{"model_type": model_type} | opened | each | plain for each in ({}, stated, saved)]
    asked = {"model_type"}.union(*(_keys_read(each) for base in bases for each in (base, *_changed(base))))
    plain = {key: value for key, value in plain.items() if key in asked}
    tried = [each for base in bases for each in (base, *_changed({key: base[key] for key in base if key in asked}))]
    return {key: value for key, value in plain.items() if any(_moves(key, value, each) for each in tried)}


def types() -> list[str]:
    """The types that both transformers and runcast know, as models or as towers of such."""
    return [each for each in sorted({*FAMILIES, *READERS}) if each in transformers().CONFIG_MAPPING]


def page() -> str:
    """The file."""
    with patch.object(type_defaults, "_tables", dict):
        found = {each: defaults(each) for each in types()}
    lines = (
        f"{_key(each)} = {{ {', '.join(f'{_key(key)} = {json.dumps(value)}' for key, value in table.items())} }}\n"
        for each, table in found.items()
        if table
    )
    return HEAD.format(version=transformers().__version__) + "".join(lines)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name) else json.dumps(name)


if __name__ == "__main__":
    FILE.write_text(page())
