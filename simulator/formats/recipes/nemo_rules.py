"""What Megatron Bridge and NeMo 2.0 derive of a recipe's settings, and what they ignore.

From megatron/bridge/training (mixed_precision.py, comm_overlap.py), scripts/performance, the like in nemo/lightning.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from ...base.files import read_toml
from .arguments import Computed
from .python_values import POSITIONAL, TARGET
from .settings import Settings

MODEL = "hf_model_id"
OVERLAP = ("comm_overlap", "MegatronCommOverlapCallback")
"""Sections that say what overlaps."""
_WORKLOAD = "WorkloadBaseConfig"
_BUCKET = 128 * 2**20  # of comm_overlap, where it overlaps data parallelism


def complete_settings(form: str, table: Mapping[str, Any], found: Settings, recipe: str | None) -> None:
    """Add what the tool derives, and take out what it ignores."""
    if table.get(TARGET) == _WORKLOAD:
        _complete_workload(found, recipe or "")
    _name_model(form, table, found)
    if isinstance(adapters := table.get("peft"), Mapping) and last_part(adapters.get(TARGET)) == "DoRA":
        found.put("peft.scheme", "dora")
    _complete_types(found)
    _complete_activation(found)
    _complete_overlap(found, has_section=_has_overlap(table))


def _complete_workload(found: Settings, name: str) -> None:
    """Add what a plan leaves to its name (LLAMA3_70B_PRETRAIN_CONFIG_H100_FP8_CS_V1) and to scripts/performance."""
    model = re.split(r"_(?:PRETRAIN|SFT|LORA|FINETUNE)\b|_(?:PRETRAIN|SFT|LORA|FINETUNE)_", name.lstrip("_"))[0]
    found.put(MODEL, model)
    types = names_table("workloads")
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
    if found.is_on("overlap_moe_expert_parallel_comm"):
        found.put("delay_wgrad_compute", True)
    if found.has("moe_flex_dispatcher_backend"):
        found.put("moe_token_dispatcher_type", "flex")
    if found.text("peft") == "none":
        found.drop("peft")


def _name_model(form: str, table: Mapping[str, Any], found: Settings) -> None:
    """Name the model of a recipe by its Hugging Face id, or by the class that is its shape."""
    model = table.get("model")
    if isinstance(model, Mapping) and (encoder := names_table("encoders").get(_bare_name(_config_class(model)))):
        for key, value in encoder.items():
            if not found.has(key):
                found.put(key, value)
        return
    named = _model_name(model) if isinstance(model, Mapping) else str(model) if isinstance(model, Computed) else None
    if named and not found.has(MODEL):
        found.put(MODEL, named)
    if named in names_table("untied")["models"]:
        found.put("untie_embeddings_and_output_weights", True)
    if form == "bridge" and not found.is_on("should_pad_vocab"):
        found.put("make_vocab_size_divisible_by", 1)


def _model_name(model: Mapping[str, Any]) -> str | None:
    """The model that a call makes: by a Hugging Face id, by the class of its config, or by another file's `model()`."""
    whole, given = str(model.get(TARGET, "")), model.get(POSITIONAL) or []
    target = last_part(whole)
    if "from_hf" in target or "from_pretrained" in target:
        return str(given[0]) if given and isinstance(given[0], str) else None
    return _class_name(_config_class(model)) or _class_name(last_part(whole.removesuffix(".model")))


def _class_name(name: str) -> str | None:
    """The model in the name of a class: `Llama3ModelProvider70B`, `Llama31Config405B`; None if it says no size."""
    bare = _bare_name(name)
    return names_table("models").get(bare, bare if re.search(r"\d", bare) else None)


def _config_class(model: Mapping[str, Any]) -> str:
    """The class of the config that a model is made of; empty where none is named."""
    config = model.get("config")
    return str(config.get(TARGET, "") if isinstance(config, Mapping) else config or "")


def _bare_name(name: str) -> str:
    """The name of a class without the words of its kind."""
    return re.sub(r"Model(Provider)?|Provider|Config|Model", "", last_part(name), count=1)


def _complete_types(found: Settings) -> None:
    """Megatron-LM's switches for types that dataclasses say otherwise."""
    precision = found.text("precision").lower()
    if precision in ("bf16-mixed", "bf16"):
        found.put("bf16", True)
    elif precision in ("16-mixed", "16"):
        found.put("fp16", True)
    if found.is_on("bf16") and not found.is_on("grad_reduce_in_fp32"):
        found.put("grad_reduce_in_bf16", True)
    if found.is_on("dist.use_megatron_fsdp"):
        found.put("use_megatron_fsdp", True)
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
            if not found.is_of(name, *OVERLAP):
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
    if not found.is_of("overlap_p2p_comm", *OVERLAP) and (has_section or not found.has("overlap_p2p_comm")):
        found.put("overlap_p2p_comm", has_section)


@cache
def names_table(section: str) -> Mapping[str, Any]:
    """A section of what names mean: precision recipes, precisions of plans, classes of models."""
    found: Mapping[str, Any] = read_toml(files("runcast.data") / "recipes" / "nemo_names.toml")[section]
    return found


def last_part(name: object) -> str:
    """The last of the parts of a name with dots."""
    return str(name).rpartition(".")[2]
