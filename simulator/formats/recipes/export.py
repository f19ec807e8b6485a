"""From a training scenario to the arguments of Megatron-LM; a plan that they cannot say is refused."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ...base.errors import UserError, fault
from ...hardware import cluster
from ...models import ModelSpec
from ...program.parallel import ORDER
from ...systems.machines import shape_of
from ...systems.train_step.scenario import TrainScenario
from .megatron import CP_TYPES, MODULES, OF_EXPERTS, ORDER_PP_INSIDE, SHARDING
from .shapes import PADDING, Flag, flags_of

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


@dataclass(frozen=True)
class Exported:
    """Lines of arguments, a line for each key that they do not say, and for each that no argument decides.

    Only the nearest arguments leave something unsaid: they are of another plan.
    """

    lines: tuple[str, ...]
    unsaid: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()

    def __str__(self) -> str:
        comments = [f"# another plan than asked for: {line}" for line in self.unsaid]
        return "\n".join([*comments, *self.lines, *(f"# no argument decides {line}" for line in self.undecided)])


def export_megatron(scenario: TrainScenario, where: str = "scenario", *, nearest: bool = False) -> Exported:
    """The arguments with which Megatron-LM would train as the scenario says.

    With `nearest`, those of the nearest plan that it can be told, where it has one: keys that have no argument are left
    out, and `unsaid` says so. A UserError if no arguments say this model, schedule or order, or what a key of the
    scenario says; one line each.
    """
    spec, gpus = shape_of(scenario.model, where), cluster(scenario.cluster, scenario.nodes, where).n_gpus
    if not scenario.model.mtp:
        spec = replace(spec, num_nextn_predict_layers=0)
    faults, unsaid = list(_impossible(scenario, where, gpus)), tuple(_unsaid(scenario, spec))
    if not nearest and unsaid:
        faults += [f"{where}: {line}" for line in unsaid]
        faults.append(f"{where}: Megatron-LM has no arguments for this plan; --nearest prints those of the nearest one")
    if faults:
        raise UserError(*faults)
    batch = scenario.batch
    flags: dict[str, Flag] = {
        **flags_of(spec, batch.seq_len, where),
        **_parallel(scenario, spec, gpus),
        **_pipeline(scenario, spec),
        "--seq-length": batch.seq_len,
        "--micro-batch-size": batch.micro,
        "--global-batch-size": batch.global_,
        **_precision(scenario),
        **_memory(scenario, spec),
        **_overlap(scenario),
        **_experts(scenario, spec, gpus // scenario.nodes),
    }
    lines = [
        name if value is True else f"{name} {value}" for name, value in flags.items() if value not in (None, False)
    ]
    return Exported(tuple(lines), unsaid, tuple(_undecided(scenario)))


def _impossible(scenario: TrainScenario, where: str, gpus: int) -> Iterator[str]:
    name, vpp, p = scenario.schedule.name, scenario.schedule.vpp, scenario.parallel
    model = p.tp * p.cp * p.pp
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
    if p.tp_2d:
        yield fault(where, "parallel.tp_2d", True, "Megatron-LM splits widths over all of tp")
    if gpus % model or p.dp not in (None, gpus // model):
        allowed = f"tp {p.tp} x cp {p.cp} x pp {p.pp} = {model} must divide the {gpus} GPUs, and dp be the quotient"
        yield fault(where, "parallel.dp", p.dp, allowed)


def _parallel(scenario: TrainScenario, spec: ModelSpec, gpus: int) -> dict[str, Flag]:
    p = scenario.parallel
    ranks = gpus // p.tp // p.pp
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
        "--num-distributed-optimizer-instances": (
            ranks // p.shard if p.zero == 3 and p.shard and p.shard != ranks else None
        ),
    }


def _pipeline(scenario: TrainScenario, spec: ModelSpec) -> dict[str, Flag]:
    p, schedule = scenario.parallel, scenario.schedule
    if p.pp == 1:
        return {}
    layers, mtp = p.layers or _uneven(scenario, spec), spec.num_nextn_predict_layers
    ends = layers is None and p.embedding_as_layer
    chunks = schedule.name != "1f1b"
    stages = "|".join({0: "", 1: "t"}.get(count, f"t*{count}") for count in layers or ())
    last = f",m*{mtp}" if mtp > 1 else ",m" * mtp
    return {
        "--pipeline-model-parallel-layout": f"'E{stages}{last}L'" if layers else None,
        "--account-for-embedding-in-pipeline-split": ends,
        "--account-for-loss-in-pipeline-split": ends,
        "--num-virtual-stages-per-pipeline-rank": schedule.vpp if chunks and layers is None else None,
        "--microbatch-group-size-per-virtual-pipeline-stage": schedule.group if chunks else None,
        "--overlap-moe-expert-parallel-comm": schedule.name == "interleaved-overlap",
    }


def _uneven(scenario: TrainScenario, spec: ModelSpec) -> tuple[int, ...] | None:
    """Layers per stage where they do not go evenly, the first ones fuller; None where they do."""
    ends = int(scenario.parallel.embedding_as_layer)
    stages = scenario.parallel.pp * (scenario.schedule.vpp or 1)
    each, more = divmod(spec.num_hidden_layers + 2 * ends, stages)
    counts = [each + (stage < more) for stage in range(stages)]
    counts[0], counts[-1] = counts[0] - ends, counts[-1] - ends
    return tuple(counts) if more else None


def _precision(scenario: TrainScenario) -> dict[str, Flag]:
    precision = scenario.precision
    gradients, half = precision.gradients, precision.compute == "fp16"
    moments = precision.moments if precision.moments != "fp32" and scenario.parallel.zero else None
    return {
        **_COMPUTE[precision.compute],
        "--accumulate-allreduce-grads-in-fp32": half and gradients == "fp32",
        "--grad-reduce-in-bf16": not half and precision.compute != "fp32" and gradients == "bf16",
        "--fp8-param-gather": precision.weights is not None,
        "--use-precision-aware-optimizer": moments is not None,
        "--exp-avg-dtype": moments,
        "--exp-avg-sq-dtype": moments,
    }


def _memory(scenario: TrainScenario, spec: ModelSpec) -> dict[str, Flag]:
    recompute, offload = scenario.recompute, scenario.offload
    names = {module: name for name, module in MODULES.items()}
    modules = recompute.modules if recompute.mode == "selective" else ()
    named = [names[module] for module in modules if spec.moe is not None or names[module] not in OF_EXPERTS]
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
        "--delay-wgrad-compute": overlap.wgrad,
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
        "--moe-router-num-groups": -(-p.ep * (p.etp or p.tp) // gpus_per_node) if limit else None,
        "--moe-router-group-topk": limit,
    }


def _unsaid(scenario: TrainScenario, spec: ModelSpec) -> list[str]:
    """Notes on keys that no argument expresses, so that Megatron-LM behaves differently."""
    p, overlap, recompute, said = scenario.parallel, scenario.overlap, scenario.recompute, scenario.precision
    of_experts = recompute.mode == "selective" and "activation" in recompute.modules and spec.moe is None
    fsdp, back, share = p.zero == 3, p.prefetch_backward, scenario.offload.activations
    split = not (share * spec.num_hidden_layers).is_integer()
    lines = {
        "overlap.pp = true: Megatron-LM overlaps sends of interleaved pipelines only": _plain_sends(scenario, True),
        "overlap.params = true: needs overlap.dp = true": _gathers_alone(scenario, True),
        "parallel.shard_embedding = true: data-parallel ranks have copies": p.shard_embedding,
        "overlap.fusion: buckets of gradients wait for no tick": overlap.fusion is not None,
        "bucket = 'tensor': gradients travel in buckets of elements": scenario.bucket == "tensor",
        "recompute.modules activation: moe_act is of experts, and this model has none": of_experts,
        "parallel.reshard = false: weights are dropped after the forward": fsdp and not p.reshard,
        f"parallel.prefetch = {p.prefetch}: how far ahead weights are gathered": fsdp and p.prefetch != 1,
        f"parallel.prefetch_backward = {back}: how far ahead weights are gathered": fsdp
        and back not in (None, p.prefetch),
        "recompute.early_stop = true: checkpoints are reentrant, and run whole layers": recompute.early_stop,
        "parallel.sync_each_microbatch = false: gradients are reduced each micro-batch": (
            p.zero >= 2 and not p.sync_each_microbatch
        ),
        f"precision.reduce = '{said.reduce}': gradients travel as they are kept": said.reduce
        not in (None, said.gradients),
        "precision.gradients = 'bf16': gradients of FP32 models are FP32": (
            said.compute == "fp32" and said.gradients == "bf16"
        ),
        "precision.master = false: the optimizer keeps weights in FP32": not said.master,
        f"precision.dispatch = '{said.dispatch}': in which type tokens travel is the dispatcher's": said.dispatch
        != "bf16",
        **{
            f"precision.activations.{module} = '{stored}': inputs are kept as the software has it": True
            for module, stored in said.activations.model_dump(exclude_none=True).items()
        },
        f"precision.moments = '{said.moments}': needs parallel.zero = 1": said.moments != "fp32" and not p.zero,
        f"offload.activations = {share:g}: whole layers are offloaded": split,
    }
    return [line for line, holds in lines.items() if holds]


def _undecided(scenario: TrainScenario) -> list[str]:
    """Notes on arguments that the installation, the data or Megatron-LM's defaults decide."""
    attention, memory, slots = scenario.attention, scenario.memory, scenario.offload.slots
    routing, exposed = scenario.experts.routing, scenario.overlap.tp_exposed
    kept = memory.gathered or memory.gate or memory.gradients or memory.buckets
    silent = "on which the scenario is silent"
    lines = {
        f"overlap.pp, {silent}: sends of interleaved pipelines alone are overlapped": _plain_sends(scenario, False),
        f"overlap.params, {silent}: it needs overlap.dp = true": _gathers_alone(scenario, False),
        "loss = 'passes': leave out --cross-entropy-loss-fusion": scenario.loss == "passes",
        "attention = 'flash-2': which kernels run is the installation's": attention == "flash-2",
        "attention = 'unfused': --attention-backend and dropout of scores are not written": attention == "unfused",
        "memory: what is kept is the software's": kept,
        f"overlap.tp_exposed = {exposed or 0:g}: how much of it is exposed is measured, not set": exposed is not None,
        f"offload.slots = {slots}: how much is staged is the software's": "slots" in scenario.offload.model_fields_set,
        f"experts.routing = '{routing}': the router does": routing != "balanced",
    }
    return [line for line, holds in lines.items() if holds]


def _plain_sends(scenario: TrainScenario, said: bool) -> bool:
    """Whether sends of a pipeline without chunks would be overlapped, because the scenario says so or by default."""
    plain = scenario.parallel.pp > 1 and scenario.schedule.name == "1f1b" and scenario.overlap.pp
    return plain and ("pp" in scenario.overlap.model_fields_set) == said


def _gathers_alone(scenario: TrainScenario, said: bool) -> bool:
    """Whether weights would be gathered beside the forward, but gradients not reduced beside the backward."""
    overlap = scenario.overlap
    alone = scenario.parallel.zero in (1, 2) and overlap.params and not overlap.dp
    return alone and ("params" in overlap.model_fields_set) == said
