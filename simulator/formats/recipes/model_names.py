"""Presets by the names that Hugging Face has for models of their shape."""

import re
from functools import cache
from importlib.resources import files

from ...base.files import read_toml
from ...models import preset_config, preset_names
from .arguments import loose


def preset_of(name: str) -> str | None:
    """The preset with the shape of a Hugging Face model; None where the name tells none.

    Owners do not matter, nor how weights were trained or stored: instruct, base, chat, AWQ, a date.
    """
    return _presets().get(loose(last_part(name))) or _presets().get(_shape_name(name))


def _shape_name(name: str) -> str:
    """The loose form of a name, less the words that say nothing of the shape."""
    words = re.split(r"[-_\s]+", last_part(name).lower())
    return loose("".join(word for word in words if not _VARIANT.fullmatch(word)))


def last_part(name: str) -> str:
    """The name without its owner, or without the folders of a path."""
    return name.rstrip("/").rpartition("/")[2]


_VARIANT = re.compile(
    r"instruct|chat|base|hf|it|pt|meta|thinking|preview|v0\.\d|\d{4}|fp8|fp16|bf16|nf4|nvfp4|bnb|awq|gptq|aqlm|[248]bit"
    r"|1x16|int[48]|unsloth|dequantized"
)


@cache
def _presets() -> dict[str, str]:
    """Presets by their own names, by those of the models whose config they are, and of others of the same shape."""
    own = {loose(name): name for name in preset_names()}
    others = read_toml(files("runcast.data") / "recipes" / "hugging_face.toml")["presets"]
    return _by_source() | {_shape_name(name): known for known, names in others.items() for name in names} | own


def _by_source() -> dict[str, str]:
    """Presets by the id that their `source` begins with; what several have is no model's id."""
    found: dict[str, list[str]] = {}
    for name in preset_names():
        if match := re.match(r"[\w.-]+/[\w.-]+", str(preset_config(name).get("source", ""))):
            found.setdefault(_shape_name(match[0]), []).append(name)
    return {source: names[0] for source, names in found.items() if len(names) == 1}


def id_of(name: str) -> str | None:
    """The Hugging Face id of a preset, by which it is known again; None where it has none of its own."""
    if name not in preset_names():
        return None
    found = re.match(r"[\w.-]+/[\w.-]+", str(preset_config(name).get("source", "")))
    return found[0] if found and preset_of(found[0]) == name else None
