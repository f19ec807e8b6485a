"""The Report of a run: every headline number with its definition."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot, log
from operator import attrgetter
from statistics import stdev
from typing import Any

from ...profile import PROVENANCE, Z90
from ...report.report import PRICE, Metric, Report, Total, spending
from ...report.spending import Rates, Spending, rates
from ..train_step.report import TrainReport
from .history import CAUSES, History
from .resolve import ResolvedRun

KEPT = ("compute", "exchange", "wait", "encode", "input")
"""Causes of which steps that are kept consist."""

_COUNTED = 10_000  # updates behind


@dataclass(frozen=True)
class RunReport(Report):
    """The time of a run and where it went.

    `history` is the run with the scenario's seed. `spread` is the standard deviation of the logarithm of its speed, of
    random numbers and of the predicted step together.
    """

    history: History
    spread: float
    wall_is_given: bool
    mode: str
    workers: int
    gpus: int
    unit: str
    step_s: float
    checkpoint_interval_s: float | None
    mtbf_s: float | None
    residual_bytes: float
    rates: Rates
    step: TrainReport | None

    kind = "run"
    metrics = (
        Metric("wall_s", "s", "from the start of the run to its end", "lower", "time"),
        Metric("makespan_s", "s", "as `wall_s`", "lower", "again", of=attrgetter("wall_s")),
        Metric("wall_low_s", "s", "the 5 % quantile of `wall_s`; equal to it where the time is given", role="time",
               of=lambda report: report.wall_interval_s[0]),
        Metric("wall_high_s", "s", "its 95 % quantile", role="time",
               of=lambda report: report.wall_interval_s[1]),
        Metric("goodput", "1", "share of the run in steps that are kept, with what these wait for", "higher"),
        Metric("steps", "1", "steps of each worker that are kept; of servers: updates of the model", "higher"),
        Metric("samples", "1", "tokens or samples that these train on", "higher"),
        Metric("tokens_per_s", "1/s", "the same per second of the run", "higher"),
        Metric("tokens_per_s_low", "1/s", "its 5 % quantile", role="again",
               of=lambda report: report.rate_interval[0]),
        Metric("tokens_per_s_high", "1/s", "its 95 % quantile", role="again",
               of=lambda report: report.rate_interval[1]),
        Metric("breakdown_s", "s", "where the time went, mean over workers; adds up to `wall_s`", "lower",
               names=tuple(CAUSES), sparse=True, of=attrgetter("history.breakdown_s")),
        Metric("staleness_mean", "1", "updates of the model while a gradient was computed, on average", "lower",
               of=attrgetter("history.staleness_mean")),
        Metric("staleness", "1", "gradients by how many updates they were behind", sparse=True,
               names=tuple(map(str, range(_COUNTED))),
               of=lambda report: {str(age): count for age, count in sorted(report.history.staleness.items())}),
        Metric("counts", "1", "what happened, and how often", sparse=True, names=(
            "failures", "stops", "checkpoints", "speed", "resize",
            "dropped", "late", "rounds_lost", "server_bytes", "client_bytes",
            "preemptions", "queue_mean_s", "queue_p95_s", "utilization",
        ), of=attrgetter("history.counts")),
        Metric("mode", "", "how workers keep in step", role="input"),
        Metric("workers", "1", "workers", role="input"),
        Metric("gpus", "1", "GPUs that train", role="input"),
        Metric("worker_step_s", "s", "a worker's step when nothing disturbs it", role="input", of=attrgetter("step_s")),
        Metric("checkpoint_interval_s", "s", "work between two checkpoints", role="input"),
        Metric("mtbf_s", "s", "mean time between failures that stop the run", role="input"),
        Metric("residual_bytes", "B", "what compression keeps of gradients between steps, per GPU", "lower"),
        PRICE,
        *spending("spent", "for the run"),
        *spending("spent_per_million", "for a million tokens or samples", "_per_million_tokens"),
        Metric("exposed", "s", "as `breakdown_s`", "lower", "again", names=tuple(CAUSES), sparse=True),
        Metric("bound_by", "", "the cause that holds most of the time"),
        Metric("provenance", "1", "share of the time by source of its numbers", sparse=True,
               names=("given", *PROVENANCE)),
        Metric("peak_memory_bytes", "B", "the most that a device holds in a step", "lower",
               of=lambda report: None if report.step is None else round(report.step.peak.peak_bytes)),
        Metric("step", "", "the report of a worker's step, where that is predicted", inner="train_step",
               of=lambda report: None if report.step is None else report.step.to_json()),
    )  # fmt: skip

    @property
    def wall_s(self) -> float:
        """From the start of the run to its end."""
        return self.history.wall_s

    @property
    def steps(self) -> int:
        """Steps that are kept."""
        return self.history.steps

    @property
    def samples(self) -> float:
        """What they train on."""
        return self.history.samples

    @property
    def tokens_per_s(self) -> float:
        """Samples per second."""
        return self.samples / self.wall_s if self.wall_s else 0.0

    @property
    def goodput(self) -> float:
        """The share of the run in steps that are kept."""
        kept_s = sum(self.history.breakdown_s.get(cause, 0.0) for cause in KEPT)
        return kept_s / self.wall_s if self.wall_s else 0.0

    @property
    def _factor(self) -> float:
        return exp(Z90 * self.spread)

    @property
    def rate_interval(self) -> tuple[float, float]:
        """The 5 % and 95 % quantiles of the throughput."""
        return self.tokens_per_s / self._factor, self.tokens_per_s * self._factor

    @property
    def wall_interval_s(self) -> tuple[float, float]:
        """The 5 % and 95 % quantiles of the time; equal to it where it is given."""
        factor = 1.0 if self.wall_is_given else self._factor
        return self.wall_s / factor, self.wall_s * factor

    @property
    def spent(self) -> Spending:
        """Cost and energy of all GPUs of all nodes, of spare ones too, from start to end."""
        return self.rates.amount(self.wall_s)

    @property
    def spent_per_million(self) -> Spending:
        """The same per million samples."""
        return self.spent.per(max(self.samples, 1.0) / 1e6)


def make_run_report(resolved: ResolvedRun, histories: Sequence[History]) -> RunReport:
    """The report of a run that was simulated once or more often; the first one is shown."""
    first, step = histories[0], resolved.step
    speeds = [log(one.samples / one.wall_s) for one in histories if one.samples and one.wall_s]
    of_seeds = stdev(speeds) if len(speeds) > 1 else 0.0
    step_share = sum(first.breakdown_s.get(cause, 0.0) for cause in ("compute", "wait")) / (first.wall_s or 1.0)
    of_step = 0.0 if step is None else log(step.report.interval_high_s / step.report.interval_low_s) / (2 * Z90)
    held = rates(resolved.cluster)
    return RunReport(
        name=resolved.scenario.name,
        scenario_hash=resolved.hash,
        question=resolved.mode.question(resolved),
        exposed=first.breakdown_s,
        provenance=_provenance(step.report if step is not None else None, step_share),
        notes=(*resolved.notes, *held.notes),
        history=first,
        spread=hypot(of_seeds, of_step * step_share),
        wall_is_given=resolved.scenario.run.wall == first.wall_s,
        mode=resolved.mode.name,
        workers=resolved.workers if resolved.mode.has_workers else 0,
        gpus=resolved.training_gpus if resolved.mode.has_workers else resolved.cluster.n_gpus,
        unit=resolved.scenario.step.unit or resolved.mode.unit,
        step_s=resolved.step_s,
        checkpoint_interval_s=resolved.work_s,
        mtbf_s=resolved.mtbf_s if resolved.mtbf_s < float("inf") else None,
        residual_bytes=resolved.residual_bytes,
        rates=held,
        step=step.report if step is not None else None,
    )


def _provenance(step: TrainReport | None, share: float) -> dict[str, float]:
    """The provenance of the time; `share` of it is steps."""
    if step is None:
        return {"given": 1.0}
    return {"given": 1 - share} | {name: share * part for name, part in step.provenance.items()}


TOTAL_NEEDS = ("wall_s", "exposed")


def total(report: Mapping[str, Any]) -> Total:
    """The time of the run, its interval, and where it went."""
    interval = (report["wall_low_s"], report["wall_high_s"]) if "wall_low_s" in report else None
    return Total(report["wall_s"], interval, report["exposed"])
