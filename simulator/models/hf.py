"""From a Hugging Face config.json, or a preset's, to a ModelSpec, by model family.

An unknown `model_type` whose keys of sizes are all read is llama-like, which the spec's `assumptions` say; layers we
cannot size are refused.
See `families` for what a family fixes and what is refused, and `stack` for how one is read.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..base.errors import UserError, fault
from ..base.files import read_json
from .composites import COMPOSITES, TEXT, Composite, read_tower, trunk_config
from .diffusion import KNOWN_CLASSES, as_keys, is_diffusion
from .families import FAMILIES, family_of, llama_like, refuse, refuse_unknown
from .family import Family, TowerFamily
from .keys import Keys
from .model import ModelSpec
from .parts import Cross
from .stack import read_stack
from .tensors import total_params
from .type_defaults import SIZES, defaults_of, list_filled

_MAX_PARAMS = 10**17
_MAX_ALL_EXPERTS = 300_000  # over all layers: each has up to six tensors, and each tensor its name


def load_hf_config(path: str | Path, approximate: bool = False) -> ModelSpec:
    """Read a config.json, or the one in a model's folder, as `from_hf_config` does.

    Raises:
        UserError: no such file, not JSON, or a key that is missing or out of range; one line per fault.
    """
    file = Path(path)
    file = file / "config.json" if os.path.isdir(file) else file
    name = file.parent.name if file.name == "config.json" else file.stem
    return from_hf_config(read_json(file), str(file), name, approximate=approximate)


def from_hf_config(
    config: Mapping[str, Any],
    where: str = "model",
    name: str | None = None,
    strict: Collection[str] = (),
    approximate: bool = False,
) -> ModelSpec:
    """The model that the keys of a Hugging Face config describe.

    Keys have Llama's names or the family's own, such as `n_embd` of GPT-2. For models without a config of their own,
    `gated_ffn`, `norm`, `norm_bias`, `attention_out_bias`, `mlp_bias`, `qk_norm`, `parallel_residual`, `shared_norm`,
    `embedding_norm`, `positions` and `position_embeddings` are read too.

    Args:
        config: the keys; those that do not concern sizes are ignored.
        where: the file or place named in error messages.
        name: the model's name; by default its source or `model_type`.
        strict: keys that must mean something for this model, such as those a user wrote by hand.
        approximate: layers that are not modelled count as Llama's of the same sizes, which `assumptions` say.

    Raises:
        UserError: a key is missing or out of range, or the model has layers that we cannot size; one line per fault.
    """
    spec, keys = _read(config, where, name, () if approximate else strict, approximate)
    keys.refuse_unread(() if approximate else strict)
    keys.check()
    return _sizeable(spec, where)


def read_keys(config: Mapping[str, Any], where: str = "model") -> dict[str, Any]:
    """The keys that `from_hf_config` reads of a config; the others say how a model is run or was made.

    Raises:
        UserError: we cannot size such a model. What else is wrong with it is found when it is read.
    """
    asked = _read(config, where, None)[1].asked
    return {key: value for key, value in config.items() if key in asked}


def _read(
    config: Any,
    where: str,
    name: str | None,
    strict: Collection[str] = (),
    approximate: bool = False,
    is_part: bool = False,
) -> tuple[ModelSpec, Keys]:
    """The model and its keys; a table that is part of a config may leave out what its type has by default."""
    if not isinstance(config, Mapping):
        wanted = "expected the JSON object of a Hugging Face config.json"
        raise UserError(f"{where}: holds {type(config).__name__}, not an object; {wanted}")
    if is_diffusion(config):
        spec, keys = _read(as_keys(config), where, name)
        keys.asked |= {*config}
        return spec, keys
    if "_class_name" in config:
        raise UserError(fault(where, "_class_name", config["_class_name"], f"not modelled; known are {KNOWN_CLASSES}"))
    model_type = str(config.get("model_type") or "llama")
    if (composite := COMPOSITES.get(model_type)) and (TEXT in config or composite.table in config):
        named = name or str(config.get("source", model_type))
        return _read_composite(config, where, named, composite, strict, approximate)
    family = family_of(model_type, config)
    known = defaults_of(model_type, config)
    of_type = known if is_part else {key: value for key, value in known.items() if key not in _names(family, SIZES)}
    keys = Keys(config, where, family.own, family.defaults, strict, of_type)
    keys.text("model_type", "llama")
    refuse(keys, family, model_type)
    if approximate and keys.faults:
        return _approximate(config, where, name or model_type, keys.faults)
    keys.check()
    named = keys.text("source", keys.text("_name_or_path", model_type))
    spec = _with_towers(read_stack(keys, family, model_type, name or named), keys, family)
    if refuse_unknown(keys, model_type) and approximate:
        return _approximate(config, where, name or model_type, keys.faults)
    return replace(spec, unknown=model_type not in FAMILIES, assumptions=_assumptions(keys, family, model_type)), keys


def _names(family: Family, keys: Iterable[str]) -> set[str]:
    """What a family's configs call these keys."""
    return {each.own.get(key, key) for each in (family, *(of.family for of in family.towers)) for key in keys}


def _approximate(config: Mapping[str, Any], where: str, name: str, faults: Sequence[str]) -> tuple[ModelSpec, Keys]:
    """A model that is not modelled, as if it were built like Llama; one of several media as its text alone."""
    text = config.get(TEXT)
    if isinstance(text, Mapping):
        spec, keys = _read(text, f"{where}: {TEXT}", name, approximate=True)
        notes = [f"model_type {config.get('model_type')!r} is not modelled: only its text is priced"]
        return replace(spec, approximate=True, assumptions=(*notes, *spec.assumptions)), keys
    family = llama_like(config)
    keys = Keys(config, where, family.own, family.defaults)
    spec = read_stack(keys, family, str(config.get("model_type")), name)
    notes = [
        f"{fault.removeprefix(f'{where}: ').partition(';')[0]}, and priced as if built like Llama" for fault in faults
    ]
    if unread := keys.unread_sizes():
        notes.append(f"keys of sizes that are not read: {', '.join(unread)}")
    return replace(spec, approximate=True, assumptions=tuple(notes)), keys


def _read_composite(
    config: Mapping[str, Any], where: str, name: str, of: Composite, strict: Collection[str], approximate: bool
) -> tuple[ModelSpec, Keys]:
    """A trunk with a tower of other media before it; keys that a user wrote are the trunk's, but for tables."""
    keys = Keys(config, where)
    for table in (TEXT, of.table):
        if not isinstance(config.get(table, {}), Mapping | None) or (table == TEXT in config and not config[TEXT]):
            keys.fault(table, "an object")
    keys.check()
    inner = f"{where}: {TEXT}" if TEXT in config else where
    changes = {key: config[key] for key in strict if key not in (TEXT, of.table, "model_type")}
    trunk, own = _read({**trunk_config(config, of), **changes}, inner, name, changes, approximate, TEXT in config)
    own.check()
    keys.asked |= own.asked | {TEXT, of.table}
    tower = read_tower(keys, of, trunk.hidden_size)
    if approximate and keys.faults:
        left = f"{of.table} is not modelled: only the text is priced"
        return replace(trunk, approximate=True, assumptions=(left, *trunk.assumptions)), own
    keys.check()
    if tower is None:
        return replace(trunk, towers=()), keys
    return replace(trunk, towers=(tower,), assumptions=(*trunk.assumptions, *tower.assumptions)), keys


def _with_towers(spec: ModelSpec, keys: Keys, family: Family) -> ModelSpec:
    """The model behind its towers; of two layers the second attends to what these give, if the family's do."""
    towers = tuple(_tower(keys, of) for of in family.towers)
    if not family.cross:
        return replace(spec, towers=towers)
    layers = range(spec.num_hidden_layers)
    cross = Cross(towers[-1].hidden_size, frozenset(layers[1::2]), alone=frozenset(layers[::2]))
    return replace(spec, towers=towers, cross=cross)


def _tower(keys: Keys, of: TowerFamily) -> ModelSpec:
    own = keys.table("", of.family.own, of.family.defaults)
    return of.complete(own, read_stack(own, of.family, keys.text("model_type", ""), of.name))


def _sizeable(spec: ModelSpec, where: str) -> ModelSpec:
    if (total := total_params(spec)) > _MAX_PARAMS:
        raise UserError(f"{where}: {total:.3g} parameters in all; at most {_MAX_PARAMS:.0e}")
    layers = spec.num_hidden_layers + spec.num_nextn_predict_layers
    experts = spec.moe.n_routed_experts * sum(map(spec.is_moe, range(layers))) if spec.moe else 0
    if experts > _MAX_ALL_EXPERTS:
        raise UserError(f"{where}: {experts} routed experts in all layers; at most {_MAX_ALL_EXPERTS}")
    return spec


def _assumptions(keys: Keys, family: Family, model_type: str) -> tuple[str, ...]:
    notes = []
    if model_type not in FAMILIES:
        notes.append(f"model_type {model_type!r} is not known and read as llama-like")
    notes += list_filled(keys, model_type, () if family.mixer else _names(family, family.defaults))
    if not keys.has("dtype") and not keys.has("torch_dtype"):
        notes.append("no dtype given: bfloat16")
    return tuple(notes)
