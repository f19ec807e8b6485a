"""The Report of a run: every headline number with its definition."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from operator import attrgetter
from typing import Any

from ...profile import PROVENANCE
from ...report.report import PRICE, Metric, Report, Total, spending, sum_of
from ...report.spending import Rates, Spending, rates
from ..train_step.report import TrainReport
from .history import CAUSES, KEPT, OF_FAILURES, History
from .intervals import (
    Range,
    certain_of,
    price_width,
    priced_shares,
    range_of,
    range_with_failures,
    shipped_run_errors,
    step_share,
)
from .resolve import ResolvedRun

_COUNTED = 10_000  # updates behind


@dataclass(frozen=True)
class Ranges:
    """Where runs like this one lie. `rate` is samples per second.

    Of the time and the steps one is given; where both are, neither is more than that.
    """

    wall_s: Range
    steps: Range
    rate: Range
    goodput: Range
    failures: Range


@dataclass(frozen=True)
class RunReport(Report):
    """The time of a run and where it went.

    `history` is the run with the scenario's seed and failure rates as stated, and headline numbers are those of it;
    `undisturbed` the same without failures, where causes alone do not tell what these cost.
    `ranges` are those of such runs, about the mean of all repeats: a number of this one may be outside.
    """

    history: History
    undisturbed: History | None
    ranges: Ranges
    wall_is_given: bool
    deadline_s: float | None
    mode: str
    workers: int
    gpus: int
    unit: str
    step_s: float
    checkpoint_interval_s: float | None
    checkpoint_interval_by: str | None
    checkpoint_steps: int | None
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
        Metric("deadline_s", "s", "when the run should have ended", role="input"),
        Metric("deadline_probability", "1", "how likely a run like this one has ended by then", "higher"),
        Metric("goodput", "1", "share of the run in steps that are kept, with what these wait for", "higher"),
        Metric("goodput_low", "1", "its 5 % quantile", role="again", of=lambda report: report.goodput_interval[0]),
        Metric("goodput_high", "1", "its 95 % quantile", role="again", of=lambda report: report.goodput_interval[1]),
        Metric("steps", "1", "steps of each worker that are kept; of servers: updates of the model", "higher"),
        Metric("steps_low", "1", "their 5 % quantile; equal to them where the time is not given", role="again",
               of=lambda report: report.steps_interval[0]),
        Metric("steps_high", "1", "their 95 % quantile", role="again", of=lambda report: report.steps_interval[1]),
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
        Metric("failures_low", "1", "the 5 % quantile of `counts.failures`", role="again",
               of=lambda report: report.failures_interval[0]),
        Metric("failures_high", "1", "its 95 % quantile", role="again",
               of=lambda report: report.failures_interval[1]),
        Metric("failures_cost_s", "s", "time beyond that of a run in which nothing fails or turns slow, for as many "
               "samples: `lost`, `detect`, `restart`, `resize`, `repair`, and what steps take longer",
               "lower", "again"),
        Metric("failures_cost_usd", "USD", "what all GPUs cost in that time", "lower"),
        Metric("mode", "", "how workers keep in step", role="input"),
        Metric("workers", "1", "workers", role="input"),
        Metric("gpus", "1", "GPUs that train", role="input"),
        Metric("worker_step_s", "s", "a worker's step when nothing disturbs it", role="input", of=attrgetter("step_s")),
        Metric("checkpoint_interval_s", "s", "work between two checkpoints, in whole steps", role="input"),
        Metric("checkpoint_interval_by", "", "what sets it: `given`, `Daly's optimum`, or a floor: `ten times its "
               "writing` or `the fewest steps`, which are ten", role="input"),
        Metric("mtbf_s", "s", "mean time between failures that stop the run", role="input"),
        Metric("residual_bytes", "B", "what compression keeps of gradients between steps, per GPU", "lower"),
        PRICE,
        *spending("spent", "for the run"),
        Metric("cost_low_usd", "USD", "the 5 % quantile of `cost_usd`, by that of the time at this price", role="again",
               of=lambda report: report.cost_interval_usd[0]),
        Metric("cost_high_usd", "USD", "its 95 % quantile", role="again",
               of=lambda report: report.cost_interval_usd[1]),
        *spending("spent_per_million", "for a million tokens or samples", "_per_million_tokens"),
        Metric("cost_low_usd_per_million_tokens", "USD", "the 5 % quantile of `cost_usd_per_million_tokens`, by "
               "that of the throughput at this price", role="again",
               of=lambda report: report.cost_per_million_interval_usd[0]),
        Metric("cost_high_usd_per_million_tokens", "USD", "its 95 % quantile", role="again",
               of=lambda report: report.cost_per_million_interval_usd[1]),
        Metric("exposed", "s", "as `breakdown_s`", "lower", "again", names=tuple(CAUSES), sparse=True),
        Metric("bound_by", "", "the cause that holds most of the time"),
        Metric("provenance", "1", "share of the time by source of its numbers", sparse=True,
               names=("given", *PROVENANCE)),
        Metric("peak_memory_bytes", "B", "the most that a device holds in a step", "lower",
               of=lambda report: None if report.step is None else round(report.step.peak.peak_bytes)),
        Metric("fits", "1", "whether a worker's step fits its devices, where that is predicted", "higher"),
        Metric("step", "", "the report of a worker's step, where that is predicted", inner="train_step",
               of=lambda report: None if report.step is None else report.step.to_json()),
    )  # fmt: skip

    @property
    def wall_s(self) -> float:
        """From the start of the run to its end."""
        return self.history.wall_s

    @property
    def fits(self) -> bool | None:
        """Whether a worker's step fits; None where that is not predicted."""
        return None if self.step is None else self.step.fits

    @property
    def shortage(self) -> str:
        """What a worker's step lacks of memory, in words; empty where it fits, or is not predicted."""
        return "" if self.step is None else self.step.shortage

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
        return rate_of(self.history)

    @property
    def goodput(self) -> float:
        """The share of the run in steps that are kept."""
        return goodput_of(self.history)

    @property
    def spread(self) -> float:
        """The standard deviation of the logarithm of the throughput."""
        return self.ranges.rate.spread

    @property
    def rate_interval(self) -> tuple[float, float]:
        """The 5 % and 95 % quantiles of the throughput."""
        return self.ranges.rate.ends()

    @property
    def wall_interval_s(self) -> tuple[float, float]:
        """The 5 % and 95 % quantiles of the time; equal to it where it is given."""
        return self.ranges.wall_s.ends()

    @property
    def deadline_probability(self) -> float | None:
        """How likely a run like this one has ended by its deadline; None without one."""
        return None if self.deadline_s is None else self.ranges.wall_s.share_below(self.deadline_s)

    @property
    def goodput_interval(self) -> tuple[float, float]:
        """The 5 % and 95 % quantiles of the goodput."""
        return self.ranges.goodput.ends()

    @property
    def steps_interval(self) -> tuple[float, float]:
        """The 5 % and 95 % quantiles of the steps; equal to them where the time is not given."""
        return self.ranges.steps.ends()

    @property
    def failures_interval(self) -> tuple[float, float]:
        """The 5 % and 95 % quantiles of how many failures there are."""
        return self.ranges.failures.ends()

    @property
    def spent(self) -> Spending:
        """Cost and energy of all GPUs of all nodes, of spare ones too, from start to end."""
        return self.rates.amount(self.wall_s)

    @property
    def cost_interval_usd(self) -> tuple[float | None, float | None]:
        """The cost of the 5 % and 95 % quantiles of the time; None where no price is known."""
        low, high = (self.rates.amount(seconds).cost_usd for seconds in self.wall_interval_s)
        return low, high

    @property
    def cost_per_million_interval_usd(self) -> tuple[float | None, float | None]:
        """The cost of a million samples at the quantiles of the throughput; None where no price is known."""
        slow, fast = self.rate_interval
        low, high = (self.rates.amount(1e6 / rate if rate else 0.0).cost_usd for rate in (fast, slow))
        return low, high

    @property
    def failures_cost_s(self) -> float | None:
        """The time beyond that of a run in which nothing fails, for as many samples; None of a run without workers."""
        if not self.workers:
            return None
        if self.undisturbed is None or not self.undisturbed.samples:
            return sum_of(self.history.breakdown_s, OF_FAILURES)
        return max(self.wall_s - self.samples / rate_of(self.undisturbed), 0.0)

    @property
    def failures_cost_usd(self) -> float | None:
        """What all GPUs cost in that time."""
        return None if self.failures_cost_s is None else self.rates.amount(self.failures_cost_s).cost_usd

    @property
    def spent_per_million(self) -> Spending:
        """The same per million samples."""
        return self.spent.per(max(self.samples, 1.0) / 1e6)


def rate_of(history: History) -> float:
    """Samples per second."""
    return history.samples / history.wall_s if history.wall_s else 0.0


def goodput_of(history: History) -> float:
    """The share of the time in steps that are kept; a sum of all causes may be off the time by rounding."""
    kept_s = sum_of(history.breakdown_s, KEPT)
    return min(kept_s / history.wall_s, 1.0) if history.wall_s else 0.0


def make_run_report(resolved: ResolvedRun, histories: Sequence[History]) -> RunReport:
    """The report of a run that was simulated once or more often; the first one is shown."""
    first, step = histories[0], resolved.step
    held, ranges = rates(resolved.cluster), _ranges(resolved, histories)
    return RunReport(
        name=resolved.scenario.name,
        scenario_hash=resolved.hash,
        question=resolved.mode.question(resolved),
        exposed=first.breakdown_s,
        provenance=_provenance(resolved, first),
        notes=(*resolved.notes, *first.notes, *held.notes),
        history=first,
        undisturbed=resolved.undisturbed(first),
        ranges=ranges,
        wall_is_given=resolved.scenario.run.wall is not None and len(set(ranges.wall_s.ends())) == 1,
        deadline_s=resolved.scenario.run.deadline,
        mode=resolved.mode.name,
        workers=resolved.workers if resolved.mode.has_workers else 0,
        gpus=resolved.training_gpus if resolved.mode.has_workers else resolved.cluster.n_gpus,
        unit=resolved.scenario.step.unit or resolved.mode.unit,
        step_s=resolved.step_s,
        checkpoint_interval_s=None if (saved := resolved.saved_every) is None else saved.seconds,
        checkpoint_interval_by=None if saved is None else saved.by,
        checkpoint_steps=None if saved is None else saved.steps,
        mtbf_s=resolved.mtbf_s if resolved.mtbf_s < float("inf") else None,
        residual_bytes=resolved.residual_bytes,
        rates=held,
        step=step.report if step is not None else None,
    )


def _ranges(resolved: ResolvedRun, histories: Sequence[History]) -> Ranges:
    errors, mode = shipped_run_errors(), resolved.mode.name
    of_time, of_failures = (errors.width(name, mode) for name in ("time", "failures"))
    open_widths = price_width(resolved, histories[0]), of_time
    certain = certain_of(resolved, histories)

    def range_(values: Iterable[float], power: int, *more: float, least: float = 0.0, most: float = inf) -> Range:
        return replace(range_with_failures(values, histories, power, *more), least=least, most=most)

    most_s, most_steps = resolved.scenario.run.wall or inf, max(resolved.steps, *(one.steps for one in histories), 0)
    walls_s = [one.wall_s / resolved.share_done(one) for one in histories]  # of all steps, if the time ended some
    in_time = [one.steps * most_s / one.wall_s for one in histories] if most_s < inf else []
    return Ranges(
        wall_s=Range(most_s)
        if most_s < resolved.steps == inf
        else range_(walls_s, 1, *open_widths, least=certain.wall_s, most=most_s),
        steps=range_(in_time, -1, *open_widths, most=min(most_steps, certain.steps_in(most_s)))
        if in_time
        else Range(histories[0].steps),
        rate=range_(map(rate_of, histories), -1, *open_widths, most=certain.samples_per_s),
        goodput=range_(map(goodput_of, histories), -1, of_time, most=certain.goodput),
        failures=range_of((one.counts.get("failures", 0.0) for one in histories), of_failures),
    )


def _provenance(resolved: ResolvedRun, history: History) -> dict[str, float]:
    """Shares of the time by where their numbers are from: the step, what has a price of its own, and what is given."""
    shares = [(one.origin, one.share) for one in priced_shares(resolved, history)]
    if (step := resolved.step) is not None:
        of_step = step_share(history)
        shares = [*((origin, of_step * part) for origin, part in step.report.provenance.items()), *shares]
    found = {"given": 1 - sum(share for _, share in shares)}
    for origin, share in shares:
        found[origin] = found.get(origin, 0.0) + share
    return found


TOTAL_NEEDS = ("wall_s", "exposed")


def total(report: Mapping[str, Any]) -> Total:
    """The time of the run, its interval, and where it went."""
    interval = (report["wall_low_s"], report["wall_high_s"]) if "wall_low_s" in report else None
    return Total(report["wall_s"], interval, report["exposed"])
