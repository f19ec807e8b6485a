"""Keys of a training step that would say nothing beside the others: each is refused, with what it goes with.

A key that the file does not give is never a fault, whatever its default.
"""

from collections.abc import Iterator

from ..errors import fault
from ..hardware import Cluster
from ..parallel import ParallelDims
from ..workload import ModelSpec
from .routing import expert_islands
from .training import Experts, TrainScenario
from .unfit import Misfit, has_dense_layers, unmeasured

_EIGHT_BITS = ("fp8", "fp8-block", "mxfp8")


def ignored(scenario: TrainScenario, spec: ModelSpec, where: str) -> Iterator[str]:
    """The faults that the scenario and its model tell, one line each."""
    if spec.moe is None and scenario.experts != Experts():
        yield f"{where}: experts: {spec.name} has none"
    found = (
        *_parallel(scenario, spec), *_precision(scenario, spec), *_overlap(scenario), *_recompute(scenario, spec),
        *_memory(scenario),
    )  # fmt: skip
    yield from (fault(where, *misfit) for misfit in found)


def ignored_on(
    machines: Cluster, scenario: TrainScenario, spec: ModelSpec, dims: ParallelDims, where: str
) -> Iterator[str]:
    """Those that need machines which the axes fit, and machines that nobody has measured."""
    yield from (fault(where, *misfit) for misfit in unmeasured(machines, scenario))
    if scenario.parallel.shard_embedding and dims.size("dp_cp") == 1:
        yield fault(where, "parallel.shard_embedding", True, "goes with dp x cp above 1")
    given = scenario.experts
    if spec.moe is None:
        return
    if given.dispatcher == "deepep" and dims.ep == 1:
        yield fault(where, "experts.dispatcher", "deepep", "goes with parallel.ep above 1")
    if given.nodes_per_token is not None:
        nodes = expert_islands(dims, machines)
        if dims.ep == 1:
            yield fault(where, "experts.nodes_per_token", given.nodes_per_token, "goes with parallel.ep above 1")
        elif given.nodes_per_token > nodes:
            allowed = f"at most {nodes}, over which ep = {dims.ep} lies"
            yield fault(where, "experts.nodes_per_token", given.nodes_per_token, allowed)


def no_such_part(spec: ModelSpec, module: str) -> str:
    """Why a model has nothing that this module of recomputation names; nothing where it has."""
    moe = spec.moe
    missing = {
        "mla_up_proj": spec.mla is None and "latent attention",
        "moe": moe is None and "experts",
        "shared_experts": (moe is None or not moe.shared_intermediate_size) and "shared experts",
        "mlp": not has_dense_layers(spec) and "layers without experts",
    }
    return f"{spec.name} has no {what}" if (what := missing.get(module)) else ""


def _parallel(scenario: TrainScenario, spec: ModelSpec) -> Iterator[Misfit]:
    given = scenario.parallel
    if given.etp is not None and spec.moe is None:
        yield Misfit("parallel.etp", given.etp, f"goes with experts: {spec.name} has none")
    if given.cp == 1 and "cp_type" in given.model_fields_set:
        yield Misfit("parallel.cp_type", given.cp_type, "goes with cp above 1")
    if given.embedding_as_layer and given.layers is not None:
        yield Misfit("parallel.embedding_as_layer", True, "layers are given: leave one of the two out")


def _precision(scenario: TrainScenario, spec: ModelSpec) -> Iterator[Misfit]:
    given, parallel = scenario.precision, scenario.parallel
    if given.weights is not None and (given.compute not in _EIGHT_BITS or parallel.zero == 3 or scenario.lora):
        allowed = f"goes with compute = {' or '.join(_EIGHT_BITS)}, zero below 3 and no [lora]"
        yield Misfit("precision.weights", given.weights, allowed)
    if given.dispatch != "bf16" and (spec.moe is None or parallel.ep == 1):
        yield Misfit("precision.dispatch", given.dispatch, "goes with experts and ep above 1")
    for module, stored in given.activations.model_dump(exclude_none=True).items():
        key = f"precision.activations.{module}"
        if given.compute in ("fp32", "tf32"):
            yield Misfit(key, stored, f"goes with tokens in 16 bits, not with compute = {given.compute!r}")
        if module in ("expert_fc1", "moe_act") and spec.moe is None:
            yield Misfit(key, stored, f"{spec.name} has no experts")
        if module == "mlp_act" and not has_dense_layers(spec):
            yield Misfit(key, stored, f"{spec.name} has no layers without experts")


def _overlap(scenario: TrainScenario) -> Iterator[Misfit]:
    overlap, parallel = scenario.overlap, scenario.parallel
    if "params" in overlap.model_fields_set and parallel.zero not in (1, 2):
        yield Misfit("overlap.params", overlap.params, f"goes with zero = 1 or 2, not {parallel.zero}")
    if overlap.tp and not parallel.tp_2d and (parallel.tp == 1 or not parallel.sequence_parallel):
        yield Misfit("overlap.tp", True, "goes with tp above 1 and sequence_parallel = true")


def _memory(scenario: TrainScenario) -> Iterator[Misfit]:
    memory, parallel = scenario.memory, scenario.parallel
    if memory.gathered and (parallel.tp == 1 or not parallel.sequence_parallel):
        yield Misfit("memory.gathered", True, "goes with tp above 1 and sequence_parallel = true")
    if memory.buckets and parallel.zero:
        yield Misfit("memory.buckets", True, f"goes with zero = 0, not {parallel.zero}")
    if memory.gradients and parallel.zero >= 2 and parallel.sync_each_microbatch:
        yield Misfit("memory.gradients", memory.gradients, f"goes with zero = 0 or 1, not {parallel.zero}")


def _recompute(scenario: TrainScenario, spec: ModelSpec) -> Iterator[Misfit]:
    if scenario.recompute.mode == "selective":
        reasons = {module: no_such_part(spec, module) for module in scenario.recompute.modules}
        yield from (Misfit("recompute.modules", module, reason) for module, reason in reasons.items() if reason)
