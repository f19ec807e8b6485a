"""Config: typed reading of a torchtitan config, or a table of FSDP settings, and an account of every key of it.

Sections moved over the years, so a key is looked for in each section that has had it.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import did_you_mean, fault
from .recipe import Notes


def _words(text: str) -> list[str]:
    return text.split()


# Sections whose keys take no time of a step.
_UNTIMED_SECTIONS = frozenset(
    _words("""
    job profiling metrics checkpoint comm lr_scheduler validation fault_tolerance memory_estimation debug
    model_overrides tokenizer
""")
)
_UNTIMED = frozenset(
    _words("""
    steps dataset dataset_path seed deterministic gc_freq gc_debug max_norm lr eps beta1 beta2 weight_decay
    tokenizer_path hf_assets_path norm_type print_after_conversion enable_wandb warmup_steps decay_ratio decay_type
    lr_min early_step_in_backward log_freq description dump_folder disable_color_printing epochs
""")
)
_NOT_MODELLED = {
    "compile": "which kernels are fused is the software stack's",
    "enable": "which kernels are fused is the software stack's",
    "components": "which kernels are fused is the software stack's",
    "disable_loss_parallel": "the loss is split over tp",
    "enable_loss_parallel": "the loss is split over tp",
    "enable_approx_mid_norm_loss_parallel": "the loss is split over tp",
    "enable_compiled_autograd": "Python's part is the software stack's",
    "enable_fsdp_float8_all_gather": "weights are gathered in the type of activations",
    "precompute_float8_dynamic_scale_for_fsdp": "scales are part of the products",
    "force_recompute_fp8_weight_in_bwd": "scales are part of the products",
    "filter_fqns": "all products of a layer compute in one type",
    "emulate": "the device's own FP8 is assumed",
    "recipe_name": "the type of products is read from converters",
    "moe_fqns_prototype": "all products of a layer compute in one type",
    "moe_fqns": "all products of a layer compute in one type",
    "implementation": "which kernels are fused is the software stack's",
    "fused": "which kernels are fused is the software stack's",
    "limit_all_gathers": "how far ahead weights are gathered is parallel.prefetch",
    "forward_prefetch": "how far ahead weights are gathered is parallel.prefetch",
    "use_orig_params": "as fast either way, to our knowledge",
    "sync_module_states": "once, at the start",
    "auto_wrap_policy": "each layer is a unit",
    "transformer_layer_cls_to_wrap": "each layer is a unit",
    "per_op_sac_force_recompute_mm_shapes_by_fqns": "selective recomputation has whole parts of a layer",
    "module_fqns_per_model_part": "layers are split evenly, embedding and head as one each",
    "pipeline_parallel_split_points": "layers are split evenly, embedding and head as one each",
    "split_points": "layers are split evenly, embedding and head as one each",
    "pipeline_parallel_schedule_csv": "a schedule goes by its name",
    "enable_cpu_offload": "weights stay on the device",
}
_READ = (
    "tensor_parallel_degree", "context_parallel_degree", "pipeline_parallel_degree", "data_parallel_shard_degree",
    "data_parallel_replicate_degree", "expert_parallel_degree", "expert_tensor_parallel_degree",
    "context_parallel_rotate_method", "pipeline_parallel_schedule", "pipeline_parallel_layers_per_stage",
    "pipeline_parallel_microbatch_size", "fsdp_reshard_after_forward", "sharding_strategy", "local_batch_size",
    "global_batch_size", "seq_len", "mixed_precision_param", "mixed_precision_reduce", "converters", "mode",
    "selective_ac_option", "enable_async_tensor_parallel", "gradient_accumulation_steps",
)  # fmt: skip


@dataclass
class Config:
    """Keys of a config by section, those that were asked for, and the notes.

    A method that meets a fault notes it and returns a harmless value.
    """

    where: str
    notes: Notes
    leaves: Mapping[tuple[str, str], Any]
    asked: set[tuple[str, str]] = field(default_factory=set)

    def raw(self, *names: str) -> Any:
        """The value of a key by any of its names (`section.key`, `key` for any section), None where there is none."""
        for name in names:
            section, _, key = name.rpartition(".")
            for place, value in self.leaves.items():
                if place[1] == key and section in ("", place[0]):
                    self.asked.add(place)
                    return value
        return None

    def fault(self, name: str, value: object, allowed: str) -> None:
        """Note a fault."""
        section, _, key = name.rpartition(".")
        place = next((place for place in self.leaves if place[1] == key), (section, key))
        self.notes.faults.append(fault(self.where, ".".join(filter(None, place)), value, allowed))

    def whole(self, default: int, *names: str, minimum: int = 1) -> int:
        """A whole number."""
        value = self.raw(*names)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value < 2**40:
            self.fault(names[0], value, f"expected a whole number from {minimum} on")
            return default
        return value

    def text(self, default: str, known: Sequence[str], *names: str) -> str:
        """One of the known texts, however it is cased; any text where none is listed."""
        value = self.raw(*names)
        if value is None:
            return default
        same = {word.lower(): word for word in known}
        if isinstance(value, str) and (not known or value.lower() in same):
            return same.get(value.lower(), value)
        self.fault(names[0], value, f"expected one of {', '.join(known)}" if known else "expected a text")
        return default

    def flag(self, default: bool, *names: str) -> bool:
        """True or false."""
        value = self.raw(*names)
        if value is not None and not isinstance(value, bool):
            self.fault(names[0], value, "expected true or false")
        return value if isinstance(value, bool) else default

    def read(self) -> tuple[str, ...]:
        """The keys that were asked for, as the file writes them."""
        return tuple(_line(place, self.leaves[place]) for place in self.leaves if place in self.asked)

    def others(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """The keys that nobody asked for: without time, not modelled, unknown."""
        untimed, not_modelled, unknown = [], [], []
        for place, value in self.leaves.items():
            section, key = place
            if place in self.asked:
                continue
            if key in _NOT_MODELLED and section.split(".")[0] not in _UNTIMED_SECTIONS:
                if value is not False and value not in (-1, "", []):
                    not_modelled.append(f"{_line(place, value)}: {_NOT_MODELLED[key]}")
            elif section.split(".")[0] in _UNTIMED_SECTIONS or key in _UNTIMED or section == "optimizer":
                untimed.append(".".join(filter(None, place)))
            else:
                near = did_you_mean(key, sorted(_READ), most=2)
                unknown.append(_line(place, value) + (f": {near}" if near else ""))
        return tuple(untimed), tuple(not_modelled), tuple(unknown)


def holds_torchtitan(text: str) -> bool:
    """Whether a text is a config of torchtitan rather than arguments."""
    leaves = leaves_of(text) or {}
    marks = re.compile(r"(data_parallel|tensor_parallel|pipeline_parallel|context_parallel|expert_parallel)_"
                       r"(shard_|replicate_)?(degree|schedule)$|local_batch_size$|(fsdp_)?sharding_strategy$"
                       r"|(fsdp_)?reshard_after_forward$|fsdp_version$")  # fmt: skip
    return any(marks.match(key) for _, key in leaves)


def leaves_of(text: str) -> Mapping[tuple[str, str], Any] | None:
    """The values of a text by section and key; None where it is neither TOML nor JSON."""
    try:
        table = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError):
        return None
    return dict(_leaves(table)) if isinstance(table, Mapping) else None


def _leaves(table: Mapping[str, Any], section: str = "") -> Iterator[tuple[tuple[str, str], Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{section}.{key}" if section else key)
        elif value is not None:
            yield (section, key.removeprefix("fsdp_") if key != "fsdp_reshard_after_forward" else key), value


def _line(place: tuple[str, str], value: object) -> str:
    text = json.dumps(value, default=str)
    return f"{'.'.join(filter(None, place))} = {text if len(text) <= 40 else text[:37] + '...'}"
