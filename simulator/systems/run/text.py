"""A RunReport in words: the lines of its summary, and its tables."""

from collections.abc import Iterator

from ...base.units import format_long, format_probability, format_seconds, format_usd
from ...report.report import Table, Words
from ...report.spending import spending_rows
from ..train_step.text import memory_text
from .history import CAUSES
from .modes import MODES
from .report import RunReport

_SHOWN_EVENTS = 200
_OF_SUCH_RUNS = "   (90 % interval of such runs: {})"


def words(report: RunReport) -> Words:
    """The report in words."""
    return Words(
        answer=f"{format_long(report.wall_s)} in all",
        rows=list(_rows(report)),
        phases=Table("Where the time goes", ("cause", "time", "share", "what"), _causes(report)),
        below=[],
        tables=list(_tables(report)),
    )


def _rows(report: RunReport) -> Iterator[tuple[str, str]]:
    mode = MODES[report.mode]
    yield "wall clock", format_long(report.wall_s) + _between(report, *map(format_long, report.wall_interval_s))
    if report.deadline_s is not None and report.deadline_probability is not None:
        likely = format_probability(report.deadline_probability)
        yield "deadline", f"{format_long(report.deadline_s)}, held with {likely}"
    shares = map(_share, report.goodput_interval)
    yield "goodput", f"{_share(report.goodput)} of the time in {mode.useful}" + _between(report, *shares)
    rates = (f"{rate:,.4g}" for rate in report.rate_interval)
    yield "throughput", f"{report.tokens_per_s:,.4g} {report.unit}/s" + _between(report, *rates)
    yield mode.steps, f"{report.steps:,}, {report.samples:.4g} {report.unit}"
    yield from _happened(report)
    if report.step is not None:
        yield "memory", memory_text(report.step)
    yield from _spent(report)


def _spent(report: RunReport) -> Iterator[tuple[str, str]]:
    """Money, with its interval and what failures cost of it, and energy."""
    amounts = (report.spent, "for the run"), (report.spent_per_million, f"per million {report.unit}")
    for name, amount in spending_rows(report.rates, *amounts):
        between = cost_between(report) if name == "cost" else ""
        yield name, amount + (_OF_SUCH_RUNS.format(between) if between else "")
    if report.failures_cost_s:
        usd = "" if report.failures_cost_usd is None else f" and {format_usd(report.failures_cost_usd)}"
        yield "failures cost", f"{format_long(report.failures_cost_s)}{usd} more than a run in which nothing fails"


def cost_between(report: RunReport) -> str:
    """The 90 % interval of the cost, or where the time is given of that of a million samples; empty if it has none."""
    ends, of = report.cost_interval_usd, ""
    if report.wall_is_given:
        ends, of = report.cost_per_million_interval_usd, f" per million {report.unit}"
    low, high = (format_usd(usd or 0.0) for usd in ends)
    return f"{low} to {high}{of}" if report.spread and low != high else ""


def _share(part: float) -> str:
    return f"{part:.1%}"


def _between(report: RunReport, low: str, high: str) -> str:
    return _OF_SUCH_RUNS.format(f"{low} to {high}") if report.spread and low != high else ""


def _happened(report: RunReport) -> Iterator[tuple[str, str]]:
    counts, stale = report.history.counts, report.history.staleness
    if report.history.staleness_mean:
        yield "staleness", f"{report.history.staleness_mean:.2f} updates on average, at most {max(stale)}"
    if report.mtbf_s is not None:
        low, high = (f"{count:,.0f}" for count in report.failures_interval)
        every = f"{counts.get('failures', 0):,.0f}, one expected every {format_seconds(report.mtbf_s)}"
        yield "failures", every + _between(report, low, high)
    if report.checkpoint_interval_s is not None:
        work = f"{format_seconds(report.checkpoint_interval_s)} of work: {report.checkpoint_interval_by}"
        after = f"one after {report.checkpoint_steps:,} steps ({work})"
        yield "checkpoints", f"{counts.get('checkpoints', 0):,.0f}, {after}"
    if "queue_mean_s" in counts:
        mean, late = (format_long(counts[name]) for name in ("queue_mean_s", "queue_p95_s"))
        yield "queue", f"{mean} on average, 95 % of jobs at most {late}; GPUs are in use {counts['utilization']:.0%}"
    if "dropped" in counts or "late" in counts:
        yield "clients", f"{counts.get('dropped', 0):,.0f} dropped out, {counts.get('late', 0):,.0f} were late"


def _causes(report: RunReport) -> list[tuple[str, ...]]:
    total = report.wall_s or 1.0
    return [
        (cause, format_long(seconds), f"{seconds / total:.2%}", CAUSES[cause])
        for cause, seconds in report.history.breakdown_s.items()
    ]


def _tables(report: RunReport) -> Iterator[Table]:
    history = report.history
    if history.staleness_mean:
        total = sum(history.staleness.values())
        ages = [(f"{age}", f"{count:,} ({count / total:.1%})") for age, count in sorted(history.staleness.items())]
        yield Table("Staleness", ("updates behind", "gradients"), ages)
    if history.events:
        rows = [(format_long(one.at_s), one.what, one.detail) for one in history.events[:_SHOWN_EVENTS]]
        yield Table("Events", ("at", "what", "which"), rows)
