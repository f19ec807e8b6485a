"""Workers that all wait for all, after each step or after several: rounds, with checkpoints and failures among them."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import ceil, inf
from typing import TYPE_CHECKING

from ....base.errors import UserError, fault
from ..history import History
from ..training.failures import Failures, detect_s_of, effect_of, repair_s_of
from ..training.plan import TrainingPlan
from ..training.process import run_training
from .mode import Mode
from .progress import Goal, Stop, check_progress

if TYPE_CHECKING:
    from ..resolve import ResolvedRun


def _simulate(resolved: "ResolvedRun", seed: int) -> History:
    resolved.check_places()
    _check_progress(resolved)
    _check_elastic(resolved)
    return run_training(_plan(resolved, seed))


def _undisturbed(resolved: "ResolvedRun", seed: int) -> History:
    """The same run without failures and ranks that turn slow; jitter, and ranks that are slow from the start, stay."""
    plan = _plan(resolved, seed)
    steady = plan.speed.model_copy(update={"turn": ()})
    return run_training(replace(plan, failures=lambda: iter(()), speed=steady, drawn=False))


def _plan(resolved: "ResolvedRun", seed: int) -> TrainingPlan:
    said = resolved.scenario
    return TrainingPlan(
        rounds_of=lru_cache(maxsize=None)(resolved.rounds),
        crew=resolved.crew(seed),
        workers=resolved.workers,
        nodes=resolved.nodes,
        samples=resolved.samples * (resolved.workers - said.sync.backup) / resolved.workers,
        steps=resolved.counted_steps,
        enough=inf if said.run.samples is None else said.run.samples,
        wall_s=inf if said.run.wall is None else said.run.wall,
        saving=resolved.saving,
        work_s=resolved.work_s,
        failures=lambda: resolved.failures(seed),
        restart=resolved.restart,
        spares=resolved.spares,
        repair_s=0.0 if said.failures is None else said.failures.repair,
        speed=said.speed,
        input=said.input,
        elastic=said.elastic,
        pauses=[(one.every, one.time) for one in said.pause],
        batches=resolved.batch_stages,
        starts=said.run.start,
        drawn=seed == said.seed,
        seed=seed,
    )


def _check_progress(resolved: "ResolvedRun") -> None:
    """Refuse a run that fails faster than it comes back, or before it can save anything."""
    if resolved.scenario.failures is None:
        return
    goal = None if resolved.scenario.run.wall is not None else _goal(resolved)  # it ends, whatever is saved
    check_progress(
        resolved, _stops(resolved, resolved.scenario.failures), f"on {resolved.nodes:,} nodes", many=1, goal=goal
    )


def _goal(resolved: "ResolvedRun") -> Goal:
    """The run's work, and what is saved of it at once: what is between two checkpoints, a round of steps at least."""
    saving, rounds = resolved.saving, resolved.rounds(resolved.workers)
    round_s = max(rounds.round_s, rounds.steps * _least_batch_s(resolved))
    length_s = resolved.length_s * (round_s / rounds.round_s)
    key, work_s, save_s = "checkpoint", length_s, 0.0
    if saving is not None and resolved.work_s is not None and resolved.work_s < work_s:
        key, work_s, save_s = "checkpoint.interval", resolved.work_s, resolved.save_s
    if round_s > work_s:
        slow = "step.time" if resolved.scenario.sync.bandwidth is None else "sync.bandwidth"
        key, work_s = slow if round_s == rounds.round_s else "input", round_s
    if saving is not None and save_s > work_s:
        key = "checkpoint.stall" if saving.stall_s >= saving.write_s else "checkpoint.write"
    return Goal(key, work_s, save_s, max(length_s, work_s))


def _least_batch_s(resolved: "ResolvedRun") -> float:
    """Seconds between two batches of a worker while nothing else uses the store, with caches as warm as they become."""
    said = resolved.scenario.input
    return 0.0 if said is None else min(said.batch_s(resolved.workers, epoch) for epoch in (0, 1))


def _stops(resolved: "ResolvedRun", said: Failures) -> Iterator[Stop]:
    """Causes that stop the run, and how long it takes to come back from one: that of slow ranks if they are found."""
    save_s = 0.0 if resolved.saving is None else resolved.save_s
    effects = [(cause, effect_of(cause, resolved.save_s)) for cause in said.cause]
    stops = [one for one in effects if one[1] != "slow" or resolved.scenario.speed.detect is not None]
    rate = sum(resolved.parts[cause.part] / cause.mtbf for cause, _ in stops if repair_s_of(said, cause))
    for cause, effect in stops:
        stands_s = detect_s_of(said, cause) if effect == "stop" else save_s
        missing = max(map(len, resolved.below_leaves), default=1) if cause.part == "leaf" else 1
        covered = _spared(resolved) // missing  # failures in a row for which nobody waits for a repair
        waits_s = max(repair_s_of(said, cause) - covered / rate, 0.0) if rate else 0.0  # after `covered` others
        yield Stop(cause, stands_s + resolved.restart.seconds, waits_s / (covered + 1))


def _spared(resolved: "ResolvedRun") -> int:
    """How many nodes may be away while the run goes on: spare ones, and those that it is elastic for."""
    elastic, nodes, workers = resolved.scenario.elastic, resolved.nodes, resolved.workers
    if elastic is None:
        return resolved.spares
    least = workers if elastic.mode == "shrink" else ceil(elastic.least * nodes / workers)
    return resolved.spares + max(nodes - least, 0)


def _check_elastic(resolved: "ResolvedRun") -> None:
    """Workers that leave are neither of a group nor the last that a step waits for."""
    said, sync = resolved.scenario.elastic, resolved.scenario.sync
    if said is None or said.mode != "drop":
        return
    if sync.inside is not None:
        words = "is not for groups of workers: leave out [sync.inside]"
        raise UserError(fault(resolved.where, "elastic.mode", said.mode, words))
    if said.least <= sync.backup:
        words = f"expected more than the {sync.backup} backup workers"
        raise UserError(fault(resolved.where, "elastic.least", said.least, words))


def _lose_leaves(resolved: "ResolvedRun") -> bool:
    """Whether any failure takes all nodes below a leaf away, with what is in their memory."""
    said = resolved.scenario.failures
    return said is not None and any(cause.part == "leaf" and repair_s_of(said, cause) > 0 for cause in said.cause)


def _notes(resolved: "ResolvedRun") -> list[str]:
    said, saving = resolved.scenario, resolved.saving
    notes = []
    if (of := said.failures) is not None and said.checkpoint is None and (of.trace or any(_stops(resolved, of))):
        notes.append("nothing is saved, so every failure loses all work; see [checkpoint]")
    if said.checkpoint is not None and resolved.work_s is None:
        notes.append("no checkpoint is made at intervals: no failure undoes work, and checkpoint.interval is not given")
    if said.failures is not None and saving is not None and not resolved.restart.read_s:
        notes.append("reading a checkpoint again takes no time; see checkpoint.store, failures.read")
    if said.checkpoint is not None and said.checkpoint.mode == "memory" and _lose_leaves(resolved):
        notes.append("a leaf that fails takes the memory of its nodes; each part is assumed to have a copy elsewhere")
    alone = [key for key in ("bandwidth", "latency", "inside") if getattr(said.sync, key) is not None]
    if resolved.workers == 1 and alone:
        notes.append(f"one worker exchanges nothing, so sync.{', sync.'.join(alone)} has no effect")
    return notes


ALL_REDUCE = Mode(
    "all_reduce", _simulate, own=("sync.backup", "sync.overlap"), in_step=True, notes=_notes,
    undisturbed=_undisturbed,
)  # fmt: skip
LOCAL = Mode(
    "local", _simulate, own=("sync.inner", "sync.fragments", "sync.delay"), refuses=("target.batch",), in_step=True,
    notes=_notes, undisturbed=_undisturbed,
)  # fmt: skip
