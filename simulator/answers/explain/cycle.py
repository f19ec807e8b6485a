"""An RL cycle explained: which phase its steps wait for, and what to change first.

Each lever is simulated with the random numbers of the cycle as it is, so that both decode the same answers. Levers are
compared by the time for as many trained tokens, so that a larger batch is no loss.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ...base.errors import UserError
from ...base.memo import Memo
from ...scenario import Changes, WhatIf, change, check_question, resolve, what_ifs
from ...systems.rl_cycle.report import CycleReport
from ...systems.rl_cycle.resolve import ResolvedCycle
from ...systems.rl_cycle.system import SYSTEM, predict
from ...systems.weight_update.transfers import TransferUpdate
from ...uncertainty import difference
from .by_levers import LEAST, ByLevers, LeverWords, check_memory, try_levers
from .case import ReadCase, Refused
from .sensitivity import Progress

_NUMBERS = (
    "bound_by", "step_time_s", "tokens_per_s", "rollout_s", "tail_s", "train_s", "update_s", "switch_s",
    "trainer_idle", "rollout_idle",
)  # fmt: skip


@dataclass(frozen=True)
class CycleLever:
    """A lever that was simulated; `gain` is the share of the time for as many tokens that it saves.

    `gain_interval` is its 90 % interval, and `helps` the probability that it saves anything, from the errors of what is
    predicted; numbers that are given count as sure.
    """

    name: str
    subject: str
    about: str
    changes: Changes
    step_time_s: float
    tokens_per_s: float
    gain: float
    gain_interval: tuple[float, float]
    helps: float

    @property
    def has_effect(self) -> bool:
        """Whether anything is different that shows."""
        return abs(self.gain) >= LEAST

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        words = {name: value for name, value in vars(self).items() if name != "gain_interval"}
        low, high = self.gain_interval
        return words | {"changes": dict(self.changes), "gain_low": low, "gain_high": high}


@dataclass(frozen=True)
class CycleExplanation(ByLevers[CycleLever]):
    """Which phases hold the critical path of a cycle, and what to change first; `tried` is ordered by gain."""

    report: CycleReport
    tried: tuple[CycleLever, ...]
    refused: tuple[Refused, ...]
    quick: bool
    inputs: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The explanation as plain values: durations in seconds, shares as `gain`."""
        low_s, high_s = self.report.interval_s or (None, None)
        parts = {
            "total_s": self.report.step_time_s, "interval_low_s": low_s, "interval_high_s": high_s,
            "exposed_s": dict(self.report.exposed),
        }  # fmt: skip
        return self.content(_NUMBERS, parts, [one.to_json() for one in self.tried])

    @property
    def words(self) -> LeverWords[CycleLever]:
        """The explanation in words."""
        from .cycle_text import cycle_words

        return cycle_words(self)


@dataclass(frozen=True)
class CycleCase(ReadCase):
    """A cycle to be explained."""

    resolved: ResolvedCycle

    def pull(self, lever: WhatIf) -> ResolvedCycle:
        """The cycle with a lever's changes; a UserError if they do not go with it, or change nothing."""
        other = _resolve(change(self.table, lever.changes, self.where), self.where, self.memo)
        if other.hash == self.resolved.hash:
            raise UserError("it changes nothing here")
        return other


def make_cycle_case(table: Mapping[str, Any], where: str, memo: Memo) -> CycleCase:
    """A cycle from a table; a UserError if it says something that is not allowed."""
    return CycleCase(table, where, memo, _resolve(table, where, memo))


def explain_cycle(cycle: CycleCase, quick: bool, progress: Progress) -> CycleExplanation:
    """Explain a cycle that is already read."""
    resolved = cycle.resolved
    progress("simulations", 0, 1, "")
    report = predict(resolved).report

    def simulate(lever: WhatIf) -> CycleLever:
        then = predict(cycle.pull(lever)).report
        check_memory(then.shortage)
        return _compare(lever, report, then)

    tried, refused = try_levers([] if quick else list(levers(resolved)), simulate, progress)
    return CycleExplanation(report, tried, refused, quick, resolved.inputs)


def _resolve(table: Mapping[str, Any], where: str, memo: Memo) -> ResolvedCycle:
    return cast(ResolvedCycle, resolve(check_question(table, where), where, memo))


def _compare(one: WhatIf, now: CycleReport, then: CycleReport) -> CycleLever:
    """What a lever is worth, from the cycle before and after."""
    found = difference(1 / now.tokens_per_s, 1 / then.tokens_per_s, now.budget, then.budget)
    return CycleLever(
        one.name, one.subject, one.about, one.changes,
        step_time_s=then.step_time_s,
        tokens_per_s=then.tokens_per_s,
        gain=1 - found.ratio,
        gain_interval=found.saving_interval,
        helps=found.faster_probability,
    )  # fmt: skip


def levers(resolved: ResolvedCycle) -> Iterator[WhatIf]:
    """All levers of a cycle; not all of them go with it."""
    for part in (_of_loop, _of_split, _of_engine, _of_given, _of_training):
        yield from (WhatIf(name, "cycle", about, changes) for name, about, changes in part(resolved))
    if resolved.update is not None:
        yield from (one for one in what_ifs().values() if one.subject in SYSTEM.what_ifs)


_Levers = Iterator[tuple[str, str, Changes]]


def _of_loop(resolved: ResolvedCycle) -> _Levers:
    """Staleness, what an update does to running requests, the size of a batch."""
    cycle, rollout = resolved.scenario.cycle, resolved.scenario.rollout
    if cycle.placement == "disaggregated":
        stale = cycle.most_stale
        for age in sorted({0, 1, stale + 1, 2 * stale} - {stale}):
            mode = "asynchronous" if age else "synchronous"
            changes: dict[str, Any] = {"cycle.mode": mode} | ({"cycle.staleness": age} if age else {})
            yield f"staleness {age}", "versions that a rollout may be behind", changes
        for interrupt in ("keep", "drain", "abort"):
            yield f"interrupt: {interrupt}", "what an update does to running requests", {"rollout.interrupt": interrupt}
    yield "requests x2", "twice the answers in a step", {"rollout.requests": 2 * rollout.requests}


def _of_split(resolved: ResolvedCycle) -> _Levers:
    """Which nodes roll out and which train, or all in turn."""
    cycle, nodes = resolved.scenario.cycle, resolved.scenario.nodes
    if cycle.placement == "colocated":
        apart: dict[str, Any] = {"cycle.placement": "disaggregated", "cycle.mode": "asynchronous"}
        if resolved.update is not None and resolved.scenario.update.method == "colocated":
            apart["update.method"] = "relays"
        for rolls in sorted({nodes // 2, (3 * nodes) // 4} - {0, nodes}):
            about = "the others train at the same time, a version behind"
            yield f"split: {_rolling(rolls)}", about, apart | {"cycle.rollout_nodes": rolls}
        return
    if cycle.rollout_nodes is not None:
        for other in (cycle.rollout_nodes - 1, cycle.rollout_nodes + 1):
            if 0 < other < nodes:
                yield _rolling(other), f"of {nodes}; the others train", {"cycle.rollout_nodes": other}
        together: dict[str, Any] = {"cycle.placement": "colocated", "cycle.mode": "synchronous"}
        if resolved.update is not None:
            together["update.method"] = "colocated"
        yield "colocated", "all GPUs roll out and train in turn", together


def _rolling(nodes: int) -> str:
    return f"{nodes} nodes roll out" if nodes > 1 else "1 node rolls out"


def _of_engine(resolved: ResolvedCycle) -> _Levers:
    """Sizes and types of an engine whose steps are predicted."""
    if (engine := resolved.engine) is None:
        return
    said, tp = engine.said, resolved.scenario.tp
    key = "rollout.engine.tp" if said.tp is not None else "update.inference.tp"
    for size in (2 * tp, tp // 2):
        if size:
            yield f"engines of tp {size}", "GPUs that share a request's work", {key: size}
    if engine.shape.spec.moe is not None and said.ep == 1 and tp > 1:
        yield "experts spread over the engine", "each GPU has whole experts", {"rollout.engine.ep": tp * said.dp}
    yield "max batch x2", "twice the requests at once", {"rollout.engine.max_batch": 2 * said.max_batch}
    if said.max_batch > 1:
        yield "max batch /2", "half the requests at once", {"rollout.engine.max_batch": said.max_batch // 2}
    if said.memory_fraction < 0.95:
        yield "95 % of the memory", "for weights and KV cache", {"rollout.engine.memory_fraction": 0.95}
    yield "KV cache in FP8", "half the bytes of keys and values", {"rollout.engine.kv_dtype": "fp8"}
    yield "weights in FP8", "engines compute in 8 bits", {"rollout.engine.dtype": "fp8"} | _quantization(resolved)
    yield "no recomputed KV caches", "requests keep those of older weights", {"rollout.engine.recompute": False}


def _quantization(resolved: ResolvedCycle) -> dict[str, Any]:
    """Where a simulated update from trainers makes FP8 of BF16: at the engines, unless bytes are written in place."""
    update = resolved.update
    if not isinstance(update, TransferUpdate) or update.dtype == "fp8":
        return {}
    return {"update.quantize": "before" if update.method.in_place else "after"}


def _of_given(resolved: ResolvedCycle) -> _Levers:
    """What phases are worth whose times are given."""
    cycle, rollout = resolved.scenario.cycle, resolved.scenario.rollout
    if rollout.token_time is not None:
        half = {"rollout.token_time": rollout.token_time / 2, "rollout.request_time": rollout.request_time / 2}
        yield "decoding twice as fast", "half the given time per token", half
        yield "slots x2", "twice the requests at once", {"rollout.slots": 2 * (rollout.slots or 1)}
    if cycle.prepare:
        yield "data prepared twice as fast", "half the given time", {"cycle.prepare": cycle.prepare / 2}
    if cycle.train_time is not None:
        yield "training twice as fast", "half the given time", {"cycle.train_time": cycle.train_time / 2}
    if cycle.update_time is not None:
        half = {"cycle.update_time": cycle.update_time / 2}
        half |= {} if cycle.pause is None else {"cycle.pause": cycle.pause / 2}
        yield "updates twice as fast", "half the given time", half


def _of_training(resolved: ResolvedCycle) -> _Levers:
    """The plan of a training step that is predicted, and the passes beside it."""
    if resolved.training is None or isinstance(resolved.scenario.cycle.train, str):
        return
    cycle = resolved.scenario.cycle
    if cycle.forward_passes:
        fewer = {"cycle.forward_passes": cycle.forward_passes - 1}
        yield "a forward pass less", "such as log-probabilities that engines give", fewer
    if cycle.minibatches > 1:
        yield "one optimizer step", "on the whole batch", {"cycle.minibatches": 1}
    dims = resolved.training.step.resolved.dims
    for axis in ("tp", "pp"):
        for size in (2 * getattr(dims, axis), getattr(dims, axis) // 2):
            if size:
                yield f"training {axis} {size}", "the trainer's plan", {f"cycle.train.parallel.{axis}": size}
    for mode in ("none", "selective", "full"):
        changes = {"cycle.train.recompute.mode": mode}
        yield f"training recomputes: {mode}", "the trainer's activations", changes
