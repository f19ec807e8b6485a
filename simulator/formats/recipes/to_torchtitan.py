"""From a training scenario to a config of torchtitan, in TOML as its releases up to 2025 read it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...base.errors import UserError, fault
from ...base.files import to_toml
from ...models import ModelSpec
from ...program.parallel import ORDER
from ...systems.train_step.lower import Stage
from ...systems.train_step.resolve import ResolvedTrain
from ...systems.train_step.scenario import TrainScenario
from .torchtitan import SCHEDULES, TWO_CHUNKS, TYPES
from .torchtitan_registry import flavor_of

_CONVERTERS = {"fp8": "quantize.linear.float8", "mxfp8": "quantize.linear.mx", "nvfp4": "nvfp4"}
_TYPES = {short: name for name, short in TYPES.items() if short != "fp16"}
_ROTATION = {"ring": "alltoall", "all_gather": "allgather"}


REASONS: Mapping[str, str] = {
    "model.mtp": "multi-token prediction is not trained",
    "parallel.zero": "FSDP2 shards weights, gradients and states (3); copies of the whole model (0) go without cp",
    "parallel.layers": "layers are split evenly, with embedding and head as one each",
    "parallel.embedding_as_layer": "layers are split evenly, with embedding and head as one each",
    "parallel.sequence_parallel": "sequences are split over tp",
    "parallel.etp": "experts are split over tp where ep is 1",
    "parallel.prefetch": "how far ahead weights are gathered is FSDP2's",
    "parallel.prefetch_backward": "how far ahead weights are gathered is FSDP2's",
    "parallel.shard_embedding": "FSDP2 shards the embedding as all weights",
    "parallel.sync_each_microbatch": "gradients are reduced behind each micro-batch, in pipelines behind the last one",
    "parallel.pad_vocab": "the vocabulary is not padded",
    "schedule.group": "it has groups of pp micro-batches",
    "precision.reduce": "gradients travel in FP32",
    "precision.gradients": "gradients have the type of the sharded weights; "
    "those that are summed until the last micro-batch have the type in which they are reduced",
    "precision.moments": "moments have the type of the sharded weights",
    "precision.master": "the sharded weights are those of the optimizer",
    "precision.weights": "gathered weights are in 16 bits",
    "precision.dispatch": "in which type tokens travel is the dispatcher's",
    "precision.activations": "inputs are kept as the software has it",
    "recompute.modules": "parts of a layer are recomputed by operation: layernorm and activation",
    "recompute.layers": "every n-th layer is recomputed whole",
    "offload.activations": "activations stay on the device",
    "offload.optimizer": "the optimizer stays on the device",
    "overlap.dp": "FSDP2 reduces beside the backward",
    "overlap.tp": "it goes with tp above 1 and compiled layers",
    "overlap.wgrad": "weight gradients are not held back",
    "overlap.pp": "sends do not wait",
    "bucket": "each layer is a unit",
    "experts.capacity": "experts take all tokens that are sent to them",
    "experts.nodes_per_token": "tokens go to any node",
}
"""Why torchtitan does not do what a scenario says, by key."""


def write(asked: ResolvedTrain, spec: ModelSpec) -> list[str]:
    """The config with which torchtitan trains as the scenario says, or nearly so.

    A UserError if no config says this model, schedule or order; one line each.
    """
    scenario = asked.scenario
    if faults := list(_impossible(asked)):
        raise UserError(*faults)
    family, flavor = flavor_of(scenario.model.preset or "") or ("", "")
    converter = _CONVERTERS.get(scenario.precision.compute)
    table = {
        "model": {"name": family, "flavor": flavor, **({"converters": [converter]} if converter else {})},
        "training": {**_batch(scenario, asked.dims.dp), **_precision(scenario)},
        "parallelism": _parallelism(scenario, spec, asked),
        "activation_checkpoint": _recompute(scenario, spec),
        **_compiled(scenario),
    }
    return to_toml(table).strip().splitlines()


def _impossible(asked: ResolvedTrain) -> Iterator[str]:
    scenario, where, dims = asked.scenario, asked.where, asked.dims
    p, compute, name = scenario.parallel, scenario.precision.compute, scenario.schedule.name
    if flavor_of(scenario.model.preset or "") is None or scenario.model.overrides:
        said = scenario.model.preset or "a config"
        yield f"{where}: model: torchtitan has no flavor of {said}{' with overrides' * bool(scenario.model.overrides)}"
    if p.pp > 1 and name not in SCHEDULES.values():
        yield fault(where, "schedule.name", name, f"torchtitan has {', '.join(SCHEDULES.values())}")
    if p.order != ORDER:
        yield fault(where, "parallel.order", p.order, f"torchtitan has {ORDER}")
    if p.zero == 0 and 1 < dims.dp < dims.world_size:  # models/llama3/infra/parallelize.py
        yield fault(where, "parallel.zero", 0, "copies of the model go without other axes: 3")
    if p.tp_2d:
        yield fault(where, "parallel.tp_2d", True, "torchtitan splits widths over all of tp")
    if p.cp > 1 and p.cp_type not in _ROTATION:
        yield fault(where, "parallel.cp_type", p.cp_type, f"torchtitan has {', '.join(_ROTATION)}")
    if compute not in (*_CONVERTERS, *_TYPES):  # job_config.py: mixed_precision_param
        yield fault(where, "precision.compute", compute, f"torchtitan has {', '.join((*_TYPES, *_CONVERTERS))}")
    if scenario.lora is not None:
        yield f"{where}: lora: torchtitan's config has no adapters"
    if scenario.freeze is not None:
        yield f"{where}: freeze: torchtitan's config trains all layers"


def _batch(scenario: TrainScenario, dp: int) -> dict[str, Any]:
    batch = scenario.batch
    local = batch.global_ // (dp * scenario.schedule.passes) if scenario.parallel.pp > 1 else batch.micro
    return {"local_batch_size": local, "global_batch_size": batch.global_, "seq_len": batch.seq_len}


def _precision(scenario: TrainScenario) -> dict[str, Any]:
    precision = scenario.precision
    return {
        "mixed_precision_param": _TYPES.get(precision.compute, "bfloat16"),
        "mixed_precision_reduce": "float32",  # the only one
        **({"dtype": "bfloat16"} if not precision.master and precision.gradients == "bf16" else {}),
    }


def _parallelism(scenario: TrainScenario, spec: ModelSpec, asked: ResolvedTrain) -> dict[str, Any]:
    p, dims = scenario.parallel, asked.dims
    shard = 1 if p.zero == 0 else max(dims.size("dp_shard") // dims.cp, 1)
    deepep = scenario.experts.dispatcher == "deepep"
    return {
        "data_parallel_replicate_degree": max(dims.dp // shard, 1),
        "data_parallel_shard_degree": shard,
        "tensor_parallel_degree": p.tp,
        "context_parallel_degree": p.cp,
        **({"context_parallel_rotate_method": _ROTATION[p.cp_type]} if p.cp > 1 else {}),
        "pipeline_parallel_degree": p.pp,
        **(_pipeline(scenario, asked.stages) if p.pp > 1 else {}),
        **({"fsdp_reshard_after_forward": "always" if p.reshard else "never"} if p.zero == 3 else {}),
        **({"expert_parallel_degree": p.ep} if spec.moe else {}),
        **({"expert_tensor_parallel_degree": p.etp or p.tp} if p.ep > 1 else {}),
        **({"expert_parallel_comm_backend": "deepep"} if deepep else {}),
        **({"enable_async_tensor_parallel": True} if scenario.overlap.tp and _compiles_layers(scenario) else {}),
    }


def _pipeline(scenario: TrainScenario, stages: Sequence[Stage]) -> dict[str, Any]:
    """The schedule, and the modules of each stage: torchtitan's own split counts embedding and head as a layer each."""
    name = scenario.schedule.name
    return {
        "pipeline_parallel_schedule": next(other for other, own in SCHEDULES.items() if own == name),
        "pipeline_parallel_microbatch_size": scenario.batch.micro,
        "module_fqns_per_model_part": [_modules(stage) for stage in stages],
    }


def _modules(stage: Stage) -> list[str]:
    layers = [f"layers.{number}" for number in stage.layers]
    return ["tok_embeddings"] * stage.embedding + layers + ["norm", "output"] * stage.head


def _recompute(scenario: TrainScenario, spec: ModelSpec) -> dict[str, Any]:
    again = scenario.recompute
    stops = {"early_stop": True} if again.early_stop else {}
    if again.mode == "full" and again.layers is not None:
        name = scenario.schedule.name
        chunks = scenario.parallel.pp * (scenario.schedule.vpp or (2 if name in TWO_CHUNKS else 1))
        every = max(spec.num_hidden_layers // chunks // again.layers, 1)
        return {"mode": "selective", "selective_ac_option": str(every), **stops}
    if again.mode == "selective":
        return {"mode": "selective", "selective_ac_option": "op"}
    return {"mode": again.mode, **stops}


def _compiled(scenario: TrainScenario) -> dict[str, Any]:
    """A compiled layer computes the gate's activation again, and a compiled loss is one kernel."""
    parts = ["model"] * _compiles_layers(scenario) + ["loss"] * (scenario.loss == "fused")
    return {"compile": {"enable": True, "components": parts}} if parts else {}


def _compiles_layers(scenario: TrainScenario) -> bool:
    return not scenario.memory.gate
