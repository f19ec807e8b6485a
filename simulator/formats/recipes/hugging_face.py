"""Models by the names of Hugging Face: an id such as `meta-llama/Llama-3.1-8B`, a preset, or a config.json."""

import re
from functools import cache
from importlib.resources import files
from pathlib import Path

from ...base.errors import UserError, did_you_mean, fault
from ...base.files import read_json, read_toml
from ...models import load_hf_config, preset, preset_config, preset_names, read_keys
from .arguments import Arguments, loose
from .shapes import Shape


def find_model(args: Arguments, key: str, stated: str | None) -> Shape:
    """The model that a recipe names with this key, or the one `stated` by `--model`; faults are raised."""
    named = stated or args.text(key)
    if not named:
        args.note_missing(key, "a model; or give it with --model")
        args.check()
    if (file := _config_file(named, args.where)) is not None:
        return _read_config(file)
    found = preset_of(named)
    if found is None and stated:
        near = did_you_mean(stated, preset_names()) or "presets are named like llama3-8b"
        raise UserError(fault("--model", "", stated, f"no such config.json, and no preset of this name; {near}"))
    if found is None:
        near = did_you_mean(_last(named).lower(), preset_names(), most=2)
        allowed = f"no preset goes by this name{f' ({near})' if near else ''}; give its config.json with --model"
        args.fault(key, allowed, named)
        args.check()
    assert found is not None
    if loose(found) != loose(_last(named)):
        args.assumed.append(f"model.preset = {found}: the shape of {named}, by its name")
    spec = preset(found)
    return Shape(spec, {"preset": found} | ({"mtp": False} if spec.num_nextn_predict_layers else {}), None)


def preset_of(name: str) -> str | None:
    """The preset with the shape of a Hugging Face model; None where the name tells none.

    Owners do not matter, nor how weights were trained or stored: instruct, base, chat, AWQ, a date.
    """
    return _presets().get(loose(_last(name))) or _presets().get(_bare(name))


def _bare(name: str) -> str:
    """The loose form of a name, less the words that say nothing of the shape."""
    words = re.split(r"[-_\s]+", _last(name).lower())
    return loose("".join(word for word in words if not _VARIANT.fullmatch(word)))


def _last(name: str) -> str:
    """The name without its owner, or without the folders of a path."""
    return name.rstrip("/").rpartition("/")[2]


_VARIANT = re.compile(
    r"instruct|chat|base|hf|it|meta|thinking|preview|v0\.\d|\d{4}|fp8|fp16|bf16|nf4|nvfp4|bnb|awq|gptq|aqlm|[248]bit"
    r"|1x16|int[48]|unsloth|dequantized"
)


@cache
def _presets() -> dict[str, str]:
    """Presets by their own names, by those of the models whose config they are, and of others of the same shape."""
    own = {loose(name): name for name in preset_names()}
    others = read_toml(files("runcast.data") / "recipes" / "hugging_face.toml")["presets"]
    return _by_source() | {_bare(name): known for known, names in others.items() for name in names} | own


def _by_source() -> dict[str, str]:
    """Presets by the id that their `source` begins with; what several have is no model's id."""
    found: dict[str, list[str]] = {}
    for name in preset_names():
        if match := re.match(r"[\w.-]+/[\w.-]+", str(preset_config(name).get("source", ""))):
            found.setdefault(_bare(match[0]), []).append(name)
    return {source: names[0] for source, names in found.items() if len(names) == 1}


def _config_file(named: str, where: str) -> Path | None:
    """The config.json that a path names, itself or as the folder of a model, beside the recipe or here."""
    folders = [Path(), Path(where).parent]
    places = [place for folder in folders for place in (folder / named, folder / named / "config.json")]
    return next((place for place in places if place.suffix == ".json" and place.is_file()), None)


def _read_config(file: Path) -> Shape:
    """A model by its own config, of which the keys that size it are kept."""
    spec = load_hf_config(file)
    return Shape(spec, {}, read_keys(read_json(file), str(file)))
