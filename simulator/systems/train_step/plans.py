"""From a scenario of a training step to its `TrainPlan`: everything that the Program depends on."""

from typing import TYPE_CHECKING

from ...models.kernels import PACKED
from ...profile import TP_EXPOSED
from ...schedules import Grid
from .lower import Again, Sharding, TrainPlan, Types
from .replicas import Replicas, split_layers
from .routing import expert_islands, rank_share, remote_share
from .scenario import Precision

if TYPE_CHECKING:
    from .resolve import ResolvedTrain

_BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0}
_DDP_BUCKET_BYTES = 25 * 2**20  # torch's DistributedDataParallel: bytes of gradients in the type of their weights
_MEGATRON_BUCKET = (40_000_000, 1_000_000)  # Megatron-LM, in elements: minimum, and per data-parallel rank


def plan_of(resolved: "ResolvedTrain", grid: Grid, replicas: Replicas | None) -> TrainPlan:
    """The plan with this pipeline schedule, for a class of replicas (None: all are alike)."""
    scenario, spec, dims = resolved.scenario, resolved.spec, resolved.dims
    again, offload = scenario.recompute, scenario.offload
    parts = frozenset(again.modules) if again.mode == "selective" else frozenset()
    islands = expert_islands(dims, resolved.cluster)
    return TrainPlan(
        spec=resolved.padded_spec, dims=dims, grid=grid,
        stages=split_layers(scenario, spec, grid.stages, resolved.where), shard=resolved.shard,
        sharding=_sharding(resolved), types=_types(scenario.precision, resolved.shard.base),
        again=Again(parts, again.mode == "full", again.layers, again.early_stop),
        overlap_tp=scenario.overlap.tp, tp_exposed=_tp_exposed(resolved),
        overlap_pp=scenario.overlap.pp or dims.pp == 1,  # one stage sends nothing
        hold_wgrad=scenario.overlap.wgrad,
        remote_share=remote_share(scenario.experts, spec.moe, dims.ep, islands),
        rank_share=rank_share(scenario.experts, spec.moe, dims.ep, islands),
        offloaded=offload.activations, offload_slots=offload.slots, offload_optimizer=offload.optimizer,
        shard_embedding=scenario.parallel.shard_embedding, replicas=replicas, period=resolved.cluster.period,
    )  # fmt: skip


def _sharding(resolved: "ResolvedTrain") -> Sharding:
    scenario, given, overlap = resolved.scenario, resolved.scenario.parallel, resolved.scenario.overlap
    return Sharding(
        given.zero, given.prefetch, given.ahead_in_backward, given.reshard, given.sync_each_microbatch,
        _bucket(resolved), overlap.dp, overlap.params, overlap.fusion is not None,
        scenario.bucket == "tensor" and given.zero < 3,
    )  # fmt: skip


def _tp_exposed(resolved: "ResolvedTrain") -> float:
    """Share of an overlapped tensor-parallel exchange that GEMMs do not hide: the scenario's, else the stack's."""
    said = resolved.scenario.overlap.tp_exposed
    return resolved.profile.value_or(TP_EXPOSED, 1.0) if said is None else said


def _types(given: Precision, base: str) -> Types:
    weights = 4.0 if given.compute in ("fp32", "tf32") else 2.0  # 8-bit copies are made from 16 bits where they are
    return Types(
        weights=weights, reduced=_BYTES[given.reduce or given.gradients], gradients=_BYTES[given.gradients],
        moments=_BYTES[given.moments], master=4.0 if given.master and weights < 4 else 0.0,
        layers=_BYTES["fp8"] if given.weights == "fp8" else weights, base=PACKED.get(base, weights),
    )  # fmt: skip


def _bucket(resolved: "ResolvedTrain") -> int:
    """Elements of a gradient bucket. By default: Megatron's rule if states are sharded, else torch's."""
    scenario, types = resolved.scenario, _types(resolved.scenario.precision, resolved.shard.base)
    if isinstance(scenario.bucket, int):
        return scenario.bucket
    if (fusion := scenario.overlap.fusion) is not None:
        return max(int(fusion.threshold / types.reduced), 1)
    if scenario.parallel.zero == 0:
        return int(_DDP_BUCKET_BYTES / types.weights)
    least, per_rank = _MEGATRON_BUCKET
    return max(least, per_rank * resolved.dims.dp * resolved.dims.cp)
