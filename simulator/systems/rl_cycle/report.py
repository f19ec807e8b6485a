"""The Report of an RL cycle: every headline number with its definition.

All are over the counted steps, from the end of the warm-up to the end of the last step. A step ends when the engines
have its weights and the trainer may go on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot
from typing import Any

import numpy as np

from ...base.arrays import Floats
from ...base.units import format_count
from ...insight import critical_path, sum_by_group
from ...profile import PROVENANCE, Z90
from ...report.report import PRICE, Better, Metric, Report, Total, spending
from ...report.spending import Rates, Spending, rates
from ...timeline import Timeline
from ...uncertainty import Budget
from ..train_step.report import TrainReport
from ..weight_update.report import Report as Update
from .engine import Terms
from .errors import shipped_cycle_errors
from .notes import notes_of
from .plan import Switch
from .resolve import ResolvedCycle
from .run import CycleRun
from .switch import HOST

PHASES: Mapping[str, tuple[str, ...]] = {
    "rollout": ("rollout", "tail"),
    "prepare": ("prepare",),
    "train": ("train",),
    "update": ("update", "pause"),
    "switch": ("release", "onload", "offload", "kv_alloc"),
}
_COUNTED = 100  # versions behind
_SURE = Budget({}, 0.0)
"""The errors of a step whose times are all given."""
_NOTHING = 1e-12  # a share that rounding leaves


@dataclass(frozen=True)
class EngineReport:
    """A predicted engine: what a GPU holds, and a step with `running` requests on average, halfway through answers."""

    weight_bytes: float
    cache_tokens: int
    cache_requests: int
    running: float
    preempted: int
    step: Terms

    @property
    def by_class(self) -> dict[str, float]:
        """The share of each class of errors in the relative deviation of a step."""
        return {name: error / self.step.seconds for name, error in self.step.errors.items() if error}


def _engine(name: str, unit: str, meaning: str, better: Better, of: Callable[[EngineReport], float]) -> Metric:
    return Metric(name, unit, meaning, better, of=lambda report: None if report.engine is None else of(report.engine))


_OF_ENGINE = (
    _engine("token_time_s", "s", "a predicted step of an engine with its mean number of requests", "lower",
            lambda engine: engine.step.seconds),
    _engine("running", "1", "requests that run on an engine on average, while any does", "higher",
            lambda engine: engine.running),
    _engine("weight_bytes", "B", "an engine's weights on a GPU", "lower", lambda engine: engine.weight_bytes),
    _engine("cache_tokens", "1", "tokens in the KV cache of an engine", "higher", lambda engine: engine.cache_tokens),
    _engine("cache_requests", "1", "requests of the usual length that fill it", "higher",
            lambda engine: engine.cache_requests),
    _engine("preempted", "1", "requests that full caches sent back to the queue", "lower",
            lambda engine: engine.preempted),
)  # fmt: skip


@dataclass(frozen=True)
class CycleReport(Report):
    """The time of a step of the cycle, the waiting times, and the staleness of rollouts.

    Means over steps: `rollout_s` is the time in which any slot decodes, `tail_s` the part of it in which less than half
    of the slots that a batch can fill do, `drain_s` the trainer's wait until running requests have ended, `pause_s` how
    long engines stand still, except for a lack of requests. `slots_busy` is the mean share of busy slots while any
    decodes. A GPU is idle if nothing runs on it; an engine with any request is not idle. `rest` is the part of the
    budget that is of no phase: what whole cycles were off beyond their parts. `at_once`: rollouts go on while the
    trainer trains.
    """

    mode: str
    placement: str
    steps: int
    warmup: int
    makespan_s: float
    step_time_s: float
    step_p50_s: float
    step_p99_s: float
    rollout_s: float
    tail_s: float
    train_s: float
    update_s: float
    switch_s: float
    prepare_s: float
    pause_s: float
    drain_s: float
    trainer_idle: float
    rollout_idle: float
    slots_busy: float
    staleness: Mapping[int, int]
    requests_per_s: float
    tokens_per_s: float
    mean_tokens: float
    longest_tokens: int
    lost_share: float
    gpus: tuple[int, int]
    update: Update | None
    rates: Rates
    engine: "EngineReport | None" = None
    training: TrainReport | None = None
    learn_s: float | None = None
    forward_s: float | None = None
    budget: Budget = _SURE
    rest: float = 0.0
    at_once: bool = False

    kind = "rl_cycle"
    metrics = (
        Metric("mode", "", "synchronous, or how trainer and engines overlap", role="input"),
        Metric("placement", "", "colocated or apart", role="input"),
        Metric("steps", "1", "steps that count", role="input"),
        Metric("warmup", "1", "steps before them", role="input"),
        Metric("makespan_s", "s", "all steps, warm-up too", "lower", "time"),
        Metric("step_time_s", "s", "a step on average, from when engines have the weights of one to the next", "lower"),
        Metric("step_p50_s", "s", "the median step", "lower"),
        Metric("step_p99_s", "s", "the 99 % quantile of steps", "lower"),
        Metric("interval_low_s", "s", "the 5 % quantile of it, where training or decoding is predicted",
               role="time", of=lambda report: report.interval_s and report.interval_s[0]),
        Metric("interval_high_s", "s", "its 95 % quantile", role="time",
               of=lambda report: report.interval_s and report.interval_s[1]),
        Metric("rollout_s", "s", "any slot decodes, per step", "lower"),
        Metric("tail_s", "s", "less than half of the slots that a batch can fill do", "lower"),
        Metric("prepare_s", "s", "data is prepared between rollout and training, per step", "lower"),
        Metric("train_s", "s", "the trainer trains, per step", "lower"),
        Metric("learn_s", "s", "of a predicted training, its optimizer steps", "lower"),
        Metric("forward_s", "s", "of a predicted training, its passes without gradients", "lower"),
        Metric("update_s", "s", "weights are updated, per step", "lower"),
        Metric("switch_s", "s", "GPUs change between training and rollout, per step", "lower"),
        Metric("pause_s", "s", "engines stand, but not for a lack of requests, per step", "lower"),
        Metric("drain_s", "s", "the trainer waits until running requests have ended, per step", "lower"),
        Metric("trainer_idle", "1", "share of the time in which nothing runs on GPUs that train", "lower"),
        Metric("rollout_idle", "1", "the same of GPUs that roll out", "lower"),
        Metric("slots_busy", "1", "share of all slots that decode while any does", "higher"),
        Metric("staleness", "1", "requests by how many versions behind they were trained on", sparse=True,
               names=tuple(map(str, range(_COUNTED))),
               of=lambda report: {str(age): count for age, count in report.staleness.items()}),
        Metric("mean_staleness", "1", "versions behind, over the requests that were trained on", "lower"),
        Metric("requests_per_s", "1/s", "requests that were trained on", "higher"),
        Metric("tokens_per_s", "1/s", "their tokens", "higher"),
        Metric("mean_tokens", "1", "tokens of a request on average"),
        Metric("longest_tokens", "1", "tokens of the longest"),
        Metric("lost_share", "1", "share of the tokens that updates abort", "lower"),
        *_OF_ENGINE,
        Metric("rollout_gpus", "1", "GPUs that roll out", role="input", of=lambda report: report.gpus[0]),
        Metric("trainer_gpus", "1", "GPUs that train", role="input", of=lambda report: report.gpus[1]),
        PRICE,
        *spending("spending", "for a step"),
        *spending("spending_per_million_tokens", "for a million tokens", "_per_million_tokens"),
        Metric("exposed", "s", "the critical path by phase", "lower", names=tuple(PHASES), sparse=True),
        Metric("bound_by", "", "the phase that holds most of the critical path"),
        Metric("provenance", "1", "share of the critical path by source of its numbers", sparse=True,
               names=("given", *PROVENANCE)),
        Metric("peak_memory_bytes", "B", "the most that a device holds in the update", "lower",
               of=lambda report: None if report.update is None else round(report.update.peak.bytes)),
        Metric("fits", "1", "whether the training step and the update fit their devices, where they are predicted",
               "higher"),
        Metric("update", "", "the report of the update, where that is simulated", inner="weight_update",
               of=lambda report: None if report.update is None else report.update.to_json()),
        Metric("training", "", "the report of the training step, where that is predicted", inner="train_step",
               of=lambda report: None if report.training is None else report.training.to_json()),
    )  # fmt: skip

    @property
    def _of_memory(self) -> dict[str, TrainReport | Update]:
        """The reports inside this one, of which each predicts memory."""
        parts = {"training": self.training, "update": self.update}
        return {name: report for name, report in parts.items() if report is not None}

    @property
    def fits(self) -> bool | None:
        """Whether the training step and the update fit, as far as they are predicted; None where neither is."""
        parts = self._of_memory.values()
        return all(report.fits for report in parts) if parts else None

    @property
    def shortage(self) -> str:
        """What the training step or the update lack of memory, in words; empty where both fit."""
        return "; ".join(f"{name}: {report.shortage}" for name, report in self._of_memory.items() if report.shortage)

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """The 90 % interval of the mean step, from the errors of what is predicted and of what cycles leave out.

        None if training and decoding are given: that of the update alone says nothing of a step.
        """
        if self.engine is None and self.training is None:
            return None
        width = exp(Z90 * self.budget.deviation)
        return (self.step_time_s / width, self.step_time_s * width) if width > 1 else None

    @property
    def mean_staleness(self) -> float:
        """Versions behind, over the requests that were trained on."""
        return sum(age * count for age, count in self.staleness.items()) / sum(self.staleness.values())

    @property
    def spending(self) -> Spending:
        """Cost and energy of all GPUs during a step, idle or not."""
        return self.rates.amount(self.step_time_s)

    @property
    def spending_per_million_tokens(self) -> Spending:
        """Cost and energy per million trained tokens."""
        return self.spending.per(self.tokens_per_s * self.step_time_s / 1e6)


def make_cycle_report(resolved: ResolvedCycle, run: CycleRun, update: Update | None) -> CycleReport:
    """The report of a run, given that of its update if that was simulated."""
    plan, timeline, cycle = run.plan, run.timeline, resolved.scenario.cycle
    began = float(run.step_end_s[plan.warmup - 1]) if plan.warmup else 0.0
    ended = float(run.step_end_s[-1])
    counted, window_s = plan.steps - plan.warmup, ended - began
    each = np.diff(run.step_end_s[plan.warmup :], prepend=began)
    decoding, tail, slot_s = _decoding(run, began, ended)
    trained = [one for one in run.requests if plan.warmup <= one.batch < plan.steps]
    tokens, lost = sum(one.tokens for one in trained), float(run.lost_tokens[plan.warmup :].sum())
    engines, all_slots = plan.rollouts.engines, plan.rollouts.engines * plan.rollouts.slots
    idle = _idle(timeline, began, ended)
    phase = {kind: _between(timeline, kinds, began, ended) / counted for kind, kinds in _OF_TRAINER.items()}
    group = np.array([_phase(kind) for kind in timeline.program.kinds])[timeline.program.kind]
    held = rates(resolved.cluster).scale(plan.rollout_gpus + plan.trainer_gpus)
    ages, counts = np.unique(run.staleness(plan.warmup), return_counts=True)
    exposed = sum_by_group(critical_path(timeline), group, tuple(PHASES))
    engine = _engine_report(resolved, run, slot_s / decoding / engines if decoding else 0.0)
    training = None if resolved.training is None else resolved.training.step.report
    rest = _rest(exposed, timeline.makespan_s, rollout=engine is not None, train=training is not None)
    return CycleReport(
        name=resolved.scenario.name,
        scenario_hash=resolved.hash,
        question=_question(resolved, run),
        mode=cycle.mode,
        placement=cycle.placement,
        steps=counted,
        warmup=plan.warmup,
        makespan_s=timeline.makespan_s,
        step_time_s=float(each.mean()),
        step_p50_s=float(np.percentile(each, 50)),
        step_p99_s=float(np.percentile(each, 99)),
        rollout_s=decoding / counted,
        tail_s=tail / counted,
        train_s=phase["train"],
        update_s=phase["update"],
        switch_s=phase["switch"],
        prepare_s=phase["prepare"],
        pause_s=float(run.pause_s[plan.warmup :].mean()),
        drain_s=float(run.drain_s[plan.warmup :].mean()),
        trainer_idle=float(idle[engines:].mean() if plan.switch is None else idle.mean()),
        rollout_idle=float(idle[:engines].mean()),
        slots_busy=slot_s / (decoding * all_slots) if decoding else 0.0,
        staleness={int(age): int(count) for age, count in zip(ages, counts, strict=True)},
        requests_per_s=len(trained) / window_s,
        tokens_per_s=tokens / window_s,
        mean_tokens=tokens / len(trained),
        longest_tokens=max(one.tokens for one in trained),
        lost_share=lost / (lost + tokens),
        gpus=(plan.rollout_gpus, plan.trainer_gpus),
        exposed=exposed,
        provenance=_provenance(
            exposed,
            timeline.makespan_s,
            rollout=None if engine is None else engine.step.shares,
            train=None if training is None else training.provenance,
            update=None if update is None else update.provenance,
        ),
        engine=engine,
        training=training,
        learn_s=None if resolved.training is None else resolved.training.learn_s,
        forward_s=None if resolved.training is None else resolved.training.forward_s,
        budget=_budget(
            exposed,
            timeline.makespan_s,
            engine={} if engine is None else engine.by_class,
            switch=_switch_spread(resolved, plan.switch),
            train=_SURE if training is None else training.budget,
            update=_SURE if update is None else update.budget,
        ).add_own(rest),
        rest=rest,
        at_once=plan.staleness > 0,
        update=update,
        rates=held,
        notes=(*notes_of(resolved), *held.notes),
    )


TOTAL_NEEDS = ("makespan_s", "steps", "warmup", "exposed")


def total(report: Mapping[str, Any]) -> Total:
    """Seconds per step, warm-up included, so that cycles of different lengths can be compared."""
    steps = report["steps"] + report["warmup"]
    seconds, low_s, high_s = (report.get(key) for key in ("step_time_s", "interval_low_s", "interval_high_s"))
    mean_s, interval = report["makespan_s"] / steps, None
    if seconds and low_s is not None and high_s is not None:
        interval = mean_s * low_s / seconds, mean_s * high_s / seconds
    return Total(mean_s, interval, {name: value / steps for name, value in report["exposed"].items()})


def _engine_report(resolved: ResolvedCycle, run: CycleRun, running: float) -> EngineReport | None:
    if (engine := resolved.engine) is None:
        return None
    return EngineReport(
        engine.weight_bytes, int(engine.capacity), engine.room, running, run.preempted, engine.step(running)
    )


def _provenance(
    exposed: Mapping[str, float], whole_s: float, **predicted: Mapping[str, float] | None
) -> dict[str, float]:
    """The provenance of the critical path, of which `exposed` seconds are of each phase, predicted or given."""
    found, given = dict[str, float](), 1.0
    for phase, parts in predicted.items():
        share = exposed.get(phase, 0.0) / whole_s if parts is not None else 0.0
        given -= share
        for name, part in (parts or {}).items():
            found[name] = found.get(name, 0.0) + share * part
    return ({"given": max(given, 0.0)} if given > _NOTHING else {}) | found


def _switch_spread(resolved: ResolvedCycle, switch: Switch | None) -> float:
    """The relative error of a switch, of which the stack's host work is a part."""
    host = resolved.switch_host
    whole_s = 0.0 if switch is None else switch.seconds
    return host.value * host.spread / whole_s if host is not None and whole_s else 0.0


def _budget(
    exposed: Mapping[str, float],
    whole_s: float,
    engine: Mapping[str, float],
    switch: float,
    train: Budget,
    update: Budget,
) -> Budget:
    """The errors of the step: those of its parts, each by the share of the critical path that it holds."""
    share = {phase: seconds / whole_s for phase, seconds in exposed.items()}
    shared = {f"engine: {name}": size * share.get("rollout", 0.0) for name, size in engine.items()}
    shared |= {HOST: switch * share["switch"]} if switch and share.get("switch") else {}
    of_steps = ((share.get("train", 0.0), train), (share.get("update", 0.0), update))
    for part, budget in of_steps:
        for name, size in budget.shared.items():
            shared[name] = shared.get(name, 0.0) + part * size
    return Budget(shared, hypot(*(part * budget.own for part, budget in of_steps)), shares=share)


def _rest(exposed: Mapping[str, float], whole_s: float, **predicted: bool) -> float:
    """The error of what a cycle leaves out, by the share of the critical path in phases that are predicted."""
    share = sum(exposed.get(phase, 0.0) for phase, is_predicted in predicted.items() if is_predicted) / whole_s
    return shipped_cycle_errors().width() * share


_OF_TRAINER = {**{phase: PHASES[phase] for phase in ("prepare", "train", "switch")}, "update": ("update",)}


def _phase(kind: str) -> int:
    return next(i for i, kinds in enumerate(PHASES.values()) if kind in kinds)


def _between(timeline: Timeline, kinds: Sequence[str], began: float, ended: float) -> float:
    """Seconds of these kinds inside the window; none of them overlap."""
    mask = timeline.program.is_kind(*kinds)
    return float((np.clip(timeline.end_s, began, ended) - np.clip(timeline.start_s, began, ended))[mask].sum())


def _idle(timeline: Timeline, began: float, ended: float) -> Floats:
    """The share of the window in which nothing runs, per lane."""
    op, lane = timeline.program.lanes_of.row_of_value(), timeline.program.lanes_of.values
    seconds = np.clip(timeline.end_s, began, ended) - np.clip(timeline.start_s, began, ended)
    busy = np.bincount(lane, seconds[op], minlength=len(timeline.program.lanes))
    return np.maximum(1 - busy / (ended - began), 0.0)


def _decoding(run: CycleRun, began: float, ended: float) -> tuple[float, float, float]:
    """For the window: (seconds with any slot decoding, seconds with less than half, slot-seconds)."""
    since = np.clip(run.busy_since_s, began, ended)
    seconds, busy = np.diff(since, append=ended), run.busy
    tail = (busy > 0) & (2 * busy < run.plan.rollouts.usable)
    return float(seconds[busy > 0].sum()), float(seconds[tail].sum()), float((seconds * busy).sum())


def _question(resolved: ResolvedCycle, run: CycleRun) -> str:
    """One line that says what was simulated."""
    plan, cycle = run.plan, resolved.scenario.cycle
    devices = " and ".join(dict.fromkeys(resolved.cluster.device(rank).name for rank in resolved.rollout_ranks))
    mode = cycle.mode if not plan.staleness else f"{cycle.mode} (staleness {plan.staleness})"
    apart = f", {plan.trainer_gpus:,} train" if plan.switch is None else ""
    spec = resolved.update.spec if resolved.update is not None else None
    model = f"{spec.name}, " if spec is not None else ""
    each, requests = plan.rollout_gpus // plan.rollouts.engines, f"{plan.rollouts.requests:,} requests a step"
    engines = f"{format_count(plan.rollouts.engines, 'engine')} of {each} x {devices}"
    return f"{model}{mode}, {cycle.placement}: {requests} on {engines}{apart}"
