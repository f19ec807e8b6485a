"""Models that ship with runcast.

Each is a file in data/models: the keys of a public config.json that concern sizes, and its source.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from ..base.errors import UserError, fault, unknown
from ..base.files import read_json
from .hf import from_hf_config
from .model import ModelSpec


def preset_names() -> list[str]:
    """All presets, sorted."""
    return sorted(_files())


def preset_config(name: str, where: str = "model") -> dict[str, Any]:
    """The Hugging Face keys of a preset, to be changed and read by `from_hf_config`; the name is matched loosely.

    Raises:
        UserError: no such preset; a near miss is suggested.
    """
    file = _files()[_resolve(name, where)]
    config: dict[str, Any] = read_json(file)
    return config


def preset(name: str, where: str = "model", overrides: Mapping[str, Any] | None = None) -> ModelSpec:
    """A preset by name, whatever its case, spaces, dashes and underscores; dots count only where names differ in them.

    `overrides` replaces Hugging Face keys, such as `{"num_hidden_layers": 4}` for a cut-down model.

    Raises:
        UserError: no such preset, or an override that does not fit or means nothing for this model.
    """
    changes = dict(overrides or {})
    return from_hf_config(preset_config(name, where) | changes, where, _resolve(name, where), strict=changes)


@cache
def _files() -> dict[str, Any]:
    folder = files("runcast.data") / "models"
    return {file.name.removesuffix(".json"): file for file in folder.iterdir() if file.name.endswith(".json")}


def _resolve(name: str, where: str) -> str:
    """The preset of this name; dots count if names differ in nothing else, such as GPT-3 1.3B and 13B."""
    if not isinstance(name, str):
        raise UserError(fault(where, "preset", name, f"a text, one of {', '.join(preset_names())}"))
    for dots in (".", ""):
        meant = _by_loose_name(dots).get(_without_separators(name).replace(".", dots), [])
        if len(meant) == 1:
            return meant[0]
    raise unknown(where, "preset", name, preset_names())


@cache
def _by_loose_name(dots: str) -> Mapping[str, list[str]]:
    """Presets by their names without case and separators, with other dots."""
    found: dict[str, list[str]] = {}
    for name in preset_names():
        found.setdefault(_without_separators(name).replace(".", dots), []).append(name)
    return found


def _without_separators(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).casefold()
