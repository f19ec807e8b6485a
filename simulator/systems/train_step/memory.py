"""Memory of a training step, per pipeline rank: static sizes by formula, and the peak with `activations` over time."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ...hardware import Cluster, Device
from ...models.blocks import Layer, head
from ...models.kernels import PACKED, Kernel, weights_of
from ...models.states import Count, StateBytes, activation_bytes, copy_bytes, state_bytes, sum_counts
from ...program import Place
from ...timeline import Timeline
from ...uncertainty import fit_probability, memory_interval, shipped_memory_errors
from .activations import ACTIVATIONS, Activations
from .lower import Again, TrainPlan
from .lower.held import Holdings, Unit
from .lower.summa import largest_panels
from .resolve import ResolvedTrain

if TYPE_CHECKING:
    import pandas as pd


_PARTS = (
    "embedding", "layernorm", "qkv", "mla_up_proj", "core_attn", "proj", "residual", "router", "moe", "shared_experts",
    "mlp", "activation", "lora", "head", "scan",
)  # fmt: skip
RESIDUALS = "gradient residuals"
OWNERS = (
    "weights", "quantized copies", "gradients", RESIDUALS, "master weights", "optimizer moments", "gathered weights",
    "gradients on their way", "exchange buffers", "layer at work", "context and libraries", "fragmentation",
    *(f"{ACTIVATIONS}{part}" for part in _PARTS),
)  # fmt: skip
"""The owners of memory on a rank, as reports name them."""


@dataclass(frozen=True)
class RankMemory:
    """The peak memory of the devices of one pipeline rank.

    `at_s` is the time of the peak, and `held` its bytes by owner, largest first. `microbatch` is the latest forward
    that had begun when the device was first full, or at the peak if it never was; -1 if none had begun. `place` is the
    rank's place in the Program, `device` its device with the least memory, and `device_bytes` that memory.
    """

    pipeline_rank: int
    peak_bytes: float
    at_s: float
    microbatch: int
    held: tuple[tuple[str, float], ...]
    place: int
    device: str
    device_bytes: int

    def hold_more(self, owner: str, size_bytes: float) -> "RankMemory":
        """The memory with an owner that holds so many bytes all the time."""
        held = sorted([*self.held, (owner, size_bytes)], key=lambda part: -part[1])
        return replace(self, peak_bytes=self.peak_bytes + size_bytes, held=tuple(held))

    @property
    def fits(self) -> bool:
        """Whether the peak fits the device's memory."""
        return self.peak_bytes <= self.device_bytes

    @property
    def activation_bytes(self) -> float:
        """The bytes of activations at the peak."""
        return sum(size for owner, size in self.held if owner.startswith(ACTIVATIONS))

    @property
    def deviation(self) -> float:
        """The standard deviation of ln(bytes) of the peak."""
        return shipped_memory_errors().deviation(self.activation_bytes / self.peak_bytes)

    @property
    def interval_bytes(self) -> tuple[float, float]:
        """The 90 % interval of the peak."""
        return memory_interval(self.peak_bytes, self.deviation)

    @property
    def fits_probability(self) -> float:
        """The probability that the peak fits the device's memory."""
        return fit_probability(self.peak_bytes, self.device_bytes, self.deviation)


def rank_memory(resolved: ResolvedTrain, timeline: Timeline) -> tuple[RankMemory, ...]:
    """The peak of every place: all pipeline ranks, for each class of replicas in turn."""
    activations = Activations(resolved, timeline)
    return tuple(_peak(activations, place) for place in range(len(timeline.program.places)))


def static_bytes(resolved: ResolvedTrain, rank: int) -> Mapping[str, float]:
    """Bytes by owner that a pipeline rank holds beside activations: states, exchange buffers, the CUDA context.

    They are held during the whole step; where `frees_gradients`, until the backward has freed the activations.
    """
    plan, said, context = resolved.plan, resolved.scenario, resolved.profile.value("memory.context_bytes")
    key = (plan, said.precision, said.memory, context, frees_gradients(resolved), _takes_any_layout(resolved))
    every = resolved.memo.get(
        "static bytes", key, lambda: _of_all_ranks(resolved, context), lambda _: plan.grid.cells
    )  # fmt: skip
    return every[rank]


def frees_gradients(resolved: ResolvedTrain) -> bool:
    """Whether gradients take no memory while activations are at their peak: one backward makes them all."""
    return resolved.scenario.memory.fresh and max(resolved.shares) == 1


def bytes_after_backward(resolved: ResolvedTrain, rank: int) -> Mapping[str, float]:
    """Bytes by owner when the backward has freed the activations; where it makes the gradients, these are there now."""
    plan, found = resolved.plan, static_bytes(resolved, rank)
    if not frees_gradients(resolved):
        return found
    gradients = float(states_of(resolved, Holdings(plan, rank)).gradients)
    return {**found, "gradients": gradients, "layer at work": _layer_at_work(plan, rank)}


def _of_all_ranks(resolved: ResolvedTrain, context: float) -> list[Mapping[str, float]]:
    """`static_bytes` of every pipeline rank; computed once for ranks that hold the same, as most in the middle do."""
    plan, found = resolved.plan, dict[object, Mapping[str, float]]()
    alike = [_alike(plan, rank) for rank in range(plan.grid.ranks)]
    for rank, key in enumerate(alike):
        if key not in found:
            found[key] = _static_bytes(resolved, rank, context)
    return [found[key] for key in alike]


def _alike(plan: TrainPlan, rank: int) -> object:
    """A key of everything that a rank's static memory depends on: for each stage the kinds of its layers, and its ends.

    Layers of one kind share their kernels and their parameter counts. MTP layers are compared by number.
    """
    stages = [plan.stages[stage] for stage in plan.grid.stages_of(rank)]
    return tuple(
        (tuple((id(plan.layer(n)), plan.parameters_of(n), plan.again.whole(i)) for i, n in enumerate(stage.layers)),
         stage.embedding, stage.head, stage.mtp)
        for stage in stages
    )  # fmt: skip


def _static_bytes(resolved: ResolvedTrain, rank: int, context: float) -> Mapping[str, float]:
    plan = resolved.plan
    holdings = Holdings(plan, rank)
    states = states_of(resolved, holdings)
    away = plan.offload_optimizer
    found = {
        "weights": float(states.weights),
        "quantized copies": _quantized(resolved, holdings),
        "gradients": 0.0 if frees_gradients(resolved) else float(states.gradients),
        "master weights": 0.0 if away else float(states.master),
        "optimizer moments": 0.0 if away else float(states.moments),
        "gathered weights": _gathered(plan, holdings),
        "gradients on their way": _reduced(plan, holdings) + _beside(resolved, holdings),
        "exchange buffers": _exchanged(plan, rank),
        "layer at work": _working(plan, rank, resolved.scenario.memory.logits),
        "context and libraries": context,
    }
    return {name: size for name, size in found.items() if size}


def states_of(resolved: ResolvedTrain, holdings: Holdings) -> StateBytes:
    """Bytes of weights, gradients and optimizer states. Gradients not reduced each micro-batch stay unsharded."""
    plan, given = resolved.plan, resolved.scenario.precision
    held = sum_counts(unit.held for unit in holdings.own)
    learned = sum_counts(unit.learned for unit in holdings.own)
    groups = {share.lane: len(share.group) for share in holdings.shares(Count(1, 1))}
    states = state_bytes(
        sum_counts([held, learned]) if plan.lora else held,
        zero=plan.sharding.level, shard_dense=groups.get("dp", 1), shard_expert=groups.get("edp", 1),
        compute=given.compute, gradients=given.gradients, moments=given.moments, master=given.master,
        trained=learned if plan.freezes else None,
    )  # fmt: skip
    packed = sum_counts(plan.packed_of(unit.layer) for unit in holdings.own)
    if any(packed):
        in_16_bits = state_bytes(
            packed, zero=plan.sharding.level, shard_dense=groups.get("dp", 1), shard_expert=groups.get("edp", 1)
        ).weights
        saved = round(in_16_bits * (1 - plan.types.base / plan.types.weights))
        states = replace(states, weights=states.weights - saved)
    if plan.types.layers < plan.types.weights:
        states = replace(states, weights=states.weights - round(_in_layers(holdings) * plan.types.weights))
    if plan.sharding.each_microbatch:
        return states
    # Of several passes through a pipeline, the later ones add to the shards of the earlier ones.
    shards = states.gradients if plan.grid.passes > 1 else 0
    return replace(states, gradients=round(sum(learned) * plan.types.gradients) + shards)


def _in_layers(holdings: Holdings) -> int:
    """The number of parameters of layers, without embedding and head."""
    return sum(sum(holdings.layer(n)) for stage in holdings.stages for n in (*stage.layers, *stage.mtp))


def _quantized(resolved: ResolvedTrain, holdings: Holdings) -> float:
    """Bytes of the 8-bit or 4-bit copies of layer weights that GEMMs read."""
    compute, zero = resolved.scenario.precision.compute, resolved.plan.sharding.level
    return copy_bytes(compute, zero, _takes_any_layout(resolved)) * _in_layers(holdings)


def _takes_any_layout(resolved: ResolvedTrain) -> bool:
    """Whether GEMMs in 8 bits read operands along rows or columns, as on all devices that also compute in 4 bits."""
    cluster = resolved.cluster
    nodes = cluster.nodes if cluster.is_mixed else cluster.nodes[:1]
    return all("fp4" in node.device.peak_flop_per_s for node in nodes)


def _is_shared(holdings: Holdings) -> bool:
    """Whether several ranks hold a part each of what this one computes with."""
    return any(len(share.group) > 1 for share in holdings.shares(Count(1, 1)))


def _gathered(plan: TrainPlan, holdings: Holdings) -> float:
    """ZeRO-3: bytes of the weights that are gathered at the same time: the current unit and the prefetched ones."""
    if plan.sharding.level < 3 or not _is_shared(holdings):
        return 0.0
    units = sorted((_gathered_of(holdings, unit) for unit in holdings.own), reverse=True)
    return sum(units[: 1 + plan.sharding.most_ahead] if plan.sharding.reshard else units)


def _gathered_of(holdings: Holdings, unit: Unit) -> float:
    """Bytes of a unit's weights as they are gathered; experts that no other rank holds are there already."""
    shares = [share for share in holdings.shares(unit.held) if len(share.group) > 1]
    return sum(holdings.gathered_bytes(unit.layer, share.parameters, share.lane) for share in shares)


def _reduced(plan: TrainPlan, holdings: Holdings) -> float:
    """ZeRO-2 and 3: bytes of the gradients of one unit as it is computed, and of one that is being reduced."""
    if plan.sharding.level < 2 or not plan.sharding.each_microbatch or not _is_shared(holdings):
        return 0.0
    largest = max(sum(share.parameters for share in holdings.shares(unit.learned)) for unit in holdings.own)
    return largest * (plan.types.weights + plan.types.reduced)


def _beside(resolved: ResolvedTrain, holdings: Holdings) -> float:
    """Bytes of gradients besides those that are kept: fresh ones of a backward, copies in flight, buckets of replicas.

    All of them count at once. They cannot reuse the memory of freed activations: these have other sizes, and a caching
    allocator does not merge its blocks.
    """
    plan, memory = resolved.plan, resolved.scenario.memory
    replicas = plan.sharding.level == 0 and plan.dims.size("dp_cp") > 1
    each = memory.gradients + plan.types.weights * (memory.buckets and replicas)
    return sum(sum(unit.learned) for unit in holdings.own) * each if each else 0.0


def _exchanged(plan: TrainPlan, rank: int) -> float:
    """Bytes of exchange buffers: two hidden states per pipeline peer, gathered tensor-parallel inputs, routed tokens.

    With 2-D tensor parallelism also two panels of each operand of the largest GEMM; with fused gradients their buffer.
    """
    shard = plan.shard
    stages = [plan.stages[stage] for stage in plan.grid.stages_of(rank)]
    views = [(plan.spec, shard), *(plan.view(stage.layers[0]) for stage in stages if stage.layers)]
    peers = 2 * (plan.grid.ranks > 1)
    sends = 2 * peers * max(of.own_tokens * spec.hidden_size * spec.streams for spec, of in views) * shard.wide
    joined = max(of.tokens * spec.hidden_size for spec, of in views)
    gathered = (shard.tp > 1 and shard.sequence_parallel) * joined * shard.wide
    moe = plan.spec.moe
    each = shard.dispatch_bytes + shard.wide
    routed = shard.own_tokens * moe.num_experts_per_tok * plan.spec.expert_hidden * each * shard.load if moe else 0.0
    panels = largest_panels(plan, rank) if shard.side > 1 else 0.0
    fused = plan.sharding.fused * plan.sharding.bucket * plan.types.reduced
    return float(sends + gathered + routed * (shard.ep > 1) + panels + fused)


def _working(plan: TrainPlan, rank: int, logit_bytes: float | None) -> float:
    """Working memory in bytes: in the backward of the largest layer, its recomputed activations and largest gradient.

    Or the logits of a head, if they are larger. As in Megatron, the loss keeps its softmax in fp32 as an activation and
    computes the gradient in its place. The logits in the computing type come on top, and a copy in fp32 if the loss is
    computed in separate passes; or as many bytes as the scenario says.
    """
    own = [plan.stages[stage] for stage in plan.grid.stages_of(rank)]
    logits = _logits(plan, logit_bytes) if any(stage.head or stage.mtp for stage in own) else 0.0
    return max(logits, _layer_at_work(plan, rank))


def _layer_at_work(plan: TrainPlan, rank: int) -> float:
    """Bytes of the largest layer at work; the forward of a pair is also a layer ahead of what the backward frees."""
    own = [plan.stages[stage] for stage in plan.grid.stages_of(rank)]
    numbered = [(n, plan.again.whole(position)) for stage in own for position, n in enumerate(stage.layers)]
    numbered += [(n, plan.again.whole_mtp) for stage in own for n in stage.mtp]
    layers = {(id(plan.layer(number)), whole): plan.layer(number) for number, whole in numbered}
    ahead = (_layer_bytes(layer, plan.again, whole) for (_, whole), layer in layers.items() if plan.grid.pairs)
    at_work = (_at_work(layer, plan.again, whole) for (_, whole), layer in layers.items())
    return max(at_work, default=0.0) + max(ahead, default=0)


def _logits(plan: TrainPlan, logit_bytes: float | None) -> float:
    """Bytes of a rank's logits of one micro-batch beside their softmax, given those of one logit with it."""
    rows, words, _ = next(kernel.shape for kernel in head(plan.spec, plan.shard) if kernel.kind == "gemm")
    beside: float = plan.shard.wide + 4 * plan.shard.loss_passes
    if logit_bytes is not None:
        beside = logit_bytes - plan.shard.softmax_bytes
    return float(rows * words * beside)


def _layer_bytes(layer: Layer, again: Again, whole: bool) -> int:
    return activation_bytes(layer, "full" if whole else "selective", again.parts)


def _at_work(layer: Layer, again: Again, whole: bool) -> float:
    dropped = activation_bytes(layer) - _layer_bytes(layer, again, whole)
    largest = max((kept.bytes for kernel in layer.all for kept in kernel.keeps), default=0)
    return float(dropped + largest + max(map(_unpacked_bytes, layer.all), default=0))


def _unpacked_bytes(kernel: Kernel) -> int:
    """Bytes of a packed matrix in 16 bits, as its GEMM reads it; experts unpack one matrix after another."""
    if kernel.dtype not in PACKED:
        return 0
    if kernel.kind == "experts":
        _, hidden, inter, *_, etp, _, _ = kernel.shape
        return 2 * hidden * inter // etp
    return 2 * weights_of(kernel.kind, kernel.shape)


def memory_table(resolved: ResolvedTrain, timeline: Timeline, place: int) -> "pd.DataFrame":
    """Memory of a place over time: a table with `time_s`, a column of bytes for each owner, and `total`.

    Each row holds from its time until that of the next row.
    """
    import pandas as pd

    activations, rank = Activations(resolved, timeline), place % resolved.grid.ranks
    times, held = activations.bytes_over_time(place)
    owners = {name: np.full(len(times), size) for name, size in static_bytes(resolved, rank).items()}
    for name, size in bytes_after_backward(resolved, rank).items():
        owners.setdefault(name, np.zeros(len(times)))[-1] = size
    owners |= activations.sum_parts(held)
    allocated = np.sum(list(owners.values()), axis=0)
    owners["fragmentation"] = allocated * resolved.profile.value("memory.fragmentation")
    return pd.DataFrame({"time_s": times, **owners, "total": allocated + owners["fragmentation"]})


def _peak(activations: Activations, place: int) -> RankMemory:
    resolved = activations.resolved
    rank, more = place % resolved.grid.ranks, 1 + resolved.profile.value("memory.fragmentation")
    times, by_name = activations.bytes_over_time(place)
    static, behind = static_bytes(resolved, rank), bytes_after_backward(resolved, rank)
    total = sum(by_name.values(), np.full(len(times), sum(static.values())))
    total[-1:] += sum(behind.values()) - sum(static.values())
    at = int(total.argmax())
    then = activations.sum_parts({name: sizes[at : at + 1] for name, sizes in by_name.items()})
    held = {**(behind if at == len(times) - 1 else static)}
    held |= {name: float(size[0]) for name, size in then.items() if size[0] > 0}
    held["fragmentation"] = sum(held.values()) * (more - 1)
    ordered = tuple(sorted(held.items(), key=lambda one: -one[1]))
    device = smallest_device(resolved.cluster, activations.timeline.program.places[place])
    full = int(np.argmax(total * more > device.memory_bytes)) if total[at] * more > device.memory_bytes else at
    latest = activations.latest(place, float(times[full]))
    return RankMemory(
        rank, sum(held.values()), float(times[at]), latest, ordered, place, device.name, int(device.memory_bytes)
    )


def smallest_device(cluster: Cluster, place: Place) -> Device:
    """The device with the least memory among the GPUs of a place."""
    ranks = place.ranks if cluster.is_mixed else place.ranks[:1]
    nodes = {id(node): node for node in (cluster.nodes[cluster.node_of(rank)] for rank in ranks)}
    return min((node.device for node in nodes.values()), key=lambda device: device.memory_bytes)
