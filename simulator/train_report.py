"""The Report of a training step: every headline number, derived once, here, with its definition.

A pipeline rank's step is split without remainder: its compute lane is busy with kernels of a class, or idle until
something ends, and then the gap is named after that: an exchange of an axis, a stage elsewhere (`pipeline`), the host.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .insight import Z90, by_group, critical_path, provenance, standard_error_s
from .program import Program
from .scenario import ResolvedTrain
from .timeline import Timeline
from .train_flop import model_flop
from .train_memory import RankMemory, rank_memory

BUSY = ("gemm", "attention", "experts", "memory", "optimizer", "coarse")
WAITS = ("tp", "cp", "ep", "dp", "fsdp", "pipeline", "host", "offload")
PHASES = (*BUSY, *WAITS)
_LANES = {"compute": "dp", 
    "etp": "ep", "edp": "dp", "h2d": "offload", "d2h": "offload", "host": "host", "rows": "dp", "fusion": "dp",
    "tp_row": "tp", "tp_col": "tp",
}  # fmt: skip
_COMPUTE = "compute"


@dataclass(frozen=True)
class TrainReport:
    """What a training step takes, why, how sure that is, and what memory it needs.

    `split_s[phase]` is the mean over pipeline ranks of the seconds that their compute lane is busy with a class of
    kernels or waits for something; they sum to the step. `bubble_fraction` is the share that it waits for other stages.
    `exposed` is the critical path by the same names. MFU is model FLOP, recomputation not counted, over the dense peak
    of the computing type: `mfu` counts what a causal mask leaves, `mfu_full` whole squares of attention.
    """

    name: str
    scenario_hash: str
    question: str
    gpus: int
    step_time_s: float
    interval_low_s: float
    interval_high_s: float
    tokens: int
    model_flop: float
    full_flop: float
    peak_flop_per_s: float
    peak_type: str
    split_s: Mapping[str, float]
    by_rank_s: Mapping[str, tuple[float, ...]]
    exposed: Mapping[str, float]
    provenance: Mapping[str, float]
    memory: tuple[RankMemory, ...]
    memory_bytes: int
    price_usd_per_hour: float | None
    ops: int
    notes: tuple[str, ...]

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all sequences of the step over its time."""
        return self.tokens / self.step_time_s

    @property
    def tokens_per_s_per_gpu(self) -> float:
        """The same per GPU."""
        return self.tokens_per_s / self.gpus

    @property
    def mfu(self) -> float:
        """Model FLOP utilisation, causal attention."""
        return self.model_flop / self.gpus / self.step_time_s / self.peak_flop_per_s

    @property
    def mfu_full(self) -> float:
        """The same with attention counted as if nothing were masked."""
        return self.full_flop / self.gpus / self.step_time_s / self.peak_flop_per_s

    @property
    def bubble_fraction(self) -> float:
        """Share of the step that compute lanes wait for other stages."""
        return self.split_s["pipeline"] / self.step_time_s

    @property
    def compute_s(self) -> float:
        """Seconds that compute lanes are busy, mean over pipeline ranks."""
        return sum(self.split_s[phase] for phase in BUSY)

    @property
    def peak(self) -> RankMemory:
        """The pipeline rank that needs most memory."""
        return max(self.memory, key=lambda rank: rank.peak_bytes)

    @property
    def fits(self) -> bool:
        """Whether every pipeline rank fits its device."""
        return self.peak.peak_bytes <= self.memory_bytes

    @property
    def cost_usd(self) -> float | None:
        """Price of the GPUs for the step, where the catalogue or the user's file has one."""
        price = self.price_usd_per_hour
        return None if price is None else price * self.gpus * self.step_time_s / 3600

    @property
    def bound_by(self) -> str:
        """What holds most of the critical path."""
        return next(iter(self.exposed))

    def to_json(self) -> dict[str, Any]:
        """The report as plain values; durations in seconds, sizes in bytes."""
        return {
            "kind": "train_step",
            "name": self.name,
            "question": self.question,
            "scenario_hash": self.scenario_hash,
            "makespan_s": self.step_time_s,
            "step_time_s": self.step_time_s,
            "interval_low_s": self.interval_low_s,
            "interval_high_s": self.interval_high_s,
            "tokens": self.tokens,
            "tokens_per_s": self.tokens_per_s,
            "tokens_per_s_per_gpu": self.tokens_per_s_per_gpu,
            "model_flops_per_gpu": self.model_flop / self.gpus,
            "mfu": self.mfu,
            "mfu_convention": f"causal attention, no recomputation, dense {self.peak_type} peak",
            "mfu_full_attention": self.mfu_full,
            "bubble_fraction": self.bubble_fraction,
            "compute_s": self.compute_s,
            "split_s": dict(self.split_s),
            "split_by_rank_s": {name: list(values) for name, values in self.by_rank_s.items()},
            "exposed": dict(self.exposed),
            "bound_by": self.bound_by,
            "provenance": dict(self.provenance),
            "peak_memory_bytes": round(self.peak.peak_bytes),
            "memory_by_rank_bytes": [round(rank.peak_bytes) for rank in self.memory],
            "memory_by_owner_bytes": {name: round(size) for name, size in self.peak.held},
            "device_memory_bytes": self.memory_bytes,
            "fits": self.fits,
            "cost": self.cost_usd,
            "gpus": self.gpus,
            "ops": self.ops,
            "notes": list(self.notes),
        }


def make_train_report(resolved: ResolvedTrain, timeline: Timeline) -> TrainReport:
    """Derive the report from a scenario and its Timeline.

    The interval holds 90 %: first order from the spread of each cost class on the critical path, as a factor.
    """
    costs, plan, batch = resolved.costs, resolved.plan, resolved.scenario.batch
    path = critical_path(timeline)
    step = timeline.makespan_s
    reach = np.exp(Z90 * standard_error_s(path, costs) / step)
    by_rank = split_by_rank(timeline)
    peak_type = resolved.peak_type
    return TrainReport(
        name=resolved.scenario.name,
        scenario_hash=resolved.hash,
        question=_question(resolved),
        gpus=plan.dims.world_size,
        step_time_s=step,
        interval_low_s=float(step / reach),
        interval_high_s=float(step * reach),
        tokens=batch.global_ * batch.seq_len,
        model_flop=model_flop(plan, batch.global_, causal=True),
        full_flop=model_flop(plan, batch.global_, causal=False),
        peak_flop_per_s=min(device.peak_flop_per_s[peak_type] for device in resolved.devices),
        peak_type=peak_type,
        split_s={phase: float(np.mean(values)) for phase, values in by_rank.items()},
        by_rank_s={phase: tuple(values.tolist()) for phase, values in by_rank.items()},
        exposed=by_group(path, _phase_of_op(timeline), PHASES),
        provenance=provenance(path, costs),
        memory=rank_memory(resolved, timeline),
        memory_bytes=resolved.memory_bytes,
        price_usd_per_hour=resolved.devices[0].price_usd_per_hour,
        ops=len(timeline.program),
        notes=resolved.notes,
    )


def split_by_rank(timeline: Timeline) -> dict[str, NDArray[np.float64]]:
    """Seconds per pipeline rank by phase, shape [ranks] each; over all phases they sum to the makespan."""
    program, phase = timeline.program, _phase_of_op(timeline)
    found = {name: np.zeros(len(program.places)) for name in PHASES}
    for lane, at in enumerate(program.lanes):
        if at.name != _COMPUTE:
            continue
        ops = program.order[lane]
        start, end = timeline.start_s[ops], timeline.end_s[ops]
        busy = np.bincount(phase[ops], end - start, minlength=len(PHASES))
        gap = start - np.concatenate(([0.0], end[:-1]))
        idle = np.bincount(_waited_for(timeline, phase, ops), gap, minlength=len(PHASES))
        last = timeline.makespan_s - (end[-1] if len(end) else 0.0)
        for i, name in enumerate(PHASES):
            found[name][at.place] += busy[i] + idle[i]
        found[_trailing(timeline, at.place)][at.place] += last
    return found


def _waited_for(timeline: Timeline, phase: NDArray[np.int64], ops: NDArray[np.int64]) -> NDArray[np.int64]:
    """The phase of what each op was let go by; compute elsewhere is a stage of the pipeline."""
    cause = timeline.cause[ops]
    waited = phase[cause]
    waited[(cause < 0) | (waited < len(BUSY))] = PHASES.index("pipeline")
    return waited


def _trailing(timeline: Timeline, place: int) -> str:
    """What a rank waits for behind its last kernel: its own weights being gathered, or other stages."""
    program = timeline.program
    own = [lane for lane, at in enumerate(program.lanes) if at.place == place and at.name != _COMPUTE]
    late = [(timeline.end_s[program.order[lane][-1]], lane) for lane in own if len(program.order[lane])]
    end, lane = max(late, default=(0.0, -1))
    return _lane_phase(program.lanes[lane].name) if end >= timeline.makespan_s else "pipeline"


def _phase_of_op(timeline: Timeline) -> NDArray[np.int64]:
    """The phase of every op: of kernels by kind, of exchanges by lane."""
    program = timeline.program
    of_lane = np.array([PHASES.index(_lane_phase(lane.name)) for lane in program.lanes], np.int64)
    of_kind = np.array([_kernel_phase(kind) for kind in program.kinds], np.int64)
    own = of_kind[program.kind]
    return np.where(own >= 0, own, of_lane[_traffic_lane(program)])


def _traffic_lane(program: Program) -> NDArray[np.int64]:
    """The first lane of each op that is not a compute lane, where it has one."""
    lanes, op = program.lanes_of.values, program.lanes_of.row_of_value()
    kernels = np.array([lane.name == _COMPUTE for lane in program.lanes])[lanes]
    found = lanes[program.lanes_of.start[:-1]].copy()
    found[op[~kernels][::-1]] = lanes[~kernels][::-1]
    return found


def _lane_phase(lane: str) -> str:
    """Of an exchange on a lane; on a compute lane alone ranks agree on the norm of gradients."""
    name = _LANES.get(lane, lane)
    return name if name in WAITS else "pipeline"


def _kernel_phase(kind: str) -> int:
    if kind in _EXCHANGES:
        return -1
    name = _KERNELS.get(kind, "memory")
    return PHASES.index(name)


_KERNELS = {
    **dict.fromkeys(("gemm", "dgrad", "wgrad"), "gemm"),
    **dict.fromkeys(("attention", "attention_backward"), "attention"),
    **dict.fromkeys(("experts", "experts_dgrad", "experts_wgrad"), "experts"),
    **dict.fromkeys(("adamw", "grad_norm"), "optimizer"),
    "actions": "coarse",
}
_EXCHANGES = {
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv", "h2d", "d2h",
    "issue", "host_adam", "cycle",
}  # fmt: skip


def _question(resolved: ResolvedTrain) -> str:
    """What was simulated, in one line; the name may say anything."""
    machines, plan, batch = resolved.cluster, resolved.plan, resolved.scenario.batch
    dims = plan.dims
    sizes = [f"{name.upper()}{size}" for name in ("tp", "cp", "pp", "dp", "ep") if (size := getattr(dims, name)) > 1]
    devices = " and ".join(device.name for device in resolved.devices)
    steps = f"{resolved.microbatches} micro-batches of {batch.micro} x {batch.seq_len:,} tokens"
    schedule = f", {plan.grid.name}" if dims.pp > 1 else ""
    model = f"{plan.spec.name} {resolved.scenario.precision.compute}"
    layout = " ".join(sizes) or "1 GPU"
    return f"{model} on {machines.n_gpus:,} x {devices}: {layout}{schedule}, {steps}"
