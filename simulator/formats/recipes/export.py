"""From a training scenario to the arguments of Megatron-LM; a plan that they cannot say is refused."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...base.errors import UserError, fault
from ...hardware import cluster
from ...models import ModelSpec
from ...program.parallel import ORDER
from ...systems.shape import shape_of
from ...systems.train_step.scenario import TrainScenario
from .megatron import CP_TYPES, MODULES, OF_EXPERTS, ORDER_PP_INSIDE, SHARDING
from .shapes import PADDING, arguments_of

_COMPUTE = {
    "fp32": (),
    "fp16": ("--fp16",),
    "bf16": ("--bf16",),
    "fp8": ("--bf16", "--fp8-format hybrid", "--fp8-recipe tensorwise"),
    "fp8-block": ("--bf16", "--fp8-format e4m3", "--fp8-recipe blockwise"),
    "mxfp8": ("--bf16", "--fp8-format e4m3", "--fp8-recipe mxfp8"),
    "nvfp4": ("--bf16", "--fp4-format e2m1", "--fp4-recipe nvfp4"),
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
    out, and `unsaid` says so.

    Raises:
        UserError: no arguments say this model, schedule or order, or what a key of the scenario says; one line each.
    """
    spec, gpus = _spec(scenario, where), cluster(scenario.cluster, scenario.nodes, where).n_gpus
    faults, unsaid = list(_impossible(scenario, where, gpus)), tuple(_unsaid(scenario, spec))
    if not nearest and unsaid:
        faults += [f"{where}: {line}" for line in unsaid]
        faults.append(f"{where}: Megatron-LM has no arguments for this plan; --nearest prints those of the nearest one")
    if faults:
        raise UserError(*faults)
    parts = (
        arguments_of(spec, where),
        _parallel(scenario, spec, gpus),
        _pipeline(scenario, spec),
        _batch(scenario, spec),
        _precision(scenario),
        _memory(scenario, spec),
        _overlap(scenario),
        _experts(scenario, spec, gpus // scenario.nodes),
    )
    return Exported(tuple(line for part in parts for line in part), unsaid, tuple(_undecided(scenario)))


def _spec(scenario: TrainScenario, where: str) -> ModelSpec:
    spec = shape_of(scenario.model, where)
    return spec if scenario.model.mtp else replace(spec, num_nextn_predict_layers=0)


def _impossible(scenario: TrainScenario, where: str, gpus: int) -> Iterator[str]:
    name, order, precision = scenario.schedule.name, scenario.parallel.order, scenario.precision
    if name not in _SCHEDULES and scenario.parallel.pp > 1:
        yield fault(where, "schedule.name", name, f"Megatron-LM has {', '.join(_SCHEDULES)}")
    if name.startswith("interleaved") and scenario.parallel.pp > 1 and (scenario.schedule.vpp or 1) < 2:
        yield fault(where, "schedule.vpp", scenario.schedule.vpp, "expected 2 or more chunks per pipeline rank")
    if order not in (ORDER, ORDER_PP_INSIDE):
        yield fault(where, "parallel.order", order, f"Megatron-LM has {ORDER} and {ORDER_PP_INSIDE}")
    if precision.compute == "tf32":
        yield fault(where, "precision.compute", "tf32", f"Megatron-LM has {', '.join(_COMPUTE)}")
    if scenario.lora is not None:
        yield f"{where}: lora: Megatron-LM's arguments have no adapters"
    p = scenario.parallel
    if p.tp_2d:
        yield fault(where, "parallel.tp_2d", True, "Megatron-LM splits widths over all of tp")
    model = p.tp * p.cp * p.pp
    if gpus % model or p.dp not in (None, gpus // model):
        allowed = f"tp {p.tp} x cp {p.cp} x pp {p.pp} = {model} must divide the {gpus} GPUs, and dp be the quotient"
        yield fault(where, "parallel.dp", p.dp, allowed)


def _parallel(scenario: TrainScenario, spec: ModelSpec, gpus: int) -> Iterator[str]:
    p = scenario.parallel
    yield f"--tensor-model-parallel-size {p.tp}"
    yield f"--pipeline-model-parallel-size {p.pp}"
    if p.tp > 1 and p.sequence_parallel:
        yield "--sequence-parallel"
    if p.pad_vocab != PADDING:
        yield f"--make-vocab-size-divisible-by {p.pad_vocab}"
    if p.cp > 1:
        yield f"--context-parallel-size {p.cp}"
        yield f"--cp-comm-type {next(name for name, kind in CP_TYPES.items() if kind == p.cp_type)}"
    if spec.moe:
        yield f"--expert-model-parallel-size {p.ep}"
        yield f"--expert-tensor-parallel-size {p.etp or p.tp}"
    if p.order == ORDER_PP_INSIDE:
        yield "--use-tp-pp-dp-mapping"
    if p.zero >= 1:
        yield "--use-distributed-optimizer"
    if p.zero >= 2:
        yield "--use-megatron-fsdp"
        yield f"--data-parallel-sharding-strategy {next(name for name, zero in SHARDING.items() if zero == p.zero)}"
    ranks = gpus // p.tp // p.pp
    if p.zero == 3 and p.shard not in (None, ranks):
        yield f"--num-distributed-optimizer-instances {ranks // p.shard}"


def _pipeline(scenario: TrainScenario, spec: ModelSpec) -> Iterator[str]:
    p, schedule = scenario.parallel, scenario.schedule
    if p.pp == 1:
        return
    chunks = schedule.name != "1f1b"
    layers = p.layers or _uneven(scenario, spec)
    if layers is not None:
        yield f"--pipeline-model-parallel-layout '{_layout(layers, spec.num_nextn_predict_layers)}'"
    elif p.embedding_as_layer:
        yield from ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")
    if chunks and layers is None:
        yield f"--num-virtual-stages-per-pipeline-rank {schedule.vpp}"
    if chunks and schedule.group is not None:
        yield f"--microbatch-group-size-per-virtual-pipeline-stage {schedule.group}"
    if schedule.name == "interleaved-overlap":
        yield "--overlap-moe-expert-parallel-comm"


def _uneven(scenario: TrainScenario, spec: ModelSpec) -> tuple[int, ...] | None:
    """Layers per stage where they do not go evenly, the first ones fuller; None where they do."""
    ends = int(scenario.parallel.embedding_as_layer)
    stages = scenario.parallel.pp * (scenario.schedule.vpp or 1)
    each, more = divmod(spec.num_hidden_layers + 2 * ends, stages)
    counts = [each + (stage < more) for stage in range(stages)]
    counts[0], counts[-1] = counts[0] - ends, counts[-1] - ends
    return tuple(counts) if more else None


def _layout(layers: tuple[int, ...], mtp: int) -> str:
    stages = [{0: "", 1: "t"}.get(count, f"t*{count}") for count in layers]
    return "E" + "|".join(stages) + (f",m*{mtp}" if mtp > 1 else ",m" * mtp) + "L"


def _batch(scenario: TrainScenario, spec: ModelSpec) -> Iterator[str]:
    batch = scenario.batch
    yield f"--seq-length {batch.seq_len}"
    if not (spec.position_embeddings or spec.max_position_embeddings):
        yield f"--max-position-embeddings {batch.seq_len}"
    yield f"--micro-batch-size {batch.micro}"
    yield f"--global-batch-size {batch.global_}"


def _precision(scenario: TrainScenario) -> Iterator[str]:
    precision = scenario.precision
    yield from _COMPUTE[precision.compute]
    if precision.compute == "fp16" and precision.gradients == "fp32":
        yield "--accumulate-allreduce-grads-in-fp32"
    elif precision.compute not in ("fp16", "fp32") and precision.gradients == "bf16":
        yield "--grad-reduce-in-bf16"
    if precision.weights is not None:
        yield "--fp8-param-gather"
    if precision.moments != "fp32" and scenario.parallel.zero:
        yield "--use-precision-aware-optimizer"
        yield f"--exp-avg-dtype {precision.moments}"
        yield f"--exp-avg-sq-dtype {precision.moments}"


def _recomputed(scenario: TrainScenario, spec: ModelSpec) -> list[str]:
    """The modules that are recomputed, as Megatron-LM names those that it can of this model."""
    names = {module: name for name, module in MODULES.items()}
    modules = scenario.recompute.modules if scenario.recompute.mode == "selective" else ()
    return [names[module] for module in modules if spec.moe is not None or names[module] not in OF_EXPERTS]


def _memory(scenario: TrainScenario, spec: ModelSpec) -> Iterator[str]:
    recompute, offload = scenario.recompute, scenario.offload
    if recompute.mode == "full":
        yield "--recompute-granularity full"
        yield f"--recompute-method {'block' if recompute.layers else 'uniform'}"
        yield f"--recompute-num-layers {recompute.layers or 1}"
    elif named := _recomputed(scenario, spec):
        yield "--recompute-granularity selective"
        yield f"--recompute-modules {' '.join(named)}"
    if offload.optimizer:
        yield "--optimizer-cpu-offload"
    if layers := round(offload.activations * spec.num_hidden_layers):
        yield f"--cpu-offloading-num-layers {layers}"
    if isinstance(scenario.bucket, int):
        yield f"--ddp-bucket-size {scenario.bucket}"


def _overlap(scenario: TrainScenario) -> Iterator[str]:
    overlap, p = scenario.overlap, scenario.parallel
    if overlap.dp:
        yield "--overlap-grad-reduce"
    if overlap.params and overlap.dp and p.zero in (1, 2):
        yield "--overlap-param-gather"
    if overlap.tp and p.tp > 1 and p.sequence_parallel:
        yield "--tp-comm-overlap"
    if p.pp > 1 and scenario.schedule.name != "1f1b" and not overlap.pp:
        yield "--no-overlap-p2p-communication"
    if overlap.wgrad:
        yield "--delay-wgrad-compute"


def _experts(scenario: TrainScenario, spec: ModelSpec, gpus_per_node: int) -> Iterator[str]:
    experts = scenario.experts
    if spec.moe is None:
        return
    if experts.capacity is not None:
        yield f"--moe-expert-capacity-factor {experts.capacity:g}"
    if experts.dispatcher == "alltoall":
        yield "--moe-token-dispatcher-type alltoall"
        return
    yield from ("--moe-token-dispatcher-type flex", "--moe-enable-deepep")
    if experts.nodes_per_token is not None:
        yield f"--moe-router-num-groups {_expert_nodes(scenario, gpus_per_node)}"
        yield f"--moe-router-group-topk {experts.nodes_per_token}"


def _expert_nodes(scenario: TrainScenario, gpus_per_node: int) -> int:
    p = scenario.parallel
    return -(-p.ep * (p.etp or p.tp) // gpus_per_node)


def _unsaid(scenario: TrainScenario, spec: ModelSpec) -> Iterator[str]:
    """What the scenario says and no argument does, so that Megatron-LM does otherwise."""
    p, overlap, precision, offload = scenario.parallel, scenario.overlap, scenario.precision, scenario.offload
    if _overlaps_plain_sends(scenario) and "pp" in overlap.model_fields_set:
        yield "overlap.pp = true: Megatron-LM overlaps sends of interleaved pipelines only"
    if _gathers_alone(scenario) and "params" in overlap.model_fields_set:
        yield "overlap.params = true: needs overlap.dp = true"
    if p.shard_embedding:
        yield "parallel.shard_embedding = true: data-parallel ranks have copies"
    if overlap.fusion is not None:
        yield "overlap.fusion: buckets of gradients wait for no tick"
    if scenario.bucket == "tensor":
        yield "bucket = 'tensor': gradients travel in buckets of elements"
    if scenario.recompute.mode == "selective" and "activation" in scenario.recompute.modules and spec.moe is None:
        yield "recompute.modules activation: moe_act is of experts, and this model has none"
    if p.zero == 3 and not p.reshard:
        yield "parallel.reshard = false: weights are dropped after the forward"
    if p.zero == 3 and p.prefetch != 1:
        yield f"parallel.prefetch = {p.prefetch}: how far ahead weights are gathered"
    if p.zero == 3 and p.prefetch_backward not in (None, p.prefetch):
        yield f"parallel.prefetch_backward = {p.prefetch_backward}: how far ahead weights are gathered"
    if scenario.recompute.early_stop:
        yield "recompute.early_stop = true: checkpoints are reentrant, and run whole layers"
    if p.zero >= 2 and not p.sync_each_microbatch:
        yield "parallel.sync_each_microbatch = false: gradients are reduced each micro-batch"
    if precision.reduce not in (None, precision.gradients):
        yield f"precision.reduce = '{precision.reduce}': gradients travel as they are kept"
    if precision.compute == "fp32" and precision.gradients == "bf16":
        yield "precision.gradients = 'bf16': gradients of FP32 models are FP32"
    if not precision.master:
        yield "precision.master = false: the optimizer keeps weights in FP32"
    if precision.dispatch != "bf16":
        yield f"precision.dispatch = '{precision.dispatch}': in which type tokens travel is the dispatcher's"
    for module, stored in precision.activations.model_dump(exclude_none=True).items():
        yield f"precision.activations.{module} = '{stored}': inputs are kept as the software has it"
    if precision.moments != "fp32" and not p.zero:
        yield f"precision.moments = '{precision.moments}': needs parallel.zero = 1"
    if (share := offload.activations * spec.num_hidden_layers) != round(share):
        yield f"offload.activations = {offload.activations:g}: whole layers are offloaded"


def _undecided(scenario: TrainScenario) -> Iterator[str]:
    """What is the installation's or the data's, and what a silent scenario leaves to Megatron-LM."""
    overlap = scenario.overlap
    if _overlaps_plain_sends(scenario) and "pp" not in overlap.model_fields_set:
        yield "overlap.pp, on which the scenario is silent: sends of interleaved pipelines alone are overlapped"
    if _gathers_alone(scenario) and "params" not in overlap.model_fields_set:
        yield "overlap.params, on which the scenario is silent: it needs overlap.dp = true"
    if scenario.loss == "passes":
        yield "loss = 'passes': leave out --cross-entropy-loss-fusion"
    if scenario.attention == "flash-2":
        yield "attention = 'flash-2': which kernels run is the installation's"
    if scenario.attention == "unfused":
        yield "attention = 'unfused': --attention-backend and dropout of scores are not written"
    if scenario.memory.gathered or scenario.memory.gate or scenario.memory.gradients or scenario.memory.buckets:
        yield "memory: what is kept is the software's"
    if overlap.tp_exposed is not None:
        yield f"overlap.tp_exposed = {overlap.tp_exposed:g}: how much of it is exposed is measured, not set"
    if "slots" in scenario.offload.model_fields_set:
        yield f"offload.slots = {scenario.offload.slots}: how much is staged is the software's"
    if scenario.experts.routing != "balanced":
        yield f"experts.routing = '{scenario.experts.routing}': the router does"


def _overlaps_plain_sends(scenario: TrainScenario) -> bool:
    return scenario.parallel.pp > 1 and scenario.schedule.name == "1f1b" and scenario.overlap.pp


def _gathers_alone(scenario: TrainScenario) -> bool:
    """Whether weights would be gathered beside the forward, but gradients not reduced beside the backward."""
    overlap = scenario.overlap
    return scenario.parallel.zero in (1, 2) and overlap.params and not overlap.dp
