"""The Report of a weight update: every headline number, derived once, here, with its definition.

Phases are groups of op kinds. `*_s` of a phase is the length of time in which any of its ops runs anywhere (busy
time); `exposed` is what it adds to the critical path, so the exposed seconds of all phases sum to the makespan.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.op_kinds import op_kind
from ...program import Program
from ...report.spending import Rates, Spending, rates
from ...timeline import Peak, Timeline, peak_bytes
from ...timeline.insight import CriticalPath, by_group, critical_path, provenance
from ...uncertainty import of_path, of_spreads
from .lower import HOST_LANES
from .resolve import Resolved

PHASES = (
    "calls", "gather", "init", "export", "h2d", "broadcast", "write", "reload", "sync", "release", "post_hook",
)  # fmt: skip
"""What each kind of op is part of: `OpKind.step`."""


@dataclass(frozen=True)
class Report:
    """What a weight update takes, why, and how sure that is."""

    name: str
    scenario_hash: str
    question: str
    gpus: int
    tensors: int
    bytes: int
    bucket_bytes: int
    buckets: int
    rounds: int
    makespan_s: float
    update_time_s: float
    interval_low_s: float
    interval_high_s: float
    pause_s: float
    busy_s: Mapping[str, float]
    exposed: Mapping[str, float]
    host_share: float
    provenance: Mapping[str, float]
    peak: Peak
    busiest_link: str
    busiest_link_share: float
    rates: Rates
    engine_rates: Rates
    notes: tuple[str, ...]

    @property
    def effective_bytes_per_s(self) -> float:
        """Bytes of the model over the update time, as published tables quote it."""
        return self.bytes / self.update_time_s

    @property
    def spent(self) -> Spending:
        """What all GPUs of the cluster cost and draw at most during the update."""
        return self.rates.over(self.update_time_s)

    @property
    def paused(self) -> Spending:
        """What the GPUs that receive weights cost and draw at most during the pause, in which they decode nothing."""
        return self.engine_rates.over(self.pause_s)

    @property
    def bound_by(self) -> str:
        """The phase that holds most of the critical path of the update."""
        return max((phase for phase in self.exposed if phase != "gather"), key=lambda phase: self.exposed[phase])

    def to_json(self) -> dict[str, Any]:
        """The report as plain values; durations in seconds, sizes in bytes."""
        return {
            "kind": "weight_update",
            "name": self.name,
            "question": self.question,
            "scenario_hash": self.scenario_hash,
            "makespan_s": self.makespan_s,
            "update_time_s": self.update_time_s,
            "interval_low_s": self.interval_low_s,
            "interval_high_s": self.interval_high_s,
            "pause_s": self.pause_s,
            **{f"{phase}_s": seconds for phase, seconds in self.busy_s.items()},
            "exposed": dict(self.exposed),
            "provenance": dict(self.provenance),
            "bound_by": self.bound_by,
            "host_share": self.host_share,
            "busiest_link": self.busiest_link,
            "busiest_link_share": self.busiest_link_share,
            "peak_memory_bytes": round(self.peak.bytes),
            "peak_memory_by_owner_bytes": {name: round(size) for name, size in self.peak.held},
            "gpus": self.gpus,
            "tensors": self.tensors,
            "bytes": self.bytes,
            "effective_bytes_per_s": self.effective_bytes_per_s,
            "bucket_bytes": self.bucket_bytes,
            "buckets": self.buckets,
            "rounds": self.rounds,
            "price_usd_per_gpu_hour": self.rates.usd_per_gpu_hour,
            **self.spent.to_json(),
            **self.paused.to_json("_of_pause"),
            "notes": list(self.notes),
        }


def make_report(resolved: Resolved, timeline: Timeline) -> Report:
    """Derive the report from a scenario and its Timeline.

    The update is timed from the end of the metadata gather, or where it starts at trainers from when requests have
    stopped; the pause that rollouts see ends with the barrier after the post-hook, or when requests resume, and holds
    the draining. The interval holds 90 %, to first order, as a factor (docs/uncertainty.md).
    """
    program, costs = timeline.program, resolved.costs
    began = timeline.span_of(resolved.opening)[1]
    resumed = timeline.span_of("resume" if resolved.from_trainers else "barrier")[1]
    path = critical_path(timeline)
    update_s = timeline.makespan_s - began
    sure = of_path(critical_path(timeline, began), of_spreads(costs), update_s)
    phase_of = phase_of_op(program)
    share = costs.link_bytes / costs.capacity_bytes_per_s / timeline.makespan_s
    busiest = int(share.argmax())
    held, engines = rates(resolved.cluster), rates(resolved.cluster, resolved.plan.receivers)
    return Report(
        name=resolved.scenario.name,
        scenario_hash=resolved.hash,
        question=_question(resolved),
        gpus=len(resolved.plan.receivers),
        tensors=len(resolved.weights),
        bytes=resolved.weights.total_bytes,
        bucket_bytes=resolved.plan.bucket_bytes,
        buckets=resolved.plan.n_buckets,
        rounds=resolved.plan.rounds,
        makespan_s=timeline.makespan_s,
        update_time_s=update_s,
        interval_low_s=sure.low_s,
        interval_high_s=sure.high_s,
        pause_s=resumed - (0.0 if resolved.from_trainers else began),
        busy_s={phase: timeline.busy_s(*kinds) for phase, kinds in _kinds_by_phase(program).items()},
        exposed=by_group(path, phase_of, PHASES),
        host_share=_host_share(path, timeline),
        provenance=provenance(path, costs),
        peak=peak_bytes(timeline, static_bytes=_static_bytes(resolved)),
        busiest_link=costs.link_names[busiest],
        busiest_link_share=float(share[busiest]),
        rates=held,
        engine_rates=engines,
        notes=(*resolved.notes, *held.notes),
    )


def _question(resolved: Resolved) -> str:
    """What was simulated, in one line; the name may say anything."""
    machines, update = resolved.cluster, resolved.scenario.update
    model = resolved.spec.name if resolved.spec is not None else "a model by totals"
    devices = " and ".join(device.name for device in resolved.devices)
    if resolved.from_trainers:
        return f"{model} {resolved.dtype}, {update.method}: {_layouts(resolved)} ({machines.n_nodes} x {devices} nodes)"
    where = f"{machines.n_gpus} x {devices} in {machines.n_nodes} node{'s' * (machines.n_nodes > 1)}"
    return f"{model} {resolved.dtype} to {where}, TP{update.inference.tp}, {update.method}, {update.pipeline}"


def _layouts(resolved: Resolved) -> str:
    """Trainers and engines with their parallel sizes."""
    trainer, inference = resolved.trainer, resolved.scenario.update.inference
    sizes = [f"{name.upper()}{size}" for name in ("tp", "pp", "cp", "ep") if (size := getattr(trainer, name)) > 1]
    engine = [f"TP{inference.tp}", *([f"EP{inference.ep}"] if inference.ep > 1 else [])]
    sources, targets = len(resolved.trainers), len(resolved.plan.receivers)
    return f"{sources} trainers {' '.join([*sizes, ''])}to {targets} GPUs {' '.join(engine)}"


def _host_share(path: CriticalPath, timeline: Timeline) -> float:
    """What share of the critical path are host threads at work, whatever the GPUs and links do meanwhile."""
    program = timeline.program
    on_host = np.array([lane.name in HOST_LANES for lane in program.lanes])[program.lanes_of.values]
    elsewhere = np.bincount(program.lanes_of.row_of_value()[~on_host], minlength=len(program)) > 0
    return float(path.seconds[~elsewhere[path.ops]].sum() / timeline.makespan_s)


def _static_bytes(resolved: Resolved) -> dict[str, int]:
    """What a device holds all the time: the engine's weights, and what else it holds."""
    beside = resolved.engine_bytes - resolved.resident_bytes
    return {"resident weights": resolved.resident_bytes} | ({"engine beside its weights": beside} if beside else {})


def phase_of_op(program: Program) -> NDArray[np.int64]:
    """Of every op, the index in PHASES."""
    return np.array([PHASES.index(op_kind(kind).step) for kind in program.kinds], np.int64)[program.kind]


def _kinds_by_phase(program: Program) -> dict[str, list[str]]:
    return {phase: [kind for kind in program.kinds if op_kind(kind).step == phase] for phase in PHASES}
