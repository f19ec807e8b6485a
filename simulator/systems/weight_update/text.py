"""The report of a weight update in words."""

from collections.abc import Iterator

from ...base.units import format_bytes, format_count, format_rate, format_seconds
from ...report.report import Table, Words
from ...report.spending import spending_rows
from .report import PHASES, Report

_COLUMNS = ("phase", "busy", "critical path", "share", "what")


def words(report: Report) -> Words:
    """The report in words."""
    held = [(name, format_bytes(size)) for name, size in (*report.peak.held, ("total", report.peak.bytes))]
    return Words(
        answer=format_seconds(report.update_time_s),
        rows=list(_rows(report)),
        phases=Table("Phases", _COLUMNS, list(_phases(report))),
        below=[
            f"memory per device at its peak: {format_bytes(report.peak.bytes)}",
            *(f"  {format_bytes(size):>10}  {owner}" for owner, size in report.peak.held),
        ],
        tables=[Table("Memory per device at its peak", ("held by", "size"), held)],
    )


def _rows(report: Report) -> Iterator[tuple[str, str]]:
    low, high = format_seconds(report.interval_low_s), format_seconds(report.interval_high_s)
    yield "update time", f"{format_seconds(report.update_time_s)}   (90 % interval {low} to {high})"
    yield "pause", f"{format_seconds(report.pause_s)} as rollouts see it"
    yield "memory", memory_text(report)
    amounts = (report.spending, "of all GPUs"), (report.pause_spending, "of paused engines")
    yield from spending_rows(report.rates, *amounts)
    size = f"{format_bytes(report.bytes)} in {report.tensors:,} tensors to {report.gpus:,} GPUs"
    yield "throughput", f"{format_rate(report.effective_bytes_per_s)} ({size})"
    filled = f"{report.buckets:,} of at most {format_bytes(report.bucket_bytes)}"
    yield "buckets", f"{filled}, in {format_count(report.rounds, 'round')}"
    share = report.path_s[report.bound_by] / report.update_time_s
    yield "bound by", f"{report.bound_by}: {share:.0%} of the update's critical path ({PHASES[report.bound_by]})"
    if report.host_share >= 0.5:
        yield "host-bound", f"{report.host_share:.0%} of the critical path is work of host threads"
    yield "busiest link", f"{report.busiest_link}, {report.busiest_link_share:.0%} of the time"


def memory_text(report: Report) -> str:
    """Whether it fits, and what the fullest device needs."""
    return f"{'fits' if report.fits else 'DOES NOT FIT'}: {report.memory_needs}"


def _phases(report: Report) -> Iterator[tuple[str, ...]]:
    for phase, busy in report.busy_s.items():
        if busy:
            exposed = report.exposed.get(phase, 0.0)
            share = f"{exposed / report.makespan_s:.1%}"
            yield phase, format_seconds(busy), format_seconds(exposed), share, PHASES[phase]
    yield "total", "", format_seconds(report.makespan_s), "100.0%", "from start to end"
