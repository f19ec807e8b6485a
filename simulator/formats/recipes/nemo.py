"""Recipes of Megatron Bridge and of NeMo: what they set of Megatron-Core, as the arguments of Megatron-LM that say it.

Megatron Bridge's ConfigContainer and NeMo 2.0's run.Partial set the same dataclasses, in YAML or in Python; NeMo 1.0
sets them by names of its own (`nemo_yaml`). What is not given has the defaults of those dataclasses.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from ...base.errors import UserError
from ...base.files import read_toml
from ...models import preset
from .arguments import Argument, Arguments, Computed, Machine, Names, names_of, read_leaves
from .finetuning import read_adapters
from .forms import sort_settings
from .hugging_face import find_model
from .megatron import read_megatron
from .nemo_yaml import read_nemo_1, resolve
from .python_values import POSITIONAL, TARGET, PythonRecipe
from .settings import Settings
from .shapes import Shape
from .tables import check_size, read_table
from .trainers import Additions

MODEL = "hf_model_id"
FORMS = ("bridge", "nemo")
"""Forms of recipes that are read here."""
_PYTHON = re.compile(r"^(?:from|import)\s+[\w.]+|^def \w+\(", re.MULTILINE)
_MARKS = {
    "bridge": r"^_target_:\s*megatron\.bridge\.|^(ConfigContainer|mixed_precision|comm_overlap|ddp|ddp_config)\s*:"
    r"|^(?:from|import)\s+megatron\.bridge|\bWorkloadBaseConfig\b",
    "nemo": r"_target_:\s*nemo\.|^(?:from|import)\s+(nemo|nemo_run)\b|^exp_manager\s*:"
    r"|^\s+(megatron_amp_O2|mcore_gpt)\s*:",
}
_OVERLAP = ("comm_overlap", "MegatronCommOverlapCallback")
_LATE = ("mixed_precision", "plugins", *_OVERLAP)
"""Sections that replace what others say, in this order."""
_DTYPES = {"bfloat16": "bf16", "float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16", "uint8": "fp8"}
_STRUCTURE = (TARGET, POSITIONAL, "_call_", "_partial_", "_name_", "_kwargs_")
_LISTS = ("moe_layer_freq", "window_attn_skip_freq", "linear_attention_freq")
_LAYOUT = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
_WORKLOAD = "WorkloadBaseConfig"
_RANK = "32"  # of both tools' LoRA
_BUCKET = 128 * 2**20  # of comm_overlap, where it overlaps data parallelism


def recognize(text: str) -> str | None:
    """The form of a text by its marks; None where it is neither Megatron Bridge's nor NeMo's."""
    return next((form for form, mark in _MARKS.items() if re.search(mark, text, re.MULTILINE)), None)


def read_nemo(
    form: str, text: str, where: str, machine: Machine, additions: Additions
) -> tuple[Arguments, dict[str, Any], Mapping[str, Any] | None]:
    """The arguments that a recipe sets, the scenario's table, and the model's config where it is no preset.

    A UserError if the recipe cannot be read; a line each.
    """
    args, lora = _gather(form, text, where, additions)
    args.check_readable()
    shape = _named_model(args, form, additions) if additions.model or not args.has("hidden_size") else None
    table, config = read_megatron(args, machine, shape)
    if lora:
        table["lora"] = _adapters(args)
    stated = args.hint("world_size")
    if stated.isdigit() and int(stated) != machine.gpus:
        args.assumed.append(f"{machine}: the plan is for {stated}")
    return args, table, config


def _gather(form: str, text: str, where: str, additions: Additions) -> tuple[Arguments, bool]:
    """The arguments that a recipe sets, and whether it trains adapters alone."""
    names = names_of(form)
    parameters, given = sort_settings(additions.settings, names)
    table, notes = _read(form, text, where, additions.recipe, parameters)
    settings = Settings(_leaves(table, names), names)
    _complete(form, table, settings, additions.recipe)
    if additions.seq_len:
        given.append(Argument("seq_length", (str(additions.seq_len),), "--seq-len"))
    args = Arguments([*settings, *given], names, where)
    args.assumed += [*notes, *settings.assumed]
    args.not_modelled += settings.not_modelled
    return args, isinstance(table.get("peft"), Mapping) or settings.text("peft") in ("lora", "dora")


def _read(
    form: str, text: str, where: str, recipe: str | None, parameters: Mapping[str, str]
) -> tuple[dict[str, Any], list[str]]:
    """The table of a recipe in either language, with notes; a UserError for what goes with the other one; one line."""
    if _PYTHON.search(text):
        python = PythonRecipe(text, where, _library(form))
        table = python.read(python.choose(recipe), parameters)
        check_size(table, where)
        return _tidy(table, form), [*python.notes, *(f"{k} = {v}: from --set" for k, v in parameters.items())]
    if recipe:
        raise UserError(f"--recipe: goes with Python; {where} holds one recipe")
    if parameters:
        raise UserError(f"--set {next(iter(parameters))}: no argument of a {form} recipe")
    return _tidy(resolve(read_table(text, where)), form), []


@cache
def _library(form: str) -> Mapping[str, Any]:
    """What functions of the tool's own library return, by their names; an empty text is None."""
    found: Mapping[str, Any] = _without_blanks(read_toml(files("runcast.data") / "recipes" / f"{form}_library.toml"))
    return found


def _without_blanks(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_blanks(one) for key, one in value.items()}
    return [_without_blanks(one) for one in value] if isinstance(value, list) else None if value == "" else value


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
        return {str(key): _plain(one) for key, one in value.items()}
    value = list(value) if isinstance(value, tuple) else value
    if isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        return {
            _last(one.get(TARGET, place)): _plain(one) for place, one in enumerate(value) if isinstance(one, Mapping)
        }
    return value


def _precision(value: Any) -> Any:
    """The table of a precision recipe that is named, with what is changed of it; another value as it is."""
    changed = value if isinstance(value, Mapping) else {}
    named = (changed.get(POSITIONAL) or [changed.get(TARGET, value)])[0]
    known = _named("precisions").get(_last(named).replace("-", "_"))
    return {**known, **changed} if known else value


@cache
def _named(section: str) -> Mapping[str, Any]:
    """A section of what names mean: precision recipes, precisions of plans, classes of models."""
    found: Mapping[str, Any] = read_toml(files("runcast.data") / "recipes" / "nemo_names.toml")[section]
    return found


def _last(name: object) -> str:
    return str(name).rpartition(".")[2]


def _leaves(table: Mapping[str, Any], names: Names) -> list[Argument]:
    """The leaves of a table as arguments; what replaces others comes behind them."""

    def name_of(place: str, key: str) -> str:
        low = place.lower()
        ends = [low, *(low.split(".", count)[-1] for count in range(1, low.count(".")))]
        return next((name for name in (*ends, key.lower()) if name in names), low)

    leaves = (one for one in read_leaves(table, name_of) if _last(one.spelled) not in _STRUCTURE)
    return sorted((_typed(one) for one in leaves), key=lambda one: _rank(one.spelled))


def _rank(place: str) -> int:
    parts = place.split(".")
    if parts[-1].endswith("_parallelism"):  # of a trainer, whose strategy may be changed later
        return -1
    return next((rank for rank, name in enumerate(_LATE, 1) if name in parts[:-1]), 0)


def _typed(argument: Argument) -> Argument:
    """An argument with types and members of enumerations by their plain names, and lists as Megatron-LM writes them."""
    values = tuple(_plain_name(value) for value in argument.values)
    if argument.name in _LISTS and len(values) > 1:
        values = (f"[{','.join(map(str, values))}]",)
    if argument.name == "window_size" and len(values) == 2:
        values = (f"{values[0]},{values[1]}",)
    if argument.name == "pipeline_model_parallel_layout" and any(isinstance(value, list) for value in values):
        values = ("|".join("".join(_LAYOUT.get(str(part), "?") for part in stage) for stage in values),)
    return Argument(argument.name, values, argument.spelled)


def _plain_name(value: Any) -> Any:
    if isinstance(value, Computed) and value.is_name and "." in value.text:
        return _DTYPES.get(_last(value), _last(value))
    return value


def _complete(form: str, table: Mapping[str, Any], found: Settings, recipe: str | None) -> None:
    """Add what the tool derives, and take out what it ignores."""
    if form == "nemo" and TARGET not in table:
        read_nemo_1(found)
        return
    if table.get(TARGET) == _WORKLOAD:
        _complete_workload(found, recipe or "")
    _name_model(form, table, found)
    if isinstance(adapters := table.get("peft"), Mapping) and _last(adapters.get(TARGET)) == "DoRA":
        found.put("peft.scheme", "dora")
    _complete_types(found)
    _complete_activation(found)
    _complete_overlap(found, has_section=_has_overlap(table))


def _complete_workload(found: Settings, name: str) -> None:
    """Add what a plan leaves to its name (LLAMA3_70B_PRETRAIN_CONFIG_H100_FP8_CS_V1) and to scripts/performance."""
    model = re.split(r"_(?:PRETRAIN|SFT|LORA|FINETUNE)\b|_(?:PRETRAIN|SFT|LORA|FINETUNE)_", name.lstrip("_"))[0]
    found.put(MODEL, model)
    types = _named("workloads")
    written = next((kind for kind in types if f"_{kind}_" in f"{name}_"), None)
    for key, value in types.get(written or "", {"bf16": True}).items():
        found.put(key, value)
    found.assumed.append(f"precision {written or 'BF16'}, model {model}: by the name of the plan")
    found.put("sequence_parallel", found.whole("tensor_model_parallel_size", 1) > 1)
    if found.is_on("use_megatron_fsdp"):
        found.put("data_parallel_sharding_strategy", "optim_grads_params")
    if found.has("recompute_num_layers"):
        found.put("recompute_granularity", "full")
        found.put("recompute_method", "block")
    elif found.has("recompute_modules"):
        found.put("recompute_granularity", "selective")
    if found.has("moe_flex_dispatcher_backend"):
        found.put("moe_token_dispatcher_type", "flex")
    if found.text("peft") == "none":
        found.drop("peft")


def _name_model(form: str, table: Mapping[str, Any], found: Settings) -> None:
    """Name the model of a recipe by its Hugging Face id, or by the class that is its shape."""
    model = table.get("model")
    named = _model_name(model) if isinstance(model, Mapping) else str(model) if isinstance(model, Computed) else None
    if named and not found.has(MODEL):
        found.put(MODEL, named)
    if form == "bridge" and not found.is_on("should_pad_vocab"):
        found.put("make_vocab_size_divisible_by", 1)


def _model_name(model: Mapping[str, Any]) -> str | None:
    """The model that a call makes: by a Hugging Face id, by the class of its config, or by another file's `model()`."""
    whole, given = str(model.get(TARGET, "")), model.get(POSITIONAL) or []
    target = _last(whole)
    if "from_hf" in target or "from_pretrained" in target:
        return str(given[0]) if given and isinstance(given[0], str) else None
    config = model.get("config")
    named = _class_name(str(config.get(TARGET, ""))) if isinstance(config, Mapping) else _class_name(str(config or ""))
    return named or _class_name(_last(whole.removesuffix(".model")))


def _class_name(name: str) -> str | None:
    """The model in the name of a class: `Llama3ModelProvider70B`, `Llama31Config405B`; None without a size."""
    bare = re.sub(r"Model(Provider)?|Provider|Config|Model", "", _last(name), count=1)
    return _named("models").get(bare, bare) if re.search(r"\d", bare) else None


def _complete_types(found: Settings) -> None:
    """Megatron-LM's switches for types that dataclasses say otherwise."""
    precision = found.text("precision").lower()
    if precision in ("bf16-mixed", "bf16"):
        found.put("bf16", True)
    elif precision in ("16-mixed", "16"):
        found.put("fp16", True)
    if found.is_on("bf16") and not found.is_on("grad_reduce_in_fp32"):
        found.put("grad_reduce_in_bf16", True)
    if not found.is_on("use_megatron_fsdp"):
        found.drop("data_parallel_sharding_strategy")


def _complete_activation(found: Settings) -> None:
    """Megatron-LM's switches for the function and the gate of feed-forward networks."""
    function = found.text("activation_func").lower()
    found.rename("gated_linear_unit", "geglu" if "gelu" in function else "swiglu")
    if "squared_relu" in function:
        found.put("squared_relu", True)


def _has_overlap(table: Mapping[str, Any]) -> bool:
    """Whether a recipe has settings of overlap, which then decide: `comm_overlap`, or NeMo's callback."""
    trainer = table.get("trainer")
    callbacks = trainer.get("callbacks") if isinstance(trainer, Mapping) else None
    named = isinstance(callbacks, Mapping) and "MegatronCommOverlapCallback" in callbacks
    return named or isinstance(table.get("comm_overlap"), Mapping) or table.get(TARGET) == _WORKLOAD


def _complete_overlap(found: Settings, has_section: bool) -> None:
    """Overlap as training/comm_overlap.py (NeMo: megatron_comm_overlap.py) sets it, or as the dataclasses do."""
    shards = found.is_on("use_distributed_optimizer")
    if has_section and shards:
        for name in ("overlap_grad_reduce", "overlap_param_gather"):
            if not found.is_of(name, *_OVERLAP):
                found.put(name, True)
        if not found.has("ddp_bucket_size"):
            found.put("ddp_bucket_size", _BUCKET)
    if found.is_on("overlap_param_gather") and not (found.is_on("overlap_grad_reduce") and shards):
        found.drop("overlap_param_gather")
        if shards:
            line = "gathers run alone: without overlap_grad_reduce there is one bucket"
            found.assumed.append(f"overlap.params = false: {line}")
    if found.is_on("tp_comm_overlap") and not (
        found.is_on("sequence_parallel") and found.whole("tensor_model_parallel_size", 1) > 1
    ):
        found.drop("tp_comm_overlap")
        found.assumed.append("overlap.tp = false: tp_comm_overlap needs tensor and sequence parallelism")
    if not found.is_of("overlap_p2p_comm", *_OVERLAP) and (has_section or not found.has("overlap_p2p_comm")):
        found.put("overlap_p2p_comm", has_section)


def _named_model(args: Arguments, form: str, additions: Additions) -> Shape:
    """The preset, or config, that a recipe or `--model` names, with what the recipe changes of it."""
    shape = find_model(args, MODEL, additions.model)
    if args.has("moe_token_dispatcher_type") or shape.spec.moe is None:
        return _changed(args, form, shape)
    args.take(Argument("moe_token_dispatcher_type", ("alltoall",), ""))
    return _changed(args, form, shape)


def _changed(args: Arguments, form: str, shape: Shape) -> Shape:
    known = shape.model.get("preset")
    if known is None:
        return shape
    whole = preset(known)
    mtp = args.optional("mtp_num_layers", 0)
    count = mtp if mtp is not None else whole.num_nextn_predict_layers if form == "bridge" else 0
    model: dict[str, Any] = {"preset": known}
    if whole.num_nextn_predict_layers and not count:
        model["mtp"] = False
    layers = args.optional("num_layers")
    if layers is None or layers == whole.num_hidden_layers:
        return Shape(whole, model, None)
    overrides = {"num_hidden_layers": layers}
    return Shape(preset(known, args.where, overrides), model | {"overrides": overrides}, None)


def _adapters(args: Arguments) -> dict[str, Any]:
    """The `[lora]` table of PEFT settings, by the modules of Megatron-Core that have adapters."""
    scheme = args.text("peft.scheme", "lora").lower()
    if scheme != "lora":
        args.not_modelled.append(f"peft = {scheme}: LoRA is assumed, which takes fewer passes")
    if not args.has("peft.dim"):
        args.take(Argument("peft.dim", (_RANK,), ""))
    return read_adapters(args, "peft.dim", "peft.target_modules", not args.has("peft.target_modules"))
