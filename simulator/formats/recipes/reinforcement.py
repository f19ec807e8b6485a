"""What reinforcement learning adds to a training step: its batch, and the update that brings new weights to engines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...hardware import Spec
from ...models import preset
from ...scenario import check_scenario, resolve
from ...systems.weight_update.transfers import TransferUpdate
from .arguments import Arguments, Machine

LOG_PROBABILITIES = "log probabilities of the old policy and of a reference model: forward passes before a step"
ADAPTERS_ALONE = "adapters alone are sent, which no method here does"


@dataclass(frozen=True)
class Engines:
    """The engines that roll out: GPUs of one (`tp`, `ep`), and in all where they are not on the trainer's (`gpus`)."""

    tp: int = 1
    ep: int = 1
    gpus: int | None = None


def spread_attention(args: Arguments, gpus: int, copies: int, ep: int, key: str) -> tuple[int, int]:
    """tp and ep of an engine of experts on so many GPUs, with `copies` of its attention, each for requests of its own.

    Its experts are over all GPUs then. `ep` is what the file says, which may be fewer, `key` what says the copies.
    """
    if gpus % copies:
        args.fault(key, f"must divide the {gpus} GPUs of an engine", copies)
        args.check()
    if ep != gpus:
        line = f"experts count as dealt to all {gpus} GPUs of an engine, not as cut: as many bytes in fewer tensors"
        args.not_modelled.append(f"{args.spelling(key)} {copies}: {line}")
    return gpus // copies, gpus


@dataclass(frozen=True)
class Lengths:
    """Tokens of a sequence, and of a micro-batch on a data-parallel rank where sequences are packed into it."""

    sequence: int
    packed: int | None = None


def align(tokens: int, tp: int, cp: int) -> int:
    """Tokens rounded up to what sequence and context parallelism can split, as trainers pad them."""
    unit = tp * (2 * cp if cp > 1 else 1)
    return -(-tokens // unit) * unit


def fit_micro(args: Arguments, total: int, dp: int, lengths: Lengths, key: str) -> int:
    """Sequences of a micro-batch into which `packed` tokens go, of `total` of a step on `dp` ranks."""
    share = max(total // dp, 1)
    most = max((lengths.packed or 0) // lengths.sequence, 1)
    micro = max(size for size in range(1, min(most, share) + 1) if share % size == 0)
    whole = "" if micro == most else f", and {micro} make whole micro-batches"
    args.assumed.append(f"batch.micro = {micro}: {args.spelling(key)} has room for {most}{whole}")
    return micro


def describe_update(
    step: Mapping[str, Any], machine: Machine, engines: Engines, update: Mapping[str, Any], stack: str
) -> dict[str, Any]:
    """The table of a weight update from the trainer of a step to its engines; the rest of it is `update`.

    A UserError if it cannot be simulated so.
    """
    parallel = step["parallel"]
    plan = {axis: parallel[axis] for axis in ("tp", "pp", "cp", "ep") if parallel.get(axis, 1) > 1}
    if parallel.get("zero") == 3:
        plan |= {"sharded": True} | ({"shard": parallel["shard"]} if "shard" in parallel else {})
    elif not {"tp", "pp", "ep"} & plan.keys():
        plan["sharded"] = False
    inference: dict[str, Any] = {"tp": engines.tp} | ({"ep": engines.ep} if engines.ep > 1 else {})
    nodes = machine.nodes
    if engines.gpus is not None:
        plan["gpus"], inference["gpus"] = machine.gpus, engines.gpus
        nodes = -(-(machine.gpus + engines.gpus) // machine.gpus_per_node)
    return {
        "kind": "weight_update",
        "nodes": nodes,
        "stack": stack,
        "update": {**update, "trainer": plan, "inference": inference},
    }


def is_in_eight_bits(model: Mapping[str, Any]) -> bool:
    """Whether a `[model]` table is a preset whose checkpoint is quantized, which trainers keep in 16 bits."""
    return "preset" in model and preset(model["preset"]).quantization is not None


def model_that_travels(model: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """The `[model]` table of an update: weights travel in 16 bits, as they are trained, unless it quantizes them.

    A config of its own has its quantization in its file.
    """
    if "quantize" in update or not is_in_eight_bits(model):
        return dict(model)
    return {**model, "overrides": {**model.get("overrides", {}), "quantization_config": {}}}


def check_update(table: Mapping[str, Any], name: str, cluster: Spec, model: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a scenario of an update, checked; what is as by default is left out.

    A UserError if it cannot be simulated.
    """
    first = {"name": name, "kind": "weight_update", "cluster": cluster}
    scenario = check_scenario(first | dict(table) | {"model": model_that_travels(model, table["update"])}, name)
    resolved = resolve(scenario, name)
    if isinstance(resolved, TransferUpdate):
        assert resolved.plan  # raises where layouts and GPUs do not fit
    said: dict[str, Any] = scenario.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return first | {"nodes": table["nodes"]} | said
