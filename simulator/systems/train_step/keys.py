"""Keys of a training step that say something only beside others, and values that are chosen for a machine or model.

What a scenario leaves blank and its software stack says is filled in before keys are checked. A default that would say
nothing beside the other keys is left out, so that nobody is blamed for it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ...base.units import format_count
from ...profile import stack_defaults
from ...schedules import SCHEDULES
from ..keys import (
    DEVICE,
    GPUS,
    MODEL_RIVALS,
    OF_MODEL,
    Change,
    Need,
    Pin,
    Values,
    excludes,
    goes_with,
    needs_split,
    refuse_overrides,
    unmet_needs,
)
from .scenario import Activations, TrainScenario


def _gathers_over_tp(values: Values) -> bool:
    return values["parallel.tp"] != 1 and values["parallel.sequence_parallel"] is True


def _over_tp(key: str) -> Need:
    """A switch of what tensor-parallel ranks exchange."""
    words = "goes with parallel.tp above 1 and parallel.sequence_parallel = true"
    return Need(key, _gathers_over_tp, lambda _: words, bool)


def _chunks_fit(values: Values) -> bool:
    schedule = _schedule(values)
    return schedule is None or schedule.chunks is None or values["schedule.vpp"] in (1, schedule.chunks)


def _has_groups(values: Values) -> bool:
    schedule = _schedule(values)
    return schedule is None or "group" in schedule.options


def _schedule(values: Values) -> Any:
    name = values["schedule.name"]
    return SCHEDULES.get(name) if isinstance(name, str) else None


def _own_chunks(values: Values) -> str:
    own = _schedule(values).chunks
    return f"{values['schedule.name']} has {format_count(own, 'chunk')} per pipeline rank; interleaved takes any number"


def _has_eight_bit_weights(values: Values) -> bool:
    return values["precision.compute"] in _EIGHT_BITS and values["parallel.zero"] != 3


_EIGHT_BITS = ("fp8", "fp8-block", "mxfp8")

NEEDS: tuple[Need, ...] = (
    *OF_MODEL,
    *(
        goes_with(f"parallel.{key}", "parallel.zero", 3)
        for key in ("shard", "prefetch", "prefetch_backward", "reshard")
    ),
    goes_with("parallel.sync_each_microbatch", "parallel.zero", 2, 3),
    goes_with("bucket", "parallel.zero", 0, 1, 2),
    needs_split("parallel.cp_type", "parallel.cp"),
    *(
        Need(f"schedule.{key}", lambda values: not values["schedule.file"], lambda _: "schedule.file says it by itself")
        for key in ("vpp", "group")
    ),
    Need("schedule.passes", lambda values: not values["schedule.file"], lambda _: "a schedule from a file is one pass"),
    needs_split("schedule.passes", "parallel.pp", lambda passes: passes != 1),
    Need("schedule.vpp", _chunks_fit, _own_chunks),
    Need("schedule.group", _has_groups, lambda values: f"goes with interleaved, not {values['schedule.name']}"),
    Need(
        "precision.weights", _has_eight_bit_weights,
        lambda _: f"goes with precision.compute = {' or '.join(_EIGHT_BITS)}, parallel.zero below 3",
        lambda weights: weights == "fp8",
    ),
    goes_with("lora.base", "precision.compute", "bf16", "fp16"),
    needs_split("precision.dispatch", "parallel.ep", lambda stored: stored != "bf16"),
    *(
        excludes(f"precision.activations.{module}", "precision.compute", "fp32", "tf32", why=": tokens are in 16 bits")
        for module in Activations.model_fields
    ),
    Need("offload.slots", lambda values: values["offload.activations"] != 0, lambda _: "goes with offload.activations"),
    goes_with("recompute.modules", "recompute.mode", "selective"),
    *(goes_with(f"recompute.{key}", "recompute.mode", "full") for key in ("layers", "early_stop")),
    goes_with("overlap.params", "parallel.zero", 1, 2),
    _over_tp("overlap.tp"),
    excludes("overlap.tp", "parallel.tp_2d", True, why=", which has an overlap of its own", applies=bool),
    goes_with("overlap.tp_exposed", "overlap.tp", True),
    goes_with("overlap.fusion", "parallel.zero", 0),
    goes_with("overlap.fusion", "overlap.dp", True),
    _over_tp("memory.gathered"),
    goes_with("memory.buckets", "parallel.zero", 0, applies=bool),
    Need(
        "memory.gradients",
        lambda values: values["parallel.zero"] in (0, 1) or values["parallel.sync_each_microbatch"] is False,
        lambda values: f"goes with parallel.zero = 0 or 1, not {values['parallel.zero']}",
        bool,
    ),
    goes_with("experts.zipf", "experts.routing", "zipf"),
    goes_with("experts.histogram", "experts.routing", "histogram"),
    needs_split("experts.dispatcher", "parallel.ep", lambda name: name == "deepep"),
    goes_with("experts.nodes_per_token", "experts.dispatcher", "deepep"),
    needs_split("experts.nodes_per_token", "parallel.ep"),
    goes_with("attention_dropout", "attention", "unfused"),
    Need(
        "attention",
        lambda values: values["parallel.cp"] == 1 and not values["parallel.tp_2d"],
        lambda _: "scores are not split over ranks by cp or tp_2d: flash with these",
        lambda name: name == "unfused",
    ),
)  # fmt: skip

RIVALS = (MODEL_RIVALS, ("parallel.layers", "parallel.embedding_as_layer"), ("schedule.file", "schedule.name"))
"""Keys of which a scenario gives one."""


_STAGES = ("model", "parallel.pp", "schedule.name", "schedule.vpp", "schedule.file")


def pins(step_of: Callable[[Any], Any]) -> tuple[Pin, ...]:
    """The pins, in the order in which they are asked: what is wrong with the first may hide what is wrong with others.

    `step_of` finds the training step, or None, of a resolved scenario.
    """

    def axes(change: Change) -> object:
        step = step_of(change.now)
        return step.dims if step is not None else None

    def stages(change: Change) -> object:
        step = step_of(change.now)
        return step.stages if step is not None else None

    return (
        Pin("profile", DEVICE, lambda change: change.now.profile),
        Pin("model.overrides", ("model.preset",), refuse_overrides),
        Pin("recompute.modules", ("model",), axes),
        Pin("parallel.ep", ("model",), axes),
        Pin("parallel.etp", ("model",), axes),
        Pin("experts", ("model",), axes),
        *(Pin(f"precision.activations.{module}", ("model",), axes) for module in Activations.model_fields),
        Pin("experts.nodes_per_token", (*GPUS, "parallel.ep", "parallel.etp"), axes),
        Pin("parallel.dp", (*GPUS, "parallel.tp", "parallel.cp", "parallel.pp"), axes),
        Pin("parallel.layers", _STAGES, stages),
        Pin("recompute.layers", _STAGES, stages),
    )


PINS = pins(lambda step: step)


def add_defaults(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The table of a scenario with its stack's defaults.

    Raises:
        UserError: no such stack.
    """
    stack = table.get("stack", "generic")
    added = _added(table, stack_defaults(stack, where)) if isinstance(stack, str) else {}
    filled = _filled(table, added)
    while needless := _needless(Values(filled, TrainScenario)) & added.keys():
        added = {key: value for key, value in added.items() if key not in needless}
        filled = _filled(table, added)
    return filled


def _added(table: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults for keys that the table does not give, by keys with dots."""
    found = {}
    for key, value in defaults.items():
        if not isinstance(value, Mapping):
            found[key] = value
        elif isinstance(table.get(key, {}), Mapping):
            found |= {f"{key}.{name}": item for name, item in value.items()}
    given = Values(table, TrainScenario)
    whole = ("recompute",) if "recompute" in table else ()  # half of one and half of the other is neither
    return {key: value for key, value in found.items() if not given.gives(key) and not key.startswith(whole)}


def _filled(table: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    filled = dict(table)
    for key, value in added.items():
        name, _, inner = key.partition(".")
        filled[name] = {inner: value, **filled.get(name, {})} if inner else value
    return filled


def _needless(values: Values) -> set[str]:
    """Keys that say nothing beside the others."""
    unmet = {need.key for need in unmet_needs(values, NEEDS)}
    return unmet | {key for key, says in _CONDITIONS.items() if not says(values)}


_CONDITIONS: Mapping[str, Callable[[Values], bool]] = {
    "bucket": lambda values: values["parallel.zero"] in (1, 2),  # torch and FSDP have their own
    "memory.gradients": lambda values: values["parallel.zero"] in (0, 1),
    "precision.weights": lambda values: values["precision.compute"] != "fp8-block",  # whose recipes keep 16 bits
    "overlap.dp": lambda values: not values.gives("overlap.fusion"),
}
"""What a file may say anywhere, and a stack does not say everywhere."""
