"""Models by the names of Hugging Face: an id such as `meta-llama/Llama-3.1-8B`, a preset, or a config.json."""

import re
from pathlib import Path

from ...base.errors import UserError, did_you_mean, fault
from ...base.files import read_json
from ...models import load_hf_config, preset, preset_names, read_keys
from .arguments import Arguments, loose
from .model_names import last_part, preset_of
from .shapes import Shape
from .tables import find_file


def find_model(args: Arguments, key: str, stated: str | None) -> Shape:
    """The model that a recipe names with this key, or the one `stated` by `--model`; faults are raised."""
    named = stated or _named(args, key)
    if not named:
        args.note_missing(key, "a model; or give it with --model")
        args.check()
    if (file := _find_config(named, args.where)) is not None:
        return _read_config(file)
    found = preset_of(named)
    if found is None and stated:
        near = did_you_mean(stated, preset_names()) or "presets are named like llama3-8b"
        raise UserError(fault("--model", "", stated, f"no such config.json, and no preset of this name; {near}"))
    if found is None:
        near = did_you_mean(last_part(named).lower(), preset_names(), most=2)
        allowed = f"no preset goes by this name{f' ({near})' if near else ''}; give its config.json with --model"
        args.fault(key, allowed, named)
        args.check()
    assert found is not None
    if loose(found) != loose(last_part(named)):
        args.assumed.append(f"model.preset = {found}: the shape of {named}, by its name")
    spec = preset(found)
    return Shape(spec, {"preset": found} | ({"mtp": False} if spec.num_nextn_predict_layers else {}), None)


def _named(args: Arguments, key: str) -> str:
    """What the recipe names; its folders may be variables that nobody assigns, if the model is not."""
    path = args.hint(key)
    return args.text(key) if args.is_computed(key) or re.search(r"[$`]", last_part(path)) else path


def _find_config(named: str, where: str) -> Path | None:
    """The config.json that a path names, itself or as the folder of a model."""
    files = (find_file(name, where) for name in (named, f"{named}/config.json") if Path(name).suffix == ".json")
    return next(filter(None, files), None)


def _read_config(file: Path) -> Shape:
    """A model by its own config, of which the keys that size it are kept."""
    spec = load_hf_config(file)
    return Shape(spec, {}, read_keys(read_json(file), str(file)))
