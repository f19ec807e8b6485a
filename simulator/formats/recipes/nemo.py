"""Recipes of Megatron Bridge and of NeMo: what they set of Megatron-Core, as the arguments of Megatron-LM that say it.

Megatron Bridge's ConfigContainer and NeMo 2.0's run.Partial set the same dataclasses, in YAML or in Python; NeMo 1.0
sets them by names of its own (`nemo_1`). What is not given has the defaults of those dataclasses.
"""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from ...base.errors import UserError
from ...base.files import read_toml
from ...models import from_hf_config, preset, preset_config
from .additions import Additions
from .arguments import Argument, Arguments, Computed, Machine, Names, names_of, read_leaves
from .finetuning import read_adapters
from .forms import sort_settings
from .hugging_face import find_model
from .megatron import read_megatron
from .model_names import preset_of
from .named_models import MTP, change_model, key_of
from .nemo_1 import read_nemo_1
from .nemo_rules import MODEL, OVERLAP, complete_settings, last_part, names_table
from .python_operations import merge
from .python_recipe import PythonRecipe
from .python_tools import is_python
from .python_values import POSITIONAL, TARGET
from .recipe import Recipe
from .references import resolve
from .settings import Settings
from .shapes import Shape
from .tables import check_size, read_table

FORMS = ("bridge", "nemo")
"""Forms of recipes that are read here."""
_MARKS = {
    "bridge": r"^_target_:\s*megatron\.bridge\.|^(ConfigContainer|mixed_precision|comm_overlap|ddp|ddp_config)\s*:"
    r"|^train(_config)?\s*:\s*\{?(?:[^\n]*\n[ \t]+)*?[^\n]*\b(train_iters|global_batch_size|micro_batch_size)\s*:",
    "nemo": r"_target_:\s*nemo\.|^exp_manager\s*:"
    r"|^\s+(megatron_amp_O2|mcore_gpt)\s*:|(?s:\A(?=.*^trainer\s*:)(?=.*^model\s*:).*^\s+encoder_seq_length\s*:)",
}
_LATE = ("mixed_precision", "plugins", *OVERLAP)
"""Sections that replace what others say, in this order."""
_DTYPES = {"bfloat16": "bf16", "float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16", "uint8": "fp8"}
_STRUCTURE = (TARGET, POSITIONAL, "_call_", "_partial_", "_name_", "_kwargs_")
_LISTS = ("moe_layer_freq", "window_attn_skip_freq", "linear_attention_freq")
_LAYOUT = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
_BASE = (
    "what the file leaves open is as in most pretraining recipes: BF16, a distributed optimizer, overlapped"
    ", and one rank on each axis"
)
_OF_MOST = {
    "pretrain": "BF16, a distributed optimizer and overlap are assumed, as in most pretraining recipes",
    "sft": "BF16 and a distributed optimizer are assumed, as in most fine-tuning recipes",
    "peft": "BF16, a distributed optimizer and LoRA are assumed, as in most recipes with adapters",
}
_IN_BRIDGE = re.compile(r"(?P<model>\w+?)_(?P<kind>pretrain|finetune|sft|peft)(_\w+)?_config")
"""Names of recipe functions of Megatron Bridge's library."""
_OF_NEMO = ("pretrain_recipe", "finetune_recipe")
"""Names of recipe functions of NeMo 2.0's library, each in a file with the model's name."""
_AXES = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
_CHUNKS = "num_virtual_stages_per_pipeline_rank"
_LAYOUTS = ("pipeline_model_parallel_layout", "num_layers_per_virtual_pipeline_stage")
_SPELLED = {_CHUNKS: "virtual_pipeline_model_parallel_size"}
_RANK = "32"  # of both tools' LoRA
_OFF = {"mtp_num_layers": 0}
"""What nothing says, by keys with which a recipe switches off what its model has."""


@dataclass(frozen=True)
class Unseen:
    """A recipe of the library whose file is not at hand, and the `keys` that a file sets of it, even to nothing."""

    name: str
    keys: frozenset[str]


def recognize(text: str) -> str | None:
    """The form of a text by its marks; None where it is neither Megatron Bridge's nor NeMo's."""
    return next((form for form, mark in _MARKS.items() if re.search(mark, text, re.MULTILINE)), None)


def read_nemo(form: str, text: str, where: str, machine: Machine, additions: Additions) -> Recipe:
    """A recipe of either tool; a UserError if it cannot be read, a line each."""
    args, lora, unseen = _gather(form, text, where, additions)
    args.check_readable()
    _check_precision(args)
    shape = _named_model(args, form, additions) if additions.model or _is_named(args) else None
    if unseen is not None:
        _check_plan(args, unseen, experts=args.has("num_experts") if shape is None else shape.spec.moe is not None)
    table, config = read_megatron(args, machine, shape)
    if table["parallel"]["zero"] == 3 and args.text("fsdp_sharding_strategy").lower() == "grad":
        table["parallel"]["reshard"] = False  # torch's SHARD_GRAD_OP, of NeMo 1
    if lora:
        table["lora"] = _adapters(args)
    if shape is not None:
        table |= _of_media(args, shape, adapters=lora)
    stated = args.hint("world_size")
    if stated.isdigit() and int(stated) != machine.gpus:
        args.assumed.append(f"{machine}: the plan is for {stated}")
    args.check()
    return Recipe.of(form, table, config, args.account())


_FREEZES = ("freeze_language_model", "freeze_vision_model", "freeze_vision_projection")
"""Arguments of models of several media, which the recipes of texts do not have."""


def _of_media(args: Arguments, shape: Shape, *, adapters: bool) -> dict[str, Any]:
    """What towers read and what is frozen, in a recipe of a model of several media."""
    names = [tower.name for tower in shape.spec.towers]
    if not names or not any(map(args.has, _FREEZES)):
        return {}
    language, vision, projection = (args.switch(name) for name in _FREEZES)
    tower = {"frozen": True} | ({"frozen_projector": True} if projection and not adapters else {}) if vision else {}
    if projection and not vision:
        args.not_modelled.append(f"{args.spelling(_FREEZES[2])}: beside a trained tower its projector is trained here")
    said = ", ".join(f"towers.{name}.inputs = 1" for name in names)
    args.assumed.append(f"{said}: how many a sequence has, and of which size, the data says")
    frozen = {"freeze": {"layers": "all", "embedding": True, "head": True}} if language and not adapters else {}
    return {"towers": {name: dict(tower) for name in names}} | frozen


def _check_plan(args: Arguments, unseen: Unseen, experts: bool) -> None:
    """Note what of the plan neither the file nor the user gives, where the library's recipe under it is not at hand."""
    axes = [*_AXES, *(["expert_model_parallel_size"] if experts else [])]
    split = any(map(args.has, _LAYOUTS)) or args.hint("pipeline_model_parallel_size") == "1"
    axes += [] if split else [_CHUNKS]
    axes += [] if args.hint("tensor_model_parallel_size") == "1" else ["sequence_parallel"]
    given = [*unseen.keys, *(name for name in axes if args.has(name))]
    if missing := [name for name in axes if name not in given]:
        names = ", ".join(_SPELLED.get(name, name) for name in missing)
        line = f"its file is not beside this one, and says {names}; put it there, or give each with --set NAME=VALUE"
        args.faults.append(f"{args.where}: {unseen.name}: {line}")


def _gather(form: str, text: str, where: str, additions: Additions) -> tuple[Arguments, bool, Unseen | None]:
    """The arguments that a recipe sets, whether it trains adapters alone, and the library's recipe that it changes."""
    names = names_of(form)
    parameters, given = sort_settings(additions.settings, names)
    table, notes = _read(form, text, where, additions.recipe, parameters)
    settings = Settings(_leaves(table, names), names)
    if form == "nemo" and TARGET not in table:
        read_nemo_1(settings)
    else:
        complete_settings(form, table, settings, additions.recipe)
    if additions.seq_len:
        given.append(Argument("seq_length", (str(additions.seq_len),), "--seq-len"))
    args = Arguments([*settings, *given], names, where)
    args.assumed += [*notes, *settings.assumed]
    args.not_modelled += settings.not_modelled
    lora = isinstance(table.get("peft"), Mapping) or settings.text("peft") in ("lora", "dora")
    return args, lora, _unseen(table, names)


def _check_precision(args: Arguments) -> None:
    """Note a fault of a precision recipe that is named and not known: without it all would be in FP32."""
    name = "mixed_precision"
    if args.has(name) and not args.is_computed(name):
        args.fault(name, f"expected one of {', '.join(names_table('precisions'))}")


def _read(
    form: str, text: str, where: str, recipe: str | None, parameters: Mapping[str, str]
) -> tuple[dict[str, Any], list[str]]:
    """The table of a recipe in either language, with notes; a UserError for what goes with the other one; one line."""
    if is_python(where):
        python = PythonRecipe(form, text, where, _library(form))
        table = python.read(python.choose(recipe), parameters)
        check_size(table, where)
        whole, notes = _complete_unseen(_tidy(table, form))
        return whole, [*python.notes, *notes]
    if parameters:
        raise UserError(f"--set {next(iter(parameters))}: no argument of a {form} recipe")
    table = _tidy(resolve(read_table(text, where)), form)
    return (table, []) if form == "nemo" or TARGET in table else (_complete_overrides(table), [_BASE])


def _unseen(table: Mapping[str, Any], names: Names) -> Unseen | None:
    """The recipe of the library that this one changes; None where nothing of it is unseen."""
    name = last_part(table.get(TARGET, ""))
    if name not in _OF_NEMO and _IN_BRIDGE.fullmatch(name) is None:
        return None
    return Unseen(name, frozenset(names.aliases.get(key, key) for key in _keys(table)))


def _keys(table: Mapping[str, Any]) -> Iterator[str]:
    """Keys of nested tables."""
    for key, value in table.items():
        yield key
        if isinstance(value, Mapping):
            yield from _keys(value)


def _complete_unseen(table: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A recipe that changes one of the library, whose file is not at hand: what such recipes have, and its model."""
    name = last_part(table.get(TARGET, ""))
    if (found := _IN_BRIDGE.fullmatch(name)) is not None:
        model, kind = found["model"], {"finetune": "sft"}.get(found["kind"], found["kind"])
        common = "peft" if kind == "sft" and isinstance(table.get("peft"), str) else kind
        whole = _tidy(deepcopy(dict(_library("bridge")[f"_{common}_common"])), "bridge")
        merge(whole, {key: value for key, value in table.items() if not isinstance(value, str) or key == TARGET})
        return {MODEL: model} | whole, [f"{name}: its file is not beside this one; {_OF_MOST[common]}"]
    if name in _OF_NEMO and MODEL not in table:
        owner = last_part(str(table[TARGET]).rpartition(".")[0])
        return ({MODEL: owner} if re.search(r"\d", owner) else {}) | table, []
    return table, []


def _complete_overrides(table: Mapping[str, Any]) -> dict[str, Any]:
    """Overrides of a recipe that is not given, over what all pretraining recipes of Megatron Bridge have."""
    whole = _tidy(deepcopy(dict(_library("bridge")["_pretrain_common"])), "bridge")
    merge(whole, table)
    return whole


@cache
def _library(form: str) -> Mapping[str, Any]:
    """What functions of the tool's own library return, by their names; an empty text is None."""
    found: Mapping[str, Any] = _drop_blanks(read_toml(files("runcast.data") / "recipes" / f"{form}_library.toml"))
    return found


def _drop_blanks(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _drop_blanks(one) for key, one in value.items()}
    return [_drop_blanks(one) for one in value] if isinstance(value, list) else None if value == "" else value


def _tidy(table: dict[str, Any], form: str) -> dict[str, Any]:
    """The table with names in place of what is only named, and precision recipes in place of their names."""
    found = _plain(table.get("ConfigContainer", table))
    if "mixed_precision" in found:
        found["mixed_precision"] = _precision(found["mixed_precision"])
    return {key.removesuffix("_config"): value for key, value in found.items()} if form == "bridge" else found


def _plain(value: Any) -> Any:
    """Tables that only name a class, a type or a member of an enumeration as that name; lists of objects as tables."""
    if isinstance(value, Mapping):
        if TARGET in value and value.get("_call_") is False:
            return Computed(str(value[TARGET]), is_name=True)
        if "_name_" in value:
            return Computed(f"{value.get(TARGET)}.{value['_name_']}", is_name=True)
        return {str(key): _plain(_OFF.get(str(key)) if one is None else one) for key, one in value.items()}
    value = list(value) if isinstance(value, tuple) else value
    objects = [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
    if objects:
        return {last_part(one.get(TARGET, place)): _plain(one) for place, one in enumerate(objects)}
    return value


def _precision(value: Any) -> Any:
    """The table of a precision recipe that is named, with what is changed of it; another value as it is."""
    changed = value if isinstance(value, Mapping) else {}
    named = (changed.get(POSITIONAL) or [changed.get(TARGET, value)])[0]
    known = names_table("precisions").get(last_part(named).replace("-", "_"))
    return {**known, **changed} if known else value


def _leaves(table: Mapping[str, Any], names: Names) -> list[Argument]:
    """The leaves of a table as arguments; what replaces others comes behind them."""

    def name_of(place: str, key: str) -> str:
        low = place.lower()
        ends = [low, *(low.split(".", count)[-1] for count in range(1, low.count(".")))]
        return next((name for name in (*ends, key.lower()) if name in names), low)

    leaves = (one for one in read_leaves(table, name_of) if last_part(one.spelled) not in _STRUCTURE)
    return sorted((_retype(one) for one in leaves), key=lambda one: _rank(one.spelled))


def _rank(place: str) -> int:
    parts = place.split(".")
    if parts[-1].endswith("_parallelism"):  # of a trainer, whose strategy may be changed later
        return -1
    return next((rank for rank, name in enumerate(_LATE, 1) if name in parts[:-1]), 0)


def _retype(argument: Argument) -> Argument:
    """An argument with types and members of enumerations by their plain names, and lists as Megatron-LM writes them."""
    values = tuple(_plain_name(value) for value in argument.values)
    if argument.name in _LISTS and len(values) > 1:
        values = (f"[{','.join(map(str, values))}]",)
    if argument.name == "window_size" and len(values) == 2:
        values = (f"{values[0]},{values[1]}",)
    if argument.name == "pipeline_model_parallel_layout" and all(isinstance(value, list) for value in values):
        values = ("|".join("".join(_LAYOUT.get(str(part), "?") for part in stage) for stage in values),)
    return Argument(argument.name, values, argument.spelled)


def _plain_name(value: Any) -> Any:
    if isinstance(value, Computed) and value.is_name and "." in value.text:
        return _DTYPES.get(last_part(value), last_part(value))
    return value


def _is_named(args: Arguments) -> bool:
    """Whether the model is one that the recipe names; what a run writes describes the whole of it beside its name."""
    return not args.has("hidden_size") or (preset_of(args.hint(MODEL)) is not None and not _is_described(args))


def _is_described(args: Arguments) -> bool:
    return all(map(args.has, ("hidden_size", "num_layers", "num_attention_heads", "normalization")))


def _named_model(args: Arguments, form: str, additions: Additions) -> Shape:
    """The preset, or config, that a recipe or `--model` names, with what the recipe changes of it."""
    shape = find_model(args, MODEL, additions.model)
    if _is_described(args):  # --model stands in place of the file's own
        args.not_modelled.append("sizes of the model in the file: those of --model count")
    else:
        shape = change_model(args, shape)
    if shape.spec.moe is not None and not args.has("moe_token_dispatcher_type"):
        args.imply("moe_token_dispatcher_type", "alltoall")
    return _predict_tokens(args, form, shape)


def _predict_tokens(args: Arguments, form: str, shape: Shape) -> Shape:
    """The model with as many layers of multi-token prediction as the recipe has; NeMo's have none on their own."""
    own = shape.spec.num_nextn_predict_layers
    stated = args.optional("mtp_num_layers", 0)
    count = stated if stated is not None else own if form == "bridge" else 0
    if count == own:
        return shape
    if shape.config is not None:
        config = {**shape.config, **key_of(shape.config, MTP, count)}
        return Shape(from_hf_config(config, args.where, shape.spec.name), {}, config)
    model = dict(shape.model)
    if not count:
        return Shape(shape.spec, model | {"mtp": False}, None)
    known = model["preset"]
    overrides = model.get("overrides", {}) | key_of(preset_config(known), MTP, count)
    return Shape(preset(known, args.where, overrides), model | {"overrides": overrides}, None)


def _adapters(args: Arguments) -> dict[str, Any]:
    """The `[lora]` table of PEFT settings, by the modules of Megatron-Core that have adapters."""
    scheme = args.text("peft.scheme", "lora").lower()
    if scheme != "lora":
        args.not_modelled.append(f"peft = {scheme}: LoRA is assumed, which takes fewer passes")
    if not args.has("peft.dim"):
        args.imply("peft.dim", _RANK)
    if not args.has("peft.target_modules"):
        return {"rank": args.whole("peft.dim")}  # linear_qkv, linear_proj, linear_fc1 and linear_fc2
    return read_adapters(args, "peft.dim", "peft.target_modules", all_linear=False)
