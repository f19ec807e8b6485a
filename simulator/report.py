"""The Report of a weight update: every headline number, derived once, here, with its definition.

Phases are groups of op kinds. `*_s` of a phase is the length of time in which any of its ops runs anywhere (busy
time); `exposed` is what it adds to the critical path, so the exposed seconds of all phases sum to the makespan.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .insight import Z90, by_group, critical_path, provenance, standard_error_s
from .scenario import Resolved
from .timeline import Peak, Timeline, peak_bytes

PHASES: Mapping[str, tuple[str, ...]] = {
    "gather": ("gather_metas",),
    "init": ("init_group", "allocate", "open_handle"),
    "h2d": ("h2d",),
    "broadcast": ("copy", "broadcast"),
    "reload": ("reload",),
    "sync": ("wait_worker", "agree", "sync", "send_meta"),
    "release": ("drop_handle", "free_buffers", "barrier", "destroy_group"),
    "post_hook": ("post_hook",),
}


@dataclass(frozen=True)
class Report:
    """What a weight update takes, why, and how sure that is."""

    name: str
    scenario_hash: str
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
    provenance: Mapping[str, float]
    peak: Peak
    busiest_link: str
    busiest_link_share: float
    notes: tuple[str, ...]

    @property
    def effective_bytes_per_s(self) -> float:
        """Bytes of the model over the update time, as published tables quote it."""
        return self.bytes / self.update_time_s

    @property
    def bound_by(self) -> str:
        """The phase that holds most of the critical path of the update."""
        return max((phase for phase in self.exposed if phase != "gather"), key=lambda phase: self.exposed[phase])

    def to_json(self) -> dict[str, Any]:
        """The report as plain values; durations in seconds, sizes in bytes."""
        return {
            "kind": "weight_update",
            "name": self.name,
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
            "notes": list(self.notes),
        }


def make_report(resolved: Resolved, timeline: Timeline) -> Report:
    """Derive the report from a scenario and its Timeline.

    The update is timed from the end of the metadata gather; the pause that rollouts see ends with the barrier after
    the post-hook. The interval holds 90 %: first order from the spread of each cost class on the critical path.
    """
    program, costs = timeline.program, resolved.costs
    began = timeline.span_of("gather_metas")[1]
    path = critical_path(timeline)
    update_s = timeline.makespan_s - began
    error = Z90 * standard_error_s(critical_path(timeline, began), costs)
    phase_of = np.array([list(PHASES).index(_phase(kind)) for kind in program.kinds])[program.kind]
    share = costs.link_bytes / costs.capacity_bytes_per_s / timeline.makespan_s
    busiest = int(share.argmax())
    return Report(
        name=resolved.scenario.name,
        scenario_hash=resolved.hash,
        gpus=resolved.cluster.n_gpus,
        tensors=len(resolved.weights),
        bytes=resolved.weights.total_bytes,
        bucket_bytes=resolved.plan.size.bytes,
        buckets=len(resolved.plan.buckets),
        rounds=resolved.plan.buckets.rounds,
        makespan_s=timeline.makespan_s,
        update_time_s=update_s,
        interval_low_s=max(update_s - error, 0.0),
        interval_high_s=update_s + error,
        pause_s=timeline.span_of("barrier")[1] - began,
        busy_s={phase: timeline.busy_s(*kinds) for phase, kinds in PHASES.items()},
        exposed=by_group(path, phase_of, tuple(PHASES)),
        provenance=provenance(path, costs),
        peak=peak_bytes(timeline, static_bytes={"resident weights": resolved.resident_bytes}),
        busiest_link=costs.link_names[busiest],
        busiest_link_share=float(share[busiest]),
        notes=resolved.notes,
    )


def _phase(kind: str) -> str:
    return next(phase for phase, kinds in PHASES.items() if kind in kinds)
