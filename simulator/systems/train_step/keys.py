"""Keys of a training step that say something only beside others, and values that are chosen for a machine or model."""

from typing import Any

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
)
from .scenario import Activations


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
    return f"{values['schedule.name']} has {own} chunk{'s' * (own > 1)} per pipeline rank; interleaved takes any number"


def _has_eight_bit_weights(values: Values) -> bool:
    return values["precision.compute"] in _EIGHT_BITS and values["parallel.zero"] != 3 and not values.gives("lora")


_EIGHT_BITS = ("fp8", "fp8-block", "mxfp8")

NEEDS: tuple[Need, ...] = (
    *OF_MODEL,
    *(
        goes_with(f"parallel.{key}", "parallel.zero", 3)
        for key in ("shard", "prefetch", "prefetch_backward", "reshard")
    ),
    goes_with("parallel.sync_each_microbatch", "parallel.zero", 2, 3),
    needs_split("parallel.cp_type", "parallel.cp"),
    Need("schedule.vpp", _chunks_fit, _own_chunks),
    Need("schedule.group", _has_groups, lambda values: f"goes with interleaved, not {values['schedule.name']}"),
    Need(
        "precision.weights", _has_eight_bit_weights,
        lambda _: f"goes with precision.compute = {' or '.join(_EIGHT_BITS)}, parallel.zero below 3 and no [lora]",
    ),
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

RIVALS = (MODEL_RIVALS, ("parallel.layers", "parallel.embedding_as_layer"))
"""Keys of which a scenario gives one."""


def _axes(change: Change) -> object:
    return change.now.dims


def _stages(change: Change) -> object:
    return change.now.stages


def _profile(change: Change) -> object:
    return change.now.profile


_STAGES = ("model", "parallel.pp", "schedule.name", "schedule.vpp")

PINS = (
    Pin("profile", DEVICE, _profile),
    Pin("model.overrides", ("model.preset",), refuse_overrides),
    Pin("recompute.modules", ("model",), _axes),
    Pin("parallel.ep", ("model",), _axes),
    Pin("parallel.etp", ("model",), _axes),
    Pin("experts", ("model",), _axes),
    *(Pin(f"precision.activations.{module}", ("model",), _axes) for module in Activations.model_fields),
    Pin("experts.nodes_per_token", (*GPUS, "parallel.ep", "parallel.etp"), _axes),
    Pin("parallel.dp", (*GPUS, "parallel.tp", "parallel.cp", "parallel.pp"), _axes),
    Pin("parallel.layers", _STAGES, _stages),
    Pin("recompute.layers", _STAGES, _stages),
)
"""In the order in which they are asked: what is wrong with the first may hide what is wrong with others."""
