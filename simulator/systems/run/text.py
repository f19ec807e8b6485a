"""A RunReport in words: the lines of its summary, and its tables."""

from collections.abc import Iterator

from ...base.units import format_seconds
from ...report.report import Table, Words
from ...report.spending import spending_rows
from .history import CAUSES
from .report import RunReport

_DAY_S = 86_400.0
_SHOWN_EVENTS = 200


def words(report: RunReport) -> Words:
    """The report in words."""
    return Words(
        answer=f"{format_long(report.wall_s)} in all",
        rows=list(_rows(report)),
        phases=Table("Where the time goes", ("cause", "time", "share", "what"), _causes(report)),
        below=[],
        tables=list(_tables(report)),
    )


def format_long(seconds: float) -> str:
    """A duration that may be weeks."""
    return f"{seconds / _DAY_S:,.3g} days" if seconds >= 2 * _DAY_S else format_seconds(seconds)


def _rows(report: RunReport) -> Iterator[tuple[str, str]]:
    history = report.history
    between = f"   (90 % interval {format_long(report.wall_low_s)} to {format_long(report.wall_high_s)})"
    yield "wall clock", format_long(report.wall_s) + ("" if report.wall_is_given else between)
    yield "goodput", f"{report.goodput:.1%} of the time in steps that are kept"
    low, high = f"{report.tokens_per_s_low:,.4g}", f"{report.tokens_per_s_high:,.4g}"
    yield "throughput", f"{report.tokens_per_s:,.4g} {report.unit}/s   (90 % interval {low} to {high})"
    yield "steps", f"{report.steps:,} steps, {report.samples:.4g} {report.unit}"
    if history.staleness_mean:
        yield "staleness", f"{history.staleness_mean:.2f} updates on average, at most {max(history.staleness)}"
    if report.mtbf_s is not None:
        count = int(history.counts.get("failures", 0))
        yield "failures", f"{count:,}, one expected every {format_seconds(report.mtbf_s)}"
    if report.checkpoint_interval_s is not None:
        count = int(history.counts.get("checkpoints", 0))
        yield "checkpoints", f"{count:,}, one after {format_seconds(report.checkpoint_interval_s)} of work"
    yield from spending_rows(
        report.rates, (report.spent, "for the run"), (report.spent_per_million, f"per million {report.unit}")
    )


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
