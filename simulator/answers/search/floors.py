"""Lower bounds of a training step at the coarser level: what no simulation can beat, found without one.

Time. An action of a stage runs its layers in a row, and each layer is a chain of ops from its first one, which waits
for the layer before, to what the next layer waits for. So an action takes at least the sum over its layers of the
longest path through each, and at least the sum of its kernels, which share one lane. A host issues the actions of its
rank one after another.
A pipeline rank runs its actions one after another. Before its first one, a micro-batch has come through all stages
before its lowest one; where backwards are whole, its last one is a backward, behind which a gradient goes through those
stages again. Ops never run faster than they are priced: links and neighbours only slow them. Where leaf switches have
fewer uplinks than NICs, a stage's exchanges depend on where it lies: they count nothing if there is more than one, as
a stage under one leaf is faster than the first one, whose exchanges are priced for all.

Memory. What is there all the time is known by formula. A rank runs its actions in the order of the schedule, and what a
forward keeps stays from its start to the end of its backward, so the most that is held at once follows from the order.

Schedules are cut short for bounds of long steps. 1F1B repeats itself after p forwards on rank 0. Interleaved schedules
of full groups of g micro-batches repeat after each g v entries of their table: the same chunks, g micro-batches later.
So the warm-up and one such period hold what any number of periods does, and the cool-down only lets go.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...base.arrays import Floats
from ...base.memo import Memo
from ...costs import cost
from ...program import Place
from ...schedules import SCHEDULES, Action, Grid
from ...schedules.grid import BACKWARD, FORWARD, KINDS, WEIGHT
from ...schedules.interleaved import warmup
from ...systems.train_step.lower import Again, Stage, TrainPlan
from ...systems.train_step.lower.assembly import Assembly
from ...systems.train_step.lower.held import Holdings
from ...systems.train_step.lower.kept import resident_bytes
from ...systems.train_step.lower.piece import COMPUTE, HOST, Piece, Tables
from ...systems.train_step.lower.script import Fragments, Pass
from ...systems.train_step.lower.step import write_piece
from ...systems.train_step.memory import static_bytes
from ...systems.train_step.prices import profile_of_layout
from ...systems.train_step.resolve import ResolvedTrain

InFlight = tuple[tuple[tuple[int, ...], Floats], ...]  # of each rank: its stages, and counts [moments, stages]
_STATES = ("weights", "gradients", "master weights", "optimizer moments")
_PATH, _KERNELS, _HOST = range(3)
_Units = dict[Stage, dict[str, Floats]]  # of a stage with one layer or one end: seconds (path, kernels, host) by action


def floor_s(resolved: ResolvedTrain) -> float:
    """Seconds that the step takes at least."""
    grid, schedule = resolved.grid, SCHEDULES[resolved.scenario.schedule.name]
    each, split = _by_stage(resolved, "FB"), bool(grid.split)
    on_device = {kind: parts[:, [_PATH, _KERNELS]].max(axis=1) for kind, parts in each.items()}
    forward, back = on_device["F"], on_device["B"]
    behind, sums = back, each["F"] + each["B"]
    if split:
        halves = _by_stage(resolved, "IW")
        behind, sums = np.zeros_like(back), each["F"] + np.minimum(each["B"], halves["I"] + halves["W"])
        back = np.minimum(back, sum(half[:, [_PATH, _KERNELS]].max(axis=1) for half in halves.values()))
    runs, most = resolved.microbatches / schedule.copies, float(forward.sum() + behind.sum())
    for own, _ in in_flight(grid, resolved.memo):
        stages = list(own)
        # of two actions that overlap, kernels add up; paths do not
        work = sums[stages, _KERNELS].sum() if grid.pairs else (forward + back)[stages].sum()
        before = slice(0, min(stages))
        of_device = forward[before].sum() + runs * work + behind[before].sum()
        most = max(most, float(of_device), float(runs * sums[stages, _HOST].sum()))
    return most


def floor_bytes(resolved: ResolvedTrain) -> float:
    """Bytes that the pipeline rank needs which needs most, at least."""
    held = _held(resolved)
    most = max(sum(static_bytes(resolved, rank).values()) + own for rank, own in enumerate(held))
    return most * (1 + resolved.profile.value("memory.fragmentation"))


def activation_bytes(resolved: ResolvedTrain) -> float:
    """Bytes of activations that pipeline ranks hold at their own worst moments, the mean of all ranks.

    With `states_bytes`, also a mean over ranks, it is no more than the rank needs which needs most.
    """
    return float(np.mean(_held(resolved))) * (1 + resolved.profile.value("memory.fragmentation"))


def states_bytes(resolved: ResolvedTrain) -> float:
    """Bytes of weights, gradients and the optimizer's states that the rank which has most has at least: the mean.

    It does not depend on micro-batch and recomputation, nor on the schedule where that has the first and the last stage
    on the first and the last rank: the mean is of the same layers however they are dealt out. Gradients that each
    backward makes are left out: whether they are there at the peak depends on the number of micro-batches.
    """
    ranks, fresh = range(resolved.grid.ranks), resolved.scenario.memory.fresh
    names = [name for name in _STATES if name != "gradients" or not fresh]
    total = sum(static_bytes(resolved, rank).get(name, 0.0) for rank in ranks for name in names)
    mean = total / len(ranks) - len(_STATES)  # each is rounded to a byte
    return mean * (1 + resolved.profile.value("memory.fragmentation"))


def _held(resolved: ResolvedTrain) -> list[float]:
    """The most that the forwards of each rank keep at once."""
    plan = resolved.plan
    kept = np.array(plan.make_by_stage(lambda stage: resident_bytes(plan, stage)))
    return [float((counts @ kept[list(own)]).max()) for own, counts in in_flight(resolved.grid, resolved.memo)]


def _by_stage(resolved: ResolvedTrain, kinds: str) -> dict[str, Floats]:
    """Seconds of each action of these kinds of each stage, by kind: arrays [stages, (path, kernels, host)]."""
    plan = resolved.plan
    whole = _units(resolved, replace(plan.again, layers=None), kinds)
    parts = _units(resolved, Again(plan.again.parts), kinds) if plan.again.full else whole
    alike = _representatives(plan)
    of_stages: dict[object, Floats] = {}  # by what a stage is made of: [kind, (path, kernels, host)]
    made = [_parts(plan, stage, alike) for stage in plan.stages]
    for units in made:
        if units not in of_stages:
            of_stages[units] = sum(
                (np.array([(whole if again else parts)[unit][kind] for kind in kinds]) for unit, again in units),
                np.zeros((len(kinds), 3)),
            )
    return dict(zip(kinds, np.stack([of_stages[units] for units in made], axis=1), strict=True))


def _parts(plan: TrainPlan, stage: Stage, alike: Mapping[int, int]) -> tuple[tuple[Stage, bool], ...]:
    """The parts of a stage: layers and ends, each with whether it is recomputed as a whole."""
    layers = [
        (Stage((alike[id(plan.layer(number))],)), plan.again.whole(position))
        for position, number in enumerate(stage.layers)
    ]
    return *layers, *((end, bool(end.mtp) and plan.again.whole_mtp) for end in _ends(stage))


def _ends(stage: Stage) -> list[Stage]:
    embedding = [Stage((), embedding=True)] if stage.embedding else []
    return embedding + ([Stage((), head=stage.head, mtp=stage.mtp)] if stage.head or stage.mtp else [])


def _representatives(plan: TrainPlan) -> dict[int, int]:
    """The first layer of each kind, by the identity of its kernels, which equal layers share."""
    found: dict[int, int] = {}
    for number in range(plan.spec.n_layers):
        found.setdefault(id(plan.layer(number)), number)
    return found


def _units(resolved: ResolvedTrain, again: Again, kinds: str) -> _Units:
    """One layer of each kind, and the ends, by themselves; plans that differ in their schedule share them."""
    plan, given = resolved.plan, resolved.scenario
    layers = [Stage((number,)) for number in _representatives(plan).values()]
    ends = [end for stage in plan.stages for end in _ends(stage)]
    stages = (*layers, *dict.fromkeys(ends))
    row = tuple((Action(number, kind, 0),) for number in range(len(stages)) for kind in "FB")
    alone = replace(  # without what only messages between stages and the optimizer depend on
        plan, grid=Grid("alone", (row,), len(stages), 1), stages=stages, again=again, overlap_pp=True,
        offload_optimizer=False,
    )  # fmt: skip
    key = (
        repr(given.cluster),
        given.nodes,
        resolved.profile_name,
        given.stack,
        given.attention,
        resolved.choice,
        alone,
        kinds,
    )
    return resolved.memo.get("floors", key, lambda: _priced(resolved, alone, kinds))


def _priced(resolved: ResolvedTrain, alone: TrainPlan, kinds: str) -> _Units:
    """Price the units on the machines of the first stage; if machines differ, each op on the fastest one."""
    nodes = {id(node): i for i, node in reversed(list(enumerate(resolved.cluster.nodes)))}
    firsts = [(resolved.cluster.gpus_of(node)[0],) for node in nodes.values()]
    of_stage = tuple(alone.dims.table("pp")[:, 0].tolist())
    priced = [_priced_on(resolved, alone, kinds, ranks) for ranks in (firsts if len(firsts) > 1 else [of_stage])]
    return {
        stage: {kind: np.min([one[stage][kind] for one in priced], axis=0) for kind in kinds} for stage in priced[0]
    }


def _priced_on(resolved: ResolvedTrain, alone: TrainPlan, kinds: str, stage_ranks: tuple[int, ...]) -> _Units:
    tables = Tables()
    holdings, fragments = Holdings(alone, 0), Fragments()
    passes = [(number, kind) for number in range(len(alone.stages)) for kind in kinds]
    pieces = [write_piece(alone, holdings, (Pass(number, kind),), tables, fragments) for number, kind in passes]
    places = [Place(f"action {i}", stage_ranks) for i in range(len(pieces))]
    every = Assembly(tables, places, [0] * len(pieces))
    first = [every.stamp(piece, i, (-1, -1, "F")) for i, piece in enumerate(pieces)]
    # Of this layout: what the host is blocked in it, and which attention runs. No one else needs it from outside.
    profile, places = profile_of_layout(resolved), [Place("pp 0", stage_ranks)]
    costs = cost(every.program(), resolved.cluster, profile, resolved.choice, places=places, memo=resolved.memo)
    seconds = costs.uncontended_s
    alike = _stages_alike(resolved)
    found: _Units = {}
    for (number, kind), piece, at in zip(passes, pieces, first, strict=True):
        own = seconds[at : at + len(piece)]
        kernels, host = (piece.lane == tables.lanes(name) for name in (COMPUTE, HOST))
        path = _path(piece, np.where(kernels | (~host & alike), own, 0.0))  # exchanges count where stages are alike
        found.setdefault(alone.stages[number], {})[kind] = np.array([path, own[kernels].sum(), own[host].sum()])
    return found


def _path(piece: Piece, seconds: Floats) -> float:
    """The longest way from what waits for the layer before to what the next layer waits for."""
    ends: dict[int, float] = {}
    last: dict[int, int] = {}  # op of each lane
    heads, lane = set(piece.heads[0]), piece.lane.tolist()
    start, deps = piece.deps.start.tolist(), piece.deps.values.tolist()
    for op, own in enumerate(seconds.tolist()):
        waits = [*deps[start[op] : start[op + 1]], *([last[lane[op]]] if lane[op] in last else [])]
        reached = [ends[one] for one in waits if one in ends]
        if reached or op in heads:
            ends[op] = max(reached, default=0.0) + own
        last[lane[op]] = op
    return max((ends[op] for op in piece.tails[0] if op in ends), default=0.0)


def _stages_alike(resolved: ResolvedTrain) -> bool:
    """Whether groups of all stages lie on islands as those of the first do, so that its exchanges take as long.

    Under leaves with few uplinks they need not: one stage's groups may lie under one leaf, another's under two.
    """
    machines, dims = resolved.cluster, resolved.dims
    if dims.pp == 1:
        return True
    if not machines.network.is_even:
        return False
    # GPUs that reach each other without the network; all islands of one kind of node are alike
    island = sum(machines.island(gpu) == 0 for gpu in range(min(machines.n_gpus, 1024)))
    stage, nodes = dims.world_size // dims.pp, {id(node) for node in machines.nodes}
    return dims.order.endswith("pp") and len(nodes) == 1 and (stage % island == 0 or island % stage == 0)


# Schedules of as few micro-batches as show the most that a rank ever holds.


def shorten(resolved: ResolvedTrain) -> ResolvedTrain:
    """The step on a grid with fewer micro-batches, if its schedule repeats itself; `microbatches` stays.

    A UserError if the step itself is not allowed.
    """
    ranks, given = resolved.dims.pp, resolved.scenario.schedule
    if given.file is not None:
        return resolved
    each = resolved.microbatches // given.passes
    most = enough_microbatches(given.name, ranks, each, given.vpp or 1, given.group)
    if most >= resolved.microbatches:
        return resolved
    # Schedules of both numbers of micro-batches are refused for the same reasons, or neither is.
    return resolved.regrid(resolved.grid_of_pass(most))


def enough_microbatches(name: str, ranks: int, microbatches: int, chunks: int, group: int | None) -> int:
    """Micro-batches of a shorter schedule in which every rank holds as much; all of them where none is known."""
    if name == "1f1b":
        return min(ranks, microbatches)
    each = group or ranks
    if not name.startswith("interleaved") or microbatches % each:
        return microbatches
    periods = -(-warmup(0, ranks, chunks, each, 1) // (each * chunks)) + 1
    return min(periods * each, microbatches)


def in_flight(grid: Grid, memo: Memo) -> InFlight:
    """For each rank its stages, and the micro-batches that each stage holds at every distinct moment."""
    ranks = range(grid.ranks)
    return memo.get("in flight", grid, lambda: tuple(_of_rank(grid, rank) for rank in ranks), lambda _: grid.cells)


def _of_rank(grid: Grid, rank: int) -> tuple[tuple[int, ...], Floats]:
    """Counts when the forwards of a cell have begun and its backwards have not ended.

    The forward of a pair reuses the memory that the backward frees: it counts when that backward has ended.
    """
    stages, cells = grid.stages_of(rank), grid.columns[rank]
    kind, stage, microbatch = (column[..., None] for column in np.moveaxis(cells, 2, 0))
    halved = np.zeros((grid.stages, grid.microbatches), bool)
    halved[tuple(np.array(list(grid.split), np.int64).reshape(-1, 2).T)] = True
    last = np.where(halved[stage, microbatch], KINDS.index(WEIGHT), KINDS.index(BACKWARD))
    own = stage == np.array(stages)
    begun = np.cumsum((own & (kind == KINDS.index(FORWARD))).sum(axis=1), axis=0)
    ended = np.cumsum((own & (kind == last)).sum(axis=1), axis=0)
    alone = (kind[:, 1, 0] < 0)[:, None]
    before = np.concatenate([np.zeros_like(ended[:1]), ended[:-1]])
    ended = np.where(alone, before, ended)
    return stages, np.unique(begun - ended, axis=0).astype(np.float64)
