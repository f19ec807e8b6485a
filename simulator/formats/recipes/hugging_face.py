"""Models by the names of Hugging Face: an id such as `meta-llama/Llama-3.1-8B`, a preset, or a config.json."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ...base.errors import UserError, did_you_mean, fault
from ...base.files import read_json, read_toml
from ...models import ModelSpec, load_hf_config, preset, preset_names, read_keys
from .arguments import Arguments, loose


@dataclass(frozen=True)
class Named:
    """A model as a scenario names it: the `[model]` table, or the keys of a config that it should name."""

    spec: ModelSpec
    model: Mapping[str, Any]
    config: Mapping[str, Any] | None


def find_model(args: Arguments, key: str, given: str | None) -> Named:
    """The model that a recipe names with this key, or the one that `--model` gives in its place; faults are raised."""
    named = given or args.text(key)
    if not named:
        args.note_missing(key, "a model; or give it with --model")
        args.check()
    if (file := _config_file(named, args.where)) is not None:
        return _configured(file)
    found = preset_of(named)
    if found is None and given:
        near = did_you_mean(given, preset_names()) or "presets are named like llama3-8b"
        raise UserError(fault("--model", "", given, f"no such config.json, and no preset of this name; {near}"))
    if found is None:
        near = did_you_mean(_last(named).lower(), preset_names(), most=2)
        told = f"no preset goes by this name{f' ({near})' if near else ''}; give its config.json with --model"
        args.fault(key, told, named)
        args.check()
    assert found is not None
    if loose(found) != loose(_last(named)):
        args.assumed.append(f"model.preset = {found}: the shape of {named}, by its name")
    spec = preset(found)
    return Named(spec, {"preset": found} | ({"mtp": False} if spec.num_nextn_predict_layers else {}), None)


def preset_of(name: str) -> str | None:
    """The preset with the shape of a Hugging Face model; None where the name tells none.

    Owners do not matter, nor how weights were trained or stored: instruct, base, chat, AWQ, a date.
    """
    words = re.split(r"[-_\s]+", _last(name).lower())
    bare = loose("".join(word for word in words if not _VARIANT.fullmatch(word)))
    return _presets().get(loose(_last(name))) or _presets().get(bare)


def _last(name: str) -> str:
    """The name without its owner, or without the folders of a path."""
    return name.rstrip("/").rpartition("/")[2]


_VARIANT = re.compile(
    r"instruct|chat|base|hf|it|meta|thinking|preview|v0\.\d|\d{4}|fp8|fp16|bf16|nf4|nvfp4|bnb|awq|gptq|aqlm|[248]bit"
    r"|unsloth|dequantized|2bit|1x16|int[48]"
)


@cache
def _presets() -> dict[str, str]:
    """Presets by the loose form of their own names and of those that Hugging Face has for models of their shape."""
    others = read_toml(files("runcast.data") / "recipes" / "hugging_face.toml")["presets"]
    own = {loose(name): name for name in preset_names()}
    return own | {loose(name): known for known, names in others.items() for name in names}


def _config_file(named: str, where: str) -> Path | None:
    """The config.json that a path names, itself or as the folder of a model, beside the recipe or here."""
    folders = [Path(), Path(where).parent]
    places = [place for folder in folders for place in (folder / named, folder / named / "config.json")]
    return next((place for place in places if place.suffix == ".json" and place.is_file()), None)


def _configured(file: Path) -> Named:
    """A model by its own config, of which the keys that size it are kept."""
    spec = load_hf_config(file)
    return Named(spec, {}, read_keys(read_json(file), str(file)))
