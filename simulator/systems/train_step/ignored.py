"""Keys of a training step that say nothing of its model or on its machines: each is refused, with what it goes with.

What goes with other keys, whatever the model, is in `needs`. A key that the file does not give is never a fault.
"""

from collections.abc import Iterator

from ...base.errors import Fault, fault
from ...hardware import Cluster
from ...models import ModelSpec
from ...program.parallel import ParallelDims
from .routing import expert_islands
from .scenario import Experts, TrainScenario
from .unfit import Misfit, has_dense_layers, unmeasured


def ignored(scenario: TrainScenario, spec: ModelSpec, where: str) -> Iterator[str]:
    """The faults that the scenario and its model tell, one line each."""
    if spec.moe is None and scenario.experts != Experts():
        why = f"{spec.name} has none"
        yield Fault(f"{where}: experts: {why}", "experts", scenario.experts, why)
    if spec.moe is None and scenario.parallel.etp is not None:
        yield fault(where, "parallel.etp", scenario.parallel.etp, f"goes with experts: {spec.name} has none")
    if scenario.recompute.mode == "selective":
        reasons = {module: no_such_part(spec, module) for module in scenario.recompute.modules}
        yield from (fault(where, "recompute.modules", module, why) for module, why in reasons.items() if why)
    yield from (fault(where, *misfit) for misfit in _kept_inputs(scenario, spec))


def ignored_on(
    machines: Cluster, scenario: TrainScenario, spec: ModelSpec, dims: ParallelDims, where: str
) -> Iterator[str]:
    """Those that need machines which the axes fit, and machines that nobody has measured."""
    yield from (fault(where, *misfit) for misfit in unmeasured(machines, scenario))
    if scenario.parallel.shard_embedding and dims.size("dp_cp") == 1:
        yield fault(where, "parallel.shard_embedding", True, "goes with dp x cp above 1")
    most = scenario.experts.nodes_per_token
    if spec.moe is not None and most is not None and most > (nodes := expert_islands(dims, machines)):
        yield fault(where, "experts.nodes_per_token", most, f"at most {nodes}, over which ep = {dims.ep} lies")


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


def _kept_inputs(scenario: TrainScenario, spec: ModelSpec) -> Iterator[Misfit]:
    """Inputs of modules that the model does not have."""
    for module, stored in scenario.precision.activations.model_dump(exclude_none=True).items():
        key = f"precision.activations.{module}"
        if module in ("expert_fc1", "moe_act") and spec.moe is None:
            yield Misfit(key, stored, f"{spec.name} has no experts")
        if module == "mlp_act" and not has_dense_layers(spec):
            yield Misfit(key, stored, f"{spec.name} has no layers without experts")
