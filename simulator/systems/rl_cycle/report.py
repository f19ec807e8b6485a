"""The Report of an RL cycle: every headline number, derived once, here, with its definition.

All are over the counted steps: from the end of the warm-up to the end of the last step. A step ends when the engines
have its weights and the trainer may go on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...report.spending import Rates, Spending, rates
from ...timeline import Timeline
from ...timeline.insight import by_group, critical_path
from ..weight_update.report import Report
from .processes import CycleRun
from .resolve import ResolvedCycle

PHASES: Mapping[str, tuple[str, ...]] = {
    "rollout": ("rollout", "tail"),
    "train": ("train",),
    "update": ("update", "pause"),
    "switch": ("release", "onload", "offload", "kv_alloc"),
}
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CycleReport:
    """What a step takes, who waits for whom, and how old the rollouts are.

    Of a step on average: `rollout_s` is the time in which any slot decodes, `tail_s` that part of it in which less
    than half of the slots that a batch can fill do, `drain_s` the trainer's wait until running requests have ended.
    `pause_s` is how long engines stand in each step for something else than a lack of requests. `slots_busy` is the
    mean share of all slots while any decodes. Idle are GPUs on which nothing runs; an engine with any request is not.
    """

    name: str
    scenario_hash: str
    question: str
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
    exposed: Mapping[str, float]
    update: Report | None
    rates: Rates
    notes: tuple[str, ...]

    @property
    def mean_staleness(self) -> float:
        """Versions behind, over the requests that were trained on."""
        return sum(age * count for age, count in self.staleness.items()) / sum(self.staleness.values())

    @property
    def bound_by(self) -> str:
        """The phase that holds most of the critical path."""
        return max(self.exposed, key=lambda phase: self.exposed[phase])

    @property
    def spent(self) -> Spending:
        """What all GPUs that train or roll out cost and draw at most during a step, idle or not."""
        return self.rates.over(self.step_time_s)

    @property
    def spent_per_million_tokens(self) -> Spending:
        """The same per million tokens that were trained on."""
        return self.spent.per(self.tokens_per_s * self.step_time_s / 1e6)

    @property
    def provenance(self) -> dict[str, float]:
        """What share of the critical path rests on what: given times, or for a simulated update its own numbers."""
        if self.update is None:
            return {"given": 1.0}
        share = self.exposed.get("update", 0.0) / self.makespan_s
        return {"given": 1 - share} | {name: share * part for name, part in self.update.provenance.items()}

    def to_json(self) -> dict[str, Any]:
        """The report as plain values; durations in seconds, idle times and shares as fractions."""
        rollout_gpus, trainer_gpus = self.gpus
        return {
            "kind": "rl_cycle",
            "name": self.name,
            "question": self.question,
            "scenario_hash": self.scenario_hash,
            "mode": self.mode,
            "placement": self.placement,
            "steps": self.steps,
            "warmup": self.warmup,
            "makespan_s": self.makespan_s,
            "step_time_s": self.step_time_s,
            "step_p50_s": self.step_p50_s,
            "step_p99_s": self.step_p99_s,
            "rollout_s": self.rollout_s,
            "tail_s": self.tail_s,
            "train_s": self.train_s,
            "update_s": self.update_s,
            "switch_s": self.switch_s,
            "pause_s": self.pause_s,
            "drain_s": self.drain_s,
            "trainer_idle": self.trainer_idle,
            "rollout_idle": self.rollout_idle,
            "slots_busy": self.slots_busy,
            "staleness": {str(age): count for age, count in self.staleness.items()},
            "mean_staleness": self.mean_staleness,
            "requests_per_s": self.requests_per_s,
            "tokens_per_s": self.tokens_per_s,
            "mean_tokens": self.mean_tokens,
            "longest_tokens": self.longest_tokens,
            "lost_share": self.lost_share,
            "rollout_gpus": rollout_gpus,
            "trainer_gpus": trainer_gpus,
            "price_usd_per_gpu_hour": self.rates.usd_per_gpu_hour,
            **self.spent.to_json(),
            **self.spent_per_million_tokens.to_json("_per_million_tokens"),
            "exposed": dict(self.exposed),
            "bound_by": self.bound_by,
            "provenance": self.provenance,
            "peak_memory_bytes": None if self.update is None else round(self.update.peak.bytes),
            "update": None if self.update is None else self.update.to_json(),
            "notes": list(self.notes),
        }


def make_cycle_report(resolved: ResolvedCycle, run: CycleRun, update: Report | None) -> CycleReport:
    """Derive the report from a scenario, what happened, and the report of its update where that was simulated."""
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
    held = rates(resolved.cluster).of(plan.rollout_gpus + plan.trainer_gpus)
    ages, counts = np.unique(run.staleness(plan.warmup), return_counts=True)
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
        exposed=by_group(critical_path(timeline), group, tuple(PHASES)),
        update=update,
        rates=held,
        notes=(*resolved.notes, *held.notes),
    )


_OF_TRAINER = {"train": PHASES["train"], "update": ("update",), "switch": PHASES["switch"]}


def _phase(kind: str) -> int:
    return next(i for i, kinds in enumerate(PHASES.values()) if kind in kinds)


def _between(timeline: Timeline, kinds: Sequence[str], began: float, ended: float) -> float:
    """Seconds of these kinds inside the window; none of them overlap."""
    mask = timeline.program.of_kind(*kinds)
    return float((np.clip(timeline.end_s, began, ended) - np.clip(timeline.start_s, began, ended))[mask].sum())


def _idle(timeline: Timeline, began: float, ended: float) -> Floats:
    """The share of the window in which nothing runs, per lane."""
    op, lane = timeline.program.lanes_of.row_of_value(), timeline.program.lanes_of.values
    seconds = np.clip(timeline.end_s, began, ended) - np.clip(timeline.start_s, began, ended)
    busy = np.bincount(lane, seconds[op], minlength=len(timeline.program.lanes))
    return np.maximum(1 - busy / (ended - began), 0.0)


def _decoding(run: CycleRun, began: float, ended: float) -> tuple[float, float, float]:
    """Inside the window: seconds in which any slot decodes, in which less than half do, and seconds of all slots."""
    since = np.clip(run.busy_since_s, began, ended)
    seconds, busy = np.diff(since, append=ended), run.busy
    tail = (busy > 0) & (2 * busy < run.plan.rollouts.usable)
    return float(seconds[busy > 0].sum()), float(seconds[tail].sum()), float((seconds * busy).sum())


def _question(resolved: ResolvedCycle, run: CycleRun) -> str:
    """What was simulated, in one line; the name may say anything."""
    plan, cycle = run.plan, resolved.scenario.cycle
    devices = " and ".join(dict.fromkeys(node.device.name for node in resolved.cluster.nodes))
    mode = cycle.mode if not plan.staleness else f"{cycle.mode} (staleness {plan.staleness})"
    apart = f", {plan.trainer_gpus:,} train" if plan.switch is None else ""
    spec = resolved.update.spec if resolved.update is not None else None
    model = f"{spec.name}, " if spec is not None else ""
    each, requests = plan.rollout_gpus // plan.rollouts.engines, f"{plan.rollouts.requests:,} requests a step"
    engines = f"{plan.rollouts.engines:,} engine{'s' * (plan.rollouts.engines > 1)} of {each} x {devices}"
    return f"{model}{mode}, {cycle.placement}: {requests} on {engines}{apart}"
