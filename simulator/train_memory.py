"""Memory of a training step, per pipeline rank: what is there all the time, and activations as they come and go."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .lowering import kept_by_part
from .lowering.held import Holdings
from .scenario import ResolvedTrain
from .timeline import Timeline
from .timeline.memory import lifetimes
from .workload.states import Held, all_held, state_bytes

if TYPE_CHECKING:
    import pandas as pd

Sizes = Mapping[str, float]


@dataclass(frozen=True)
class StageMemory:
    """What the devices of one pipeline rank hold when they hold most: by owner, largest first.

    `at_s` is when, `microbatch` the latest forward that had begun by then (-1 if none).
    """

    pipeline_rank: int
    peak_bytes: float
    at_s: float
    microbatch: int
    held: tuple[tuple[str, float], ...]


def stage_memory(resolved: ResolvedTrain, timeline: Timeline) -> tuple[StageMemory, ...]:
    """The peak of every pipeline rank."""
    buffers = lifetimes(timeline)
    return tuple(_peak(resolved, timeline, buffers, rank) for rank in range(resolved.grid.ranks))


def static_bytes(resolved: ResolvedTrain, rank: int) -> dict[str, float]:
    """What is there from the first to the last op: states, buffers of exchanges, the runtime's own."""
    plan, given = resolved.plan, resolved.scenario.precision
    holdings = Holdings(plan, rank)
    held = all_held(holdings.stage(plan.stages[stage]) for stage in plan.grid.stages_of(rank))
    learned = all_held(
        holdings.trained(number, unit)
        for stage in plan.grid.stages_of(rank)
        for number, unit in holdings.units(plan.stages[stage])
    )
    groups = {share.lane: len(share.group) for share in holdings.shares(Held(1, 1))}
    if plan.lora:
        held = all_held([held, learned])
    states = state_bytes(
        held, zero=plan.sharding.level, shard_dense=groups.get("dp", 1), shard_expert=groups.get("edp", 1),
        compute=given.compute, gradients=given.gradients, moments=given.moments, master=given.master,
        trained=learned if plan.lora else None,
    )  # fmt: skip
    away = plan.offload_optimizer
    value = resolved.profile.value
    found = {
        "weights": float(states.weights),
        "gradients": float(states.gradients),
        "master weights": 0.0 if away else float(states.master),
        "optimizer moments": 0.0 if away else float(states.moments),
        "gathered weights": _gathered(resolved, holdings, rank),
        "exchange buffers": _exchanged(resolved, rank),
        "largest layer at work": _working(resolved, rank),
        "context and libraries": value("memory.context_bytes"),
    }
    return {name: size for name, size in found.items() if size}


def _gathered(resolved: ResolvedTrain, holdings: Holdings, rank: int) -> float:
    """ZeRO-3: the units whose weights are there at once."""
    plan = resolved.plan
    if plan.sharding.level < 3:
        return 0.0
    units = [sum(held) for stage in plan.grid.stages_of(rank) for _, held in holdings.units(plan.stages[stage])]
    at_once = sorted(units, reverse=True)[: 2 + plan.sharding.prefetch] if plan.sharding.reshard else units
    return sum(at_once) * plan.types.weights


def _exchanged(resolved: ResolvedTrain, rank: int) -> float:
    """What is sent or gathered beside: two hidden states per pipeline peer, gathered tensor-parallel inputs."""
    plan = resolved.plan
    shard, hidden = plan.shard, plan.spec.hidden_size
    peers = 2 * (plan.grid.ranks > 1)
    sends = 2 * peers * shard.own_tokens * hidden * shard.wide
    gathered = (shard.tp > 1 and shard.sequence_parallel) * shard.tokens * hidden * shard.wide
    moe = plan.spec.moe
    routed = 2 * shard.own_tokens * moe.num_experts_per_tok * hidden * shard.wide * shard.load if moe else 0.0
    return float(sends + gathered + routed * (shard.ep > 1))


def _working(resolved: ResolvedTrain, rank: int) -> float:
    """What the backward of one layer makes again, and gradients of the largest activation."""
    plan = resolved.plan
    layers = [number for stage in plan.grid.stages_of(rank) for number in plan.stages[stage].layers]
    if not layers or not (plan.again.full or plan.again.parts):
        return 0.0
    whole = max(sum(kept.bytes for kernel in plan.layer(number).all for kept in kernel.keeps) for number in layers)
    kept_share = sum(kept_by_part(plan, plan.grid.stages_of(rank)[0]).values()) / max(len(layers), 1)
    return max(float(whole) - kept_share, 0.0)


def over_time(resolved: ResolvedTrain, timeline: Timeline, rank: int) -> "pd.DataFrame":
    """Bytes of a pipeline rank as a step function, by owner: time_s, then a column each; the last is `total`."""
    import pandas as pd

    times, parts = _activations(lifetimes(timeline), resolved, rank)
    frame = pd.DataFrame(
        {
            "time_s": times,
            **{name: np.full(len(times), size) for name, size in static_bytes(resolved, rank).items()},
            **parts,
        }
    )
    owners = frame.columns.drop("time_s")
    frame["fragmentation"] = frame[owners].sum(axis=1) * resolved.profile.value("memory.fragmentation")
    frame["total"] = frame[owners].sum(axis=1) + frame["fragmentation"]
    return frame


def _activations(
    buffers: "pd.DataFrame", resolved: ResolvedTrain, rank: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Times, and the bytes of each part of activations from then on."""
    own = buffers[(buffers.place == rank) & (buffers.memory == "device")]
    times = np.unique(np.concatenate([[0.0], own.start_s.to_numpy(), own.end_s.to_numpy()]))
    found: dict[str, np.ndarray] = {}
    for name, of_stage in own.groupby("name", sort=True):
        stage = int(str(name).rsplit(" ", 1)[1])
        change = np.zeros(len(times))
        np.add.at(change, np.searchsorted(times, of_stage.start_s), of_stage.bytes)
        np.add.at(change, np.searchsorted(times, of_stage.end_s), -of_stage.bytes)
        by_part = kept_by_part(resolved.plan, stage)
        total = sum(by_part.values()) or 1
        for part, size in by_part.items():
            key = f"activations: {part}"
            found[key] = found.get(key, np.zeros(len(times))) + np.cumsum(change) * (size / total)
    return times, found


def _peak(resolved: ResolvedTrain, timeline: Timeline, buffers: "pd.DataFrame", rank: int) -> StageMemory:
    times, parts = _activations(buffers, resolved, rank)
    static = static_bytes(resolved, rank)
    total = np.sum(list(parts.values()), axis=0) if parts else np.zeros(1)
    at = int(total.argmax())
    held = {**static, **{name: float(values[at]) for name, values in parts.items() if values[at] > 0}}
    held["fragmentation"] = sum(held.values()) * resolved.profile.value("memory.fragmentation")
    ordered = tuple(sorted(held.items(), key=lambda one: -one[1]))
    return StageMemory(rank, sum(held.values()), float(times[at]), _latest(timeline, rank, float(times[at])), ordered)


def _latest(timeline: Timeline, rank: int, at_s: float) -> int:
    """The micro-batch of the forward that began last at a pipeline rank, by then."""
    program = timeline.program
    forward = program.only_at([rank]) & (program.tags["action"] == 0) & (timeline.start_s <= at_s)
    ops = np.flatnonzero(forward)
    return int(program.tags["microbatch"][ops[timeline.start_s[ops].argmax()]]) if len(ops) else -1
