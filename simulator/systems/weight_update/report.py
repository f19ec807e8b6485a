"""The Report of a weight update: every headline number with its definition.

Phases are groups of op kinds. `*_s` of a phase is the length of time in which any of its ops runs anywhere (busy
time); `exposed` is what it adds to the critical path, so the exposed seconds of all phases sum to the makespan.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.op_kinds import op_kind
from ...base.units import format_bytes
from ...insight import CriticalPath, busiest_lanes, critical_path, provenance, sum_by_group
from ...profile import PROVENANCE
from ...program import Program
from ...report.report import PRICE, ROUNDING, Metric, Parts, Total, spending, sum_of
from ...report.report import Report as Base
from ...report.spending import Rates, Spending, rates
from ...timeline import Peak, Timeline, peak_bytes
from ...uncertainty import Budget, chain_intervals, errors_of_costs, latest, path_budget
from .lower import HOST_LANES
from .resolve import Resolved

PHASES: Mapping[str, str] = {
    "calls": "pause, flush, resume",
    "gather": "metadata of all tensors",
    "init": "group, buffers, IPC handle",
    "export": "gather and convert",
    "h2d": "host to device",
    "broadcast": "copy, then to all ranks",
    "write": "to each what it keeps",
    "reload": "load tensor by tensor",
    "sync": "agree and hand over",
    "release": "free all, barrier",
    "post_hook": "after loading",
}
"""What each kind of op is part of (`OpKind.step`), and what that is."""

_COUNTED = 100  # buffers with a number in their name
OWNERS = (
    "resident weights", "engine beside its weights", "ipc0", "ipc1", "h2d", "flat",
    *(f"{name}{i}" for name in ("send", "receive") for i in range(_COUNTED)),
)  # fmt: skip
"""What may hold memory of a device."""


def _busy_s(phase: str) -> Callable[["Report"], float]:
    return lambda report: report.busy_s[phase]


@dataclass(frozen=True)
class Report(Base):
    """The time of a weight update, its parts and its interval."""

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
    budget: Budget
    pause_s: float
    busy_s: Mapping[str, float]
    host_share: float
    peak: Peak
    memory_bytes: int
    busiest_link: str
    busiest_link_share: float
    rates: Rates
    engine_rates: Rates

    kind = "weight_update"
    metrics = (
        Metric("makespan_s", "s", "from the first op to the last, with what comes before the update", "lower"),
        Metric("update_time_s", "s", "from where metadata is gathered, or requests stopped", "lower", "time"),
        Metric("interval_low_s", "s", "the 5 % quantile of the update time", role="time"),
        Metric("interval_high_s", "s", "its 95 % quantile", role="time"),
        Metric("pause_s", "s", "how long rollouts stand", "lower"),
        *(
            Metric(f"{phase}_s", "s", f"any op of {phase} runs anywhere: {meaning}", "lower", "time", of=_busy_s(phase))
            for phase, meaning in PHASES.items()
        ),
        Metric("exposed", "s", "the critical path by phase", "lower", names=tuple(PHASES), sparse=True),
        Metric("provenance", "1", "share of the critical path by source of its numbers", names=PROVENANCE, sparse=True),
        Metric("bound_by", "", "the phase that holds most of the critical path of the update"),
        Metric("host_share", "1", "share of the critical path that is work of host threads alone", "lower"),
        Metric("busiest_link", "", "the link that is busy for longest"),
        Metric("busiest_link_share", "1", "share of the time in which it is"),
        Metric("peak_memory_bytes", "B", "the most that a device holds", "lower",
               of=lambda report: round(report.peak.bytes)),
        Metric("peak_memory_by_owner_bytes", "B", "what that is", "lower", names=OWNERS, sparse=True,
               of=lambda report: {name: round(size) for name, size in report.peak.held}),
        Metric("device_memory_bytes", "B", "what the smallest device has", role="input", of=attrgetter("memory_bytes")),
        Metric("fits", "1", "whether every device has the memory that it needs", "higher"),
        Metric("gpus", "1", "devices that receive weights", role="input"),
        Metric("tensors", "1", "tensors of the model", role="input"),
        Metric("bytes", "B", "bytes of the model", role="input"),
        Metric("effective_bytes_per_s", "B/s", "bytes of the model over the update time", "higher"),
        Metric("bucket_bytes", "B", "the most that a bucket holds", role="input"),
        Metric("buckets", "1", "how many there are", role="input"),
        Metric("rounds", "1", "rounds of buckets", role="input"),
        PRICE,
        *spending("spending", "during the update"),
        *spending("pause_spending", "during the pause", "_of_pause", "GPUs that receive weights"),
    )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Plain values; `errors` are those of the update time that other updates share."""
        return super().to_json() | {"errors": self.budget.to_json()}

    @property
    def fits(self) -> bool:
        """Whether every device has the memory that it needs."""
        return self.peak.bytes <= self.memory_bytes

    @property
    def memory_needs(self) -> str:
        """What a device needs of its memory, in words."""
        return f"a device needs {format_bytes(self.peak.bytes)} of {format_bytes(self.memory_bytes)}"

    @property
    def shortage(self) -> str:
        """What a device needs, where it has less; else empty."""
        return "" if self.fits else self.memory_needs

    @property
    def effective_bytes_per_s(self) -> float:
        """Bytes of the model over the update time, as published tables quote it."""
        return self.bytes / self.update_time_s

    @property
    def per_unit_s(self) -> float:
        """Seconds of an update."""
        return self.update_time_s

    @property
    def spending(self) -> Spending:
        """Cost and energy of all GPUs of the cluster during the update."""
        return self.rates.amount(self.update_time_s)

    @property
    def pause_spending(self) -> Spending:
        """Cost and energy of the GPUs that receive weights during the pause, in which they decode nothing."""
        return self.engine_rates.amount(self.pause_s)

    @property
    def bound_by(self) -> str:
        """The phase that holds most of the critical path of the update, without what precedes it, such as a drain."""
        return max(self.path_s, key=self.path_s.__getitem__)

    @property
    def path_s(self) -> dict[str, float]:
        """Seconds of the update's critical path by phase, without what precedes it."""
        return update_path_s(self.exposed, self.makespan_s, self.update_time_s)


def update_s(resolved: Resolved, timeline: Timeline) -> float:
    """Seconds of the update, as `make_report` times it."""
    return timeline.makespan_s - resolved.opening_s(timeline)


def make_report(resolved: Resolved, timeline: Timeline) -> Report:
    """Derive the report from a scenario and its Timeline.

    The update is timed from the end of the metadata gather, or for trainers from when requests have stopped. The pause
    of rollouts ends with the barrier after the post-hook, or when requests resume; it includes the drain. The interval
    holds 90 %, to first order (docs/uncertainty.md).
    """
    program, costs = timeline.program, resolved.costs
    began = resolved.opening_s(timeline)
    resumed = timeline.span_of(resolved.resuming)[1]
    path, path_of_update = critical_path(timeline), critical_path(timeline, began)
    whole_s = update_s(resolved, timeline)
    errors = errors_of_costs(costs, resolved.profile.name)
    sure = latest(chain_intervals(path_of_update, busiest_lanes(timeline, began), errors).values())
    phase_of = phase_of_op(program)
    share = costs.link_bytes / costs.capacity_bytes_per_s / timeline.makespan_s
    busiest = int(share.argmax())
    held, engines = rates(resolved.cluster), rates(resolved.cluster, resolved.plan.receivers)
    return Report(
        name=resolved.scenario.name,
        scenario_hash=resolved.hash,
        question=resolved.question,
        gpus=len(resolved.plan.receivers),
        tensors=len(resolved.weights),
        bytes=resolved.weights.total_bytes,
        bucket_bytes=resolved.plan.bucket_bytes,
        buckets=resolved.plan.n_buckets,
        rounds=resolved.plan.rounds,
        makespan_s=timeline.makespan_s,
        update_time_s=whole_s,
        interval_low_s=sure.low_s,
        interval_high_s=sure.high_s,
        budget=path_budget(path_of_update, errors, whole_s),
        pause_s=resumed - (0.0 if resolved.from_trainers else began),
        busy_s={
            phase: timeline.busy_s(*(kind for kind in program.kinds if op_kind(kind).step == phase)) for phase in PHASES
        },
        exposed=sum_by_group(path, phase_of, tuple(PHASES)),
        host_share=_host_s(path, program) / timeline.makespan_s,
        provenance=provenance(path, costs),
        peak=peak_bytes(timeline, static_bytes=_static_bytes(resolved, program.ranks)),
        memory_bytes=resolved.memory_bytes,
        busiest_link=costs.link_names[busiest],
        busiest_link_share=float(share[busiest]),
        rates=held,
        engine_rates=engines,
        notes=(*resolved.notes, *held.notes),
    )


_MOVING = ("h2d", "broadcast", "write")


def parts(_report: Report, program: Program, path: CriticalPath, class_s: Mapping[str, float]) -> Parts:
    """The parts of an update; its critical path begins with its time."""
    seconds = sum_by_group(path, phase_of_op(program), tuple(PHASES))
    moved = sum_of(seconds, _MOVING)
    return Parts(
        split_s={phase: seconds[phase] for phase in PHASES if phase in seconds},
        path_s=seconds,
        class_s=class_s,
        exposed_s=moved,
        exposed_path_s=moved,
        bubble_s=None,
        host_s=_host_s(path, program),
        slowed_s={},
    )


TOTAL_NEEDS = ("makespan_s", "update_time_s", "interval_low_s", "interval_high_s", "exposed")


def total(report: Mapping[str, Any]) -> Total:
    """The update proper."""
    update_s = report["update_time_s"]
    terms = update_path_s(report["exposed"], report["makespan_s"], update_s)
    return Total(update_s, (report["interval_low_s"], report["interval_high_s"]), terms)


def update_path_s(exposed: Mapping[str, float], makespan_s: float, update_s: float) -> dict[str, float]:
    """The critical path of the update by phase: what precedes it is subtracted from the phase of its opening.

    That is `gather` for parameter servers (metadata), and `calls` for trainers (requests stop).
    """
    opening = "gather" if exposed.get("gather") else "calls"
    left_s = exposed.get(opening, 0.0) - (makespan_s - update_s)
    rest = {phase: seconds for phase, seconds in exposed.items() if phase != opening}
    return rest | ({opening: left_s} if abs(left_s) > ROUNDING * update_s else {})


def _host_s(path: CriticalPath, program: Program) -> float:
    """Seconds of a path in ops of host threads only."""
    on_host = np.array([lane.name in HOST_LANES for lane in program.lanes])[program.lanes_of.values]
    elsewhere = np.bincount(program.lanes_of.row_of_value()[~on_host], minlength=len(program)) > 0
    return float(path.seconds[~elsewhere[path.ops]].sum())


def _static_bytes(resolved: Resolved, ranks: int) -> dict[str, NDArray[np.float64]]:
    """Bytes that a device with an engine always holds: its weights, and the rest of the engine; one per rank."""
    serves = np.isin(np.arange(ranks), resolved.engine_ranks).astype(np.float64)
    held = {"resident weights": resolved.resident_bytes}
    held |= {"engine beside its weights": resolved.engine_bytes - resolved.resident_bytes}
    return {name: size * serves for name, size in held.items() if size}


_INDEX = {phase: i for i, phase in enumerate(PHASES)}


def phase_of_op(program: Program) -> NDArray[np.int64]:
    """The index in PHASES of every op."""
    return np.array([_INDEX[op_kind(kind).step] for kind in program.kinds], np.int64)[program.kind]
