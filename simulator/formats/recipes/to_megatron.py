"""From a training scenario to the arguments of Megatron-LM, a line each."""

from collections.abc import Iterator, Mapping
from itertools import chain

from ...base.errors import UserError, fault
from ...models import ModelSpec
from ...program.parallel import ORDER
from ...systems.train_step.resolve import ResolvedTrain
from ...systems.train_step.scenario import TrainScenario
from .megatron import CP_TYPES, OF_EXPERTS, ORDER_PP_INSIDE, SHARDING
from .shape_flags import Flag, flags_of
from .shapes import PADDING

_COMPUTE: Mapping[str, Mapping[str, Flag]] = {
    "fp32": {},
    "fp16": {"--fp16": True},
    "bf16": {"--bf16": True},
    "fp8": {"--bf16": True, "--fp8-format": "hybrid", "--fp8-recipe": "tensorwise"},
    "fp8-block": {"--bf16": True, "--fp8-format": "e4m3", "--fp8-recipe": "blockwise"},
    "mxfp8": {"--bf16": True, "--fp8-format": "e4m3", "--fp8-recipe": "mxfp8"},
    "nvfp4": {"--bf16": True, "--fp4-format": "e2m1", "--fp4-recipe": "nvfp4"},
}
_SCHEDULES = ("1f1b", "interleaved", "interleaved-overlap")


REASONS: Mapping[str, str] = {
    "overlap.pp": "Megatron-LM overlaps sends of interleaved pipelines only",
    "overlap.dp": "gradients that FSDP shards are reduced beside the backward",
    "overlap.params": "it goes with overlap.dp = true",
    "overlap.wgrad": "weight gradients are held back with schedule.name = 'interleaved-overlap' alone",
    "overlap.fusion": "buckets of gradients wait for no tick",
    "parallel.shard_embedding": "data-parallel ranks have copies",
    "parallel.reshard": "weights are dropped after the forward",
    "parallel.prefetch": "how far ahead weights are gathered is Megatron-LM's",
    "parallel.prefetch_backward": "how far ahead weights are gathered is Megatron-LM's",
    "parallel.sync_each_microbatch": "gradients are reduced each micro-batch",
    "parallel.sequence_parallel": "its tensor parallelism of experts needs it",
    "bucket": "gradients travel in buckets of elements",
    "recompute.modules": "activations alone are recomputed in experts, by moe_act",
    "recompute.mode": "activations alone are recomputed in experts, by moe_act",
    "recompute.early_stop": "checkpoints are reentrant, and run whole layers",
    "precision.reduce": "gradients travel as they are kept",
    "precision.gradients": "gradients of FP32 models are FP32",
    "precision.moments": "other types than FP32 need parallel.zero = 1 or more",
    "precision.master": "the optimizer keeps weights in FP32",
    "precision.dispatch": "in which type tokens travel is the dispatcher's",
    "precision.activations": "inputs are kept as the software has it",
    "offload.activations": "whole layers are offloaded",
    "schedule.name": "a pipeline of one stage has no schedule",
    "schedule.passes": "a step goes through the pipeline once",
}
"""Why Megatron-LM does not do what a scenario says, by key."""


def write(asked: ResolvedTrain, spec: ModelSpec) -> list[str]:
    """The arguments with which Megatron-LM trains as the scenario says, or nearly so.

    A UserError if no arguments say this model, schedule or order; one line each.
    """
    scenario, batch = asked.scenario, asked.scenario.batch
    where = asked.where
    impossible = _impossible(scenario, where), _not_offloaded(scenario, spec, where), _not_paired(scenario, spec, where)
    if faults := [*chain.from_iterable(impossible)]:
        raise UserError(*faults)
    flags: dict[str, Flag] = {
        **flags_of(spec, batch.seq_len, where),
        **_parallel(scenario, spec, asked.dims.size("dp_cp")),
        **_pipeline(asked, spec),
        "--seq-length": batch.seq_len,
        "--micro-batch-size": batch.micro,
        "--global-batch-size": batch.global_,
        **_precision(scenario),
        **_memory(scenario, spec),
        **_overlap(scenario),
        **_experts(scenario, spec, asked.cluster.n_gpus // scenario.nodes),
        **_attention(scenario),
    }
    return [name if value is True else f"{name} {value}" for name, value in flags.items() if value not in (None, False)]


def _impossible(scenario: TrainScenario, where: str) -> Iterator[str]:
    name, vpp, p = scenario.schedule.name, scenario.schedule.vpp, scenario.parallel
    if scenario.schedule.file is not None and p.pp > 1:
        yield fault(where, "schedule.file", scenario.schedule.file, f"Megatron-LM has {', '.join(_SCHEDULES)}")
    if name not in _SCHEDULES and p.pp > 1:
        yield fault(where, "schedule.name", name, f"Megatron-LM has {', '.join(_SCHEDULES)}")
    if name.startswith("interleaved") and p.pp > 1 and (vpp or 1) < 2:
        yield fault(where, "schedule.vpp", vpp, "expected 2 or more chunks per pipeline rank")
    if p.order not in (ORDER, ORDER_PP_INSIDE):
        yield fault(where, "parallel.order", p.order, f"Megatron-LM has {ORDER} and {ORDER_PP_INSIDE}")
    if scenario.precision.compute == "tf32":
        yield fault(where, "precision.compute", "tf32", f"Megatron-LM has {', '.join(_COMPUTE)}")
    if scenario.lora is not None:
        yield f"{where}: lora: Megatron-LM's arguments have no adapters"
    if scenario.freeze is not None:
        yield f"{where}: freeze: Megatron-LM's arguments train all layers"
    if p.tp_2d:
        yield fault(where, "parallel.tp_2d", True, "Megatron-LM splits widths over all of tp")


def _not_offloaded(scenario: TrainScenario, spec: ModelSpec, where: str) -> Iterator[str]:
    """What is offloaded and Megatron-LM refuses (training/arguments.py, core/transformer/transformer_config.py)."""
    share, layers = scenario.offload.activations, spec.num_hidden_layers
    if scenario.offload.optimizer and not scenario.parallel.zero:
        yield fault(where, "offload.optimizer", True, "needs parallel.zero = 1 or more")
    if _has_delayed_scaling(scenario) and scenario.precision.compute != "fp8":
        yield fault(where, "offload.optimizer", True, "goes with weights in FP8 where precision.compute = 'fp8' alone")
    if share and (scenario.parallel.pp > 1 or scenario.recompute.mode != "none"):
        yield fault(where, "offload.activations", share, "goes without a pipeline and without recomputation")
    elif round(share * layers) >= layers:
        yield fault(
            where, "offload.activations", share, f"fewer than all {layers} layers, such as {(layers - 1) / layers:g}"
        )


def _not_paired(scenario: TrainScenario, spec: ModelSpec, where: str) -> Iterator[str]:
    """What Megatron-LM refuses beside --overlap-moe-expert-parallel-comm (core/transformer/transformer_config.py)."""
    if not _is_paired(scenario):
        return
    recompute, compute, reason = scenario.recompute, scenario.precision.compute, "beside schedule interleaved-overlap"
    if scenario.parallel.ep == 1:
        yield fault(where, "parallel.ep", 1, f"expected 2 or more {reason}")
    if recompute.mode == "full":
        yield fault(where, "recompute.mode", "full", f"expected none or selective {reason}")
    if recompute.mode == "selective" and "moe" in recompute.modules:
        yield fault(where, "recompute.modules", ", ".join(recompute.modules), f"expected all but moe {reason}")
    if compute == "fp32":
        yield fault(where, "precision.compute", compute, f"expected 16 bits or less {reason}")
    if spec.num_nextn_predict_layers > 1:
        yield f"{where}: model: {spec.num_nextn_predict_layers} layers of multi-token prediction; expected 1 {reason}"


def _is_paired(scenario: TrainScenario) -> bool:
    """Whether a forward and a backward run together, so that exchanges of experts overlap."""
    return scenario.schedule.name == "interleaved-overlap"


def _has_delayed_scaling(scenario: TrainScenario) -> bool:
    """Whether Megatron-LM asks for the FP8 recipe of delayed scaling: an offloaded optimizer updates weights in FP8."""
    return scenario.offload.optimizer and scenario.precision.weights == "fp8"


def _parallel(scenario: TrainScenario, spec: ModelSpec, ranks: int) -> dict[str, Flag]:
    p = scenario.parallel
    sharding = next((name for name, zero in SHARDING.items() if zero == p.zero >= 2), None)
    return {
        "--tensor-model-parallel-size": p.tp,
        "--pipeline-model-parallel-size": p.pp,
        "--sequence-parallel": p.tp > 1 and p.sequence_parallel,
        "--make-vocab-size-divisible-by": p.pad_vocab if p.pad_vocab != PADDING else None,
        "--context-parallel-size": p.cp if p.cp > 1 else None,
        "--cp-comm-type": next(name for name, kind in CP_TYPES.items() if kind == p.cp_type) if p.cp > 1 else None,
        "--expert-model-parallel-size": p.ep if spec.moe else None,
        "--expert-tensor-parallel-size": p.etp or p.tp if spec.moe else None,
        "--use-tp-pp-dp-mapping": p.order == ORDER_PP_INSIDE,
        "--use-distributed-optimizer": p.zero >= 1,
        "--use-megatron-fsdp": p.zero >= 2,
        "--data-parallel-sharding-strategy": sharding,
        "--ckpt-format": "fsdp_dtensor" if p.zero >= 2 else None,  # the only one that its FSDP takes
        "--num-distributed-optimizer-instances": (
            ranks // p.shard if p.zero == 3 and p.shard and p.shard != ranks else None
        ),
    }


def _pipeline(asked: ResolvedTrain, spec: ModelSpec) -> dict[str, Flag]:
    p, schedule, mtp = asked.scenario.parallel, asked.scenario.schedule, spec.num_nextn_predict_layers
    paired: dict[str, Flag] = {"--overlap-moe-expert-parallel-comm": _is_paired(asked.scenario)}
    if p.pp == 1:
        return paired
    layers = [len(stage.layers) for stage in asked.stages]
    ends = p.layers is None and p.embedding_as_layer
    inner = [count + ends * (stage in (0, len(layers) - 1)) for stage, count in enumerate(layers)]
    uneven, chunks = p.layers is not None or len(set(inner)) > 1, schedule.name != "1f1b"
    stages = "|".join({0: "", 1: "t"}.get(count, f"t*{count}") for count in layers)
    last = f",m*{mtp}" if mtp > 1 else ",m" * mtp
    return {
        "--pipeline-model-parallel-layout": f"'E{stages}{last}L'" if uneven else None,
        "--account-for-embedding-in-pipeline-split": ends and not uneven,
        "--account-for-loss-in-pipeline-split": ends and not uneven,
        "--num-virtual-stages-per-pipeline-rank": schedule.vpp if chunks and not uneven else None,
        "--microbatch-group-size-per-virtual-pipeline-stage": schedule.group if chunks else None,
        **paired,
    }


def _precision(scenario: TrainScenario) -> dict[str, Flag]:
    precision = scenario.precision
    gradients, half = precision.gradients, precision.compute == "fp16"
    moments = precision.moments if precision.moments != "fp32" and scenario.parallel.zero else None
    return {
        **_COMPUTE[precision.compute],
        **({"--fp8-recipe": "delayed"} if _has_delayed_scaling(scenario) else {}),
        "--accumulate-allreduce-grads-in-fp32": half and gradients == "fp32",
        "--grad-reduce-in-bf16": not half and precision.compute != "fp32" and gradients == "bf16",
        "--fp8-param-gather": precision.weights == "fp8",
        "--use-precision-aware-optimizer": moments is not None or scenario.offload.optimizer,
        "--exp-avg-dtype": moments,
        "--exp-avg-sq-dtype": moments,
    }


def _memory(scenario: TrainScenario, spec: ModelSpec) -> dict[str, Flag]:
    recompute, offload = scenario.recompute, scenario.offload
    nearest = {"activation": "moe_act"}
    modules = recompute.modules if recompute.mode == "selective" else ()
    grouped = _is_grouped(scenario, spec)
    names = dict.fromkeys(nearest.get(module, module) for module in modules)
    named = [name for name in names if grouped or name not in OF_EXPERTS]
    full = recompute.mode == "full"
    return {
        "--recompute-granularity": "full" if full else "selective" if named else None,
        "--recompute-method": ("block" if recompute.layers else "uniform") if full else None,
        "--recompute-num-layers": recompute.layers or 1 if full else None,
        "--recompute-modules": " ".join(named) or None,
        "--optimizer-cpu-offload": offload.optimizer,
        "--cpu-offloading-num-layers": round(offload.activations * spec.num_hidden_layers) or None,
        "--ddp-bucket-size": scenario.bucket if isinstance(scenario.bucket, int) else None,
    }


def _overlap(scenario: TrainScenario) -> dict[str, Flag]:
    overlap, p = scenario.overlap, scenario.parallel
    return {
        "--overlap-grad-reduce": overlap.dp,
        "--overlap-param-gather": overlap.params and overlap.dp and p.zero in (1, 2),
        "--tp-comm-overlap": overlap.tp and p.tp > 1 and p.sequence_parallel,
        "--no-overlap-p2p-communication": p.pp > 1 and scenario.schedule.name != "1f1b" and not overlap.pp,
        "--delay-wgrad-compute": overlap.wgrad and _is_paired(scenario),
    }


def _experts(scenario: TrainScenario, spec: ModelSpec, gpus_per_node: int) -> dict[str, Flag]:
    experts, p = scenario.experts, scenario.parallel
    if spec.moe is None:
        return {}
    deepep = experts.dispatcher != "alltoall"
    limit = experts.nodes_per_token if deepep else None
    return {
        "--moe-expert-capacity-factor": None if experts.capacity is None else f"{experts.capacity:g}",
        "--moe-token-dispatcher-type": "flex" if deepep else "alltoall",
        "--moe-enable-deepep": deepep,
        "--moe-grouped-gemm": _is_grouped(scenario, spec),
        "--moe-router-num-groups": -(-p.ep * (p.etp or p.tp) // gpus_per_node) if limit else None,
        "--moe-router-group-topk": limit,
    }


def _is_grouped(scenario: TrainScenario, spec: ModelSpec) -> bool:
    """Whether there are GEMMs of experts that Megatron-LM groups: it refuses to in FP32 and FP16."""
    return spec.moe is not None and "--bf16" in _COMPUTE[scenario.precision.compute]


def _attention(scenario: TrainScenario) -> dict[str, Flag]:
    """Unfused attention, and no dropout but of its scores if asked for: Megatron-LM's own is 0.1."""
    unfused = scenario.attention == "unfused"
    none = {"--attention-dropout": None if unfused and scenario.attention_dropout else "0.0", "--hidden-dropout": "0.0"}
    return {"--attention-backend": "unfused" if unfused else None, **none}
