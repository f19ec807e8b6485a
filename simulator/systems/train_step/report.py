"""The Report of a training step: every headline number with its definition. Each is computed only here."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np

from ...base.arrays import Floats
from ...base.units import format_bytes, format_count
from ...costs import BUSY, PHASES, WAITS
from ...insight import (
    SLOWED,
    CriticalPath,
    busiest_lanes,
    critical_path,
    path_by_phase,
    provenance,
    slowed_s,
    split_by_place,
)
from ...models import active_params, total_params
from ...profile import PROVENANCE
from ...program import Program
from ...report.report import NOT_IN_INTERVAL, PRICE, Metric, Parts, Report, Total, spending, sum_of
from ...report.spending import Rates, Spending, rates
from ...timeline import Timeline
from ...uncertainty import KINDS, Budget, budget_line, chain_intervals, latest, path_budget
from .distance import distance_notes
from .errors import step_errors
from .flop import flop_of_sequence
from .host_memory import HostMemory, host_memory
from .memory import OWNERS, RESIDUALS, RankMemory, rank_memory
from .notes import not_in_interval, notes_of, notes_of_ends, notes_of_times
from .resolve import ResolvedTrain
from .run import OF_RUN, TrainingRun, training_run


@dataclass(frozen=True)
class TrainReport(Report):
    """The time of a training step, its parts, its interval, and the memory that it needs.

    `split_s[phase]` is in seconds, the mean over pipeline ranks: their compute lane is busy with a class of kernels or
    waits for something. The phases sum to the step. At the coarser level an action's seconds are split in the
    proportions of a simulation of the action alone. `bubble_fraction` is the share of waiting for other stages.
    `exposed` is the critical path by phase. `slowed_s` is the extra time of kernels, exchanges and copies on it because
    of ops beside them. MFU is model FLOP, without recomputation, over the dense peak of the computing type: `mfu`
    counts what a causal mask leaves, `mfu_full` whole squares of attention.
    """

    gpus: int
    step_time_s: float
    interval_low_s: float
    interval_high_s: float
    budget: Budget
    distance: tuple[str, ...]
    parameters: int
    active_parameters: int
    tokens: int
    model_flop: float
    full_flop: float
    peak_flop_per_s: float
    peak_type: str
    split_s: Mapping[str, float]
    by_rank_s: Mapping[str, tuple[float, ...]]
    slowed_s: Mapping[str, float]
    memory: tuple[RankMemory, ...]
    host: HostMemory | None
    rates: Rates
    run: TrainingRun | None
    ops: int

    kind = "train_step"
    metrics = (
        Metric("makespan_s", "s", "the step, as `step_time_s`", "lower", "time", of=attrgetter("step_time_s")),
        Metric("step_time_s", "s", "from the first op of the step to the last", "lower", "time"),
        Metric("interval_low_s", "s", "the 5 % quantile of the step time", role="time"),
        Metric("interval_high_s", "s", "its 95 % quantile", role="time"),
        Metric("uncertainty", "1", "standard deviation of the logarithm of the step time by what it is of",
               role="time", names=tuple(KINDS), sparse=True, of=lambda report: report.budget.by_kind()),
        Metric("parameters", "1", "parameters of the model, without MTP layers", role="input"),
        Metric("active_parameters", "1", "those that one token passes through", role="input"),
        Metric("flop_per_token", "1", "model FLOP of the step per token", role="input"),
        Metric("tokens", "1", "tokens of all sequences of the step", role="input"),
        Metric("tokens_per_s", "1/s", "tokens over the step time", "higher"),
        Metric("tokens_per_s_per_gpu", "1/s", "the same per GPU", "higher"),
        Metric("model_flops_per_gpu", "1", "model FLOP of the step per GPU: causal attention, no recomputation",
               role="input", of=lambda report: report.model_flop / report.gpus),
        Metric("mfu", "1", "model FLOP per second over the dense peak of all GPUs, causal attention", "higher"),
        Metric("mfu_convention", "", "what MFU counts, in words", role="input"),
        Metric("mfu_full_attention", "1", "MFU with attention counted unmasked", "higher", of=attrgetter("mfu_full")),
        Metric("bubble_fraction", "1", "share of the step in which compute lanes wait for other stages", "lower"),
        Metric("compute_s", "s", "compute lanes are busy, mean over pipeline ranks", role="time"),
        Metric("split_s", "s", "what compute lanes do or wait for, mean over pipeline ranks", "lower", names=PHASES),
        Metric("split_by_rank_s", "s", "the same for each pipeline rank", by_rank=True,
               of=lambda report: {name: list(values) for name, values in report.by_rank_s.items()}),
        Metric("exposed", "s", "the critical path by phase", "lower", names=PHASES, sparse=True),
        Metric("slowed_s", "s", "how much longer ops of the critical path take for what runs beside them", "lower",
               names=tuple(SLOWED)),
        Metric("bound_by", "", "the phase that holds most of the critical path"),
        Metric("provenance", "1", "share of the critical path by source of its numbers", names=PROVENANCE, sparse=True),
        Metric("peak_memory_bytes", "B", "the most that a device of the fullest pipeline rank holds", "lower",
               of=lambda report: round(report.peak.peak_bytes)),
        Metric("peak_memory_low_bytes", "B", "the 5 % quantile of that", role="again",
               of=lambda report: round(report.peak.interval_bytes[0])),
        Metric("peak_memory_high_bytes", "B", "its 95 % quantile", role="again",
               of=lambda report: round(report.peak.interval_bytes[1])),
        Metric("memory_by_rank_bytes", "B", "the same for each pipeline rank", by_rank=True,
               of=lambda report: [round(rank.peak_bytes) for rank in report.memory]),
        Metric("memory_by_owner_bytes", "B", "what holds the memory of the fullest rank", "lower",
               names=OWNERS, sparse=True, of=lambda report: {name: round(size) for name, size in report.peak.held}),
        Metric("device_memory_bytes", "B", "what that device has", role="input", of=attrgetter("memory_bytes")),
        Metric("fits", "1", "whether every pipeline rank fits its device, and what is offloaded its node", "higher"),
        Metric("fits_probability", "1", "the probability that every pipeline rank fits its device", "higher", "again"),
        Metric("cost", "USD", "as `cost_usd`", "lower", "again", of=attrgetter("cost_usd")),
        PRICE,
        *spending("spending", "for a step"),
        *spending("spending_per_million_tokens", "for a million tokens", "_per_million_tokens"),
        *OF_RUN,
        Metric("gpus", "1", "GPUs that train", role="input"),
        Metric("ops", "1", "ops that were simulated", role="time"),
    )  # fmt: skip
    optional = OF_RUN

    def to_json(self) -> dict[str, Any]:
        """Plain values; `distance` and `not_in_interval` are in words, and `errors` are those of the step time that
        other steps share.
        """
        words = {"distance": list(self.distance), "not_in_interval": list(self.not_in_interval)}
        return super().to_json() | words | {"errors": self.budget.to_json()}

    def shown_metrics(self) -> tuple[Metric, ...]:
        """All metrics; those of a whole run only if the scenario has a `run` table."""
        return self.metrics if self.run is not None else tuple(one for one in self.metrics if one not in OF_RUN)

    @property
    def interval_notes(self) -> tuple[str, ...]:
        """The errors that the interval of the step time is made of, and how far the step is from measured ones."""
        return budget_line(self.budget), *self.distance, *map(NOT_IN_INTERVAL.format, self.not_in_interval)

    @property
    def mfu_convention(self) -> str:
        """The definition of MFU in words."""
        return f"causal attention, no recomputation, dense {self.peak_type} peak"

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second: those of all sequences of the step over its time."""
        return self.tokens / self.step_time_s

    @property
    def tokens_per_s_per_gpu(self) -> float:
        """Tokens per second and GPU."""
        return self.tokens_per_s / self.gpus

    @property
    def per_unit_s(self) -> float:
        """Seconds per token. Comparisons use it, so that a step with twice the sequences does not count as slower."""
        return 1 / self.tokens_per_s

    @property
    def flop_per_token(self) -> float:
        """Model FLOP of the step per token, forward and backward."""
        return self.model_flop / self.tokens

    @property
    def mfu(self) -> float:
        """Model FLOP utilisation, causal attention."""
        return self.model_flop / self.gpus / self.step_time_s / self.peak_flop_per_s

    @property
    def mfu_full(self) -> float:
        """Model FLOP utilisation, with attention counted as if nothing were masked."""
        return self.full_flop / self.gpus / self.step_time_s / self.peak_flop_per_s

    @property
    def bubble_fraction(self) -> float:
        """Share of the step in which compute lanes wait for other stages."""
        return self.split_s["pipeline"] / self.step_time_s

    @property
    def compute_s(self) -> float:
        """Seconds that compute lanes are busy, mean over pipeline ranks."""
        return sum(self.split_s[phase] for phase in BUSY)

    @property
    def peak(self) -> RankMemory:
        """The pipeline rank that needs the largest share of its device's memory."""
        return max(self.memory, key=lambda rank: rank.peak_bytes / rank.device_bytes)

    @property
    def rank_names(self) -> tuple[str, ...]:
        """Display names of the entries of `memory` and `by_rank_s`."""
        mixed = len(self.memory) > len({rank.pipeline_rank for rank in self.memory})
        return tuple(f"rank {of.pipeline_rank}" + f" {of.device}" * mixed for of in self.memory)

    @property
    def memory_bytes(self) -> int:
        """Device memory in bytes of the rank in `peak`."""
        return self.peak.device_bytes

    @property
    def fits(self) -> bool:
        """Whether every pipeline rank fits its device, and what is offloaded the memory of its node."""
        return self.fits_devices and self.fits_hosts

    @property
    def fits_hosts(self) -> bool:
        """Whether what is offloaded fits the memory of each node, as far as that is known."""
        return self.host is None or self.host.fits

    @property
    def fits_devices(self) -> bool:
        """Whether every pipeline rank fits its device."""
        return all(rank.fits for rank in self.memory)

    @property
    def memory_needs(self) -> str:
        """Which pipeline rank needs most of its device's memory, and how much; or which node does not hold the rest."""
        if self.host is not None and not self.host.fits and self.fits_devices:
            needed, memory = format_bytes(self.host.needed_bytes), format_bytes(self.host.memory_bytes)
            return f"node {self.host.node} needs {needed} of {memory} of host memory for what its GPUs offload"
        peak, device = self.peak, format_bytes(self.memory_bytes)
        on = f" on {peak.device}" if len({rank.device for rank in self.memory}) > 1 else ""
        return f"pipeline rank {peak.pipeline_rank}{on} needs {format_bytes(peak.peak_bytes)} of {device}"

    @property
    def shortage(self) -> str:
        """What needs more memory than there is, in words; empty where all fits."""
        return "" if self.fits else self.memory_needs

    def hold_residuals(self, size_bytes: float) -> "TrainReport":
        """The report of a step whose GPUs keep so many bytes of gradients that compression did not send."""
        return replace(self, memory=tuple(rank.hold_more(RESIDUALS, size_bytes) for rank in self.memory))

    @property
    def fits_probability(self) -> float:
        """The probability that every pipeline rank fits its device. All ranks share one error, so the least certain
        one decides. Zero where what is offloaded does not fit its node: of that no error is known.
        """
        return min(rank.fits_probability for rank in self.memory) if self.fits_hosts else 0.0

    @property
    def spending(self) -> Spending:
        """Cost and maximum energy of all GPUs for the step."""
        return self.rates.amount(self.step_time_s)

    @property
    def spending_per_million_tokens(self) -> Spending:
        """Cost and maximum energy of all GPUs per million tokens."""
        return self.spending.per(self.tokens / 1e6)

    @property
    def cost_usd(self) -> float | None:
        """Price of the GPUs for the step in USD; None if neither the catalogue nor the user states one."""
        return self.spending.cost_usd


def make_train_report(resolved: ResolvedTrain, timeline: Timeline) -> TrainReport:
    """Derive the report from a resolved scenario and its Timeline.

    The interval is the 90 % interval to first order, as a factor (docs/uncertainty.md).
    """
    costs, plan, batch = resolved.costs, resolved.plan, resolved.scenario.batch
    path, held = critical_path(timeline), rates(resolved.cluster)
    step = timeline.makespan_s
    errors = step_errors(resolved)
    intervals = chain_intervals(path, busiest_lanes(timeline), errors)
    sure = latest(intervals.values())
    split = split_by_place(timeline, mix=resolved.mix)
    peak_type, exposed = resolved.peak_type, _by_phase(path, timeline, resolved)
    tokens, run = batch.global_ * batch.seq_len, resolved.scenario.run
    slowed = slowed_s(path, timeline.program, costs)
    causal, full = flop_of_sequence(resolved, plan)
    return TrainReport(
        name=resolved.scenario.name,
        scenario_hash=resolved.hash,
        question=_question(resolved),
        gpus=plan.dims.world_size,
        step_time_s=step,
        interval_low_s=sure.low_s,
        interval_high_s=sure.high_s,
        budget=path_budget(path, errors, step),
        distance=tuple(distance_notes(resolved)),
        parameters=total_params(resolved.spec),
        active_parameters=active_params(resolved.spec),
        tokens=tokens,
        model_flop=causal * batch.global_,
        full_flop=full * batch.global_,
        peak_flop_per_s=mean_peak(resolved),
        peak_type=peak_type,
        split_s=dict(zip(PHASES, _mean_split(split, timeline.program).tolist(), strict=True)),
        by_rank_s={phase: tuple(split[:, i].tolist()) for i, phase in enumerate(PHASES)},
        exposed=exposed,
        slowed_s=slowed,
        provenance=provenance(path, costs),
        memory=rank_memory(resolved, timeline),
        rates=held,
        run=training_run(run, tokens, step, held) if run is not None else None,
        ops=len(timeline.program),
        host=host_memory(resolved, timeline),
        notes=(
            *notes_of(resolved),
            *notes_of_times(resolved, path, slowed),
            *notes_of_ends(intervals),
            *held.notes,
        ),
        not_in_interval=tuple(not_in_interval(resolved, step)),
    )


_AXES = tuple(phase for phase in WAITS if phase not in ("pipeline", "host", "offload"))


def parts(report: TrainReport, _program: Program, _path: CriticalPath, class_s: Mapping[str, float]) -> Parts:
    """The parts of a step's time, for `compare` and `explain`."""
    split = {phase: seconds for phase, seconds in report.split_s.items() if seconds}
    return Parts(
        split_s=split,
        path_s=report.exposed,
        class_s=class_s,
        exposed_s=sum_of(split, _AXES),
        exposed_path_s=sum_of(report.exposed, (*_AXES, "pipeline")),
        bubble_s=report.split_s["pipeline"],
        host_s=report.exposed.get("host", 0.0),
        slowed_s=report.slowed_s,
    )


TOTAL_NEEDS = ("makespan_s", "interval_low_s", "interval_high_s", "split_s")


def total(report: Mapping[str, Any]) -> Total:
    """The step time and its parts, from a report as JSON."""
    return Total(report["makespan_s"], (report["interval_low_s"], report["interval_high_s"]), report["split_s"])


def _mean_split(split: Floats, program: Program) -> Floats:
    """The mean over ranks of the result of `split_by_place`."""
    ranks = np.array([len(place.ranks) for place in program.places])
    return np.asarray(np.average(split, axis=0, weights=ranks / ranks.min()))


def mean_peak(resolved: ResolvedTrain) -> float:
    """Dense peak of the computing type in FLOP/s, mean over GPUs."""
    peaks = [node.device.peak_flop_per_s[resolved.peak_type] for node in resolved.cluster.nodes]
    return float(np.average(peaks, weights=resolved.cluster.gpus_per_node))


def _by_phase(path: CriticalPath, timeline: Timeline, resolved: ResolvedTrain) -> dict[str, float]:
    """Seconds of the critical path by phase, largest first, without empty phases."""
    seconds = path_by_phase(path, timeline.program, resolved.mix)
    return {PHASES[i]: float(seconds[i]) for i in np.argsort(-seconds, kind="stable") if seconds[i] > 0}


def _question(resolved: ResolvedTrain) -> str:
    """One line that says what was simulated; the scenario's name may not."""
    machines, plan, batch = resolved.cluster, resolved.plan, resolved.scenario.batch
    dims = plan.dims
    sizes = [f"{name.upper()}{size}" for name in ("tp", "cp", "pp", "dp", "ep") if (size := getattr(dims, name)) > 1]
    devices = " and ".join(device.name for device in resolved.devices)
    steps = f"{format_count(resolved.microbatches, 'micro-batch')} of {batch.micro} x {batch.seq_len:,} tokens"
    schedule = f", {plan.grid.name}" if dims.pp > 1 else ""
    model = f"{plan.spec.name} {resolved.scenario.precision.compute}"
    layout = " ".join(sizes) or "1 GPU"
    return f"{model} on {machines.n_gpus:,} x {devices}: {layout}{schedule}, {steps}"
