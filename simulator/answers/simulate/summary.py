"""The terminal summary of a Report: words and numbers first, then a table of phases. Prints; computes nothing."""

import sys
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.table import Table

from ...base.units import format_bytes, format_rate, format_seconds
from ...report.spending import told_of_pause
from ...systems.rl_cycle import text as cycle_text
from ...systems.rl_cycle.report import CycleReport
from ...systems.train_step import text as train_text
from ...systems.train_step.report import TrainReport
from ...systems.weight_update.report import Report

_MEANING = {
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


def print_summary(report: Report | CycleReport | TrainReport, console: Console | None = None) -> None:
    """Print the headline, what bounds it, the phases, memory and provenance."""
    console = console or Console(highlight=False, soft_wrap=True, no_color=not sys.stdout.isatty())
    if isinstance(report, CycleReport):
        above, below = cycle_text.headline(report), cycle_text.footer(report)
        table = _table(cycle_text.PHASE_COLUMNS, cycle_text.phases(report))
    elif isinstance(report, TrainReport):
        above, below = train_text.headline(report), train_text.footer(report)
        table = _table(train_text.SPLIT_COLUMNS, train_text.phases(report))
    else:
        above, table, below = headline(report), _phases(report), footer(report)
    for line in above:
        console.print(line, markup=False)
    console.print(table)
    for line in below:
        console.print(line, markup=False)


def headline(report: Report) -> Iterator[str]:
    """What was asked and the answer."""
    low, high = format_seconds(report.interval_low_s), format_seconds(report.interval_high_s)
    yield report.name
    yield f"  {report.question}"
    yield f"  update time   {format_seconds(report.update_time_s)}   (90 % interval {low} to {high})"
    yield f"  pause         {format_seconds(report.pause_s)} as rollouts see it"
    for what, amount in told_of_pause(report.rates, report.spent, report.paused):
        yield f"  {what:<14}{amount}"
    size = f"{format_bytes(report.bytes)} in {report.tensors:,} tensors to {report.gpus:,} GPUs"
    yield f"  throughput    {format_rate(report.effective_bytes_per_s)} ({size})"
    filled = f"{report.buckets:,} of at most {format_bytes(report.bucket_bytes)}"
    yield f"  buckets       {filled}, in {report.rounds} round{'s' * (report.rounds != 1)}"
    share = report.exposed[report.bound_by] / report.makespan_s
    yield f"  bound by      {report.bound_by}: {share:.0%} of the critical path ({_MEANING[report.bound_by]})"
    if report.host_share >= 0.5:
        yield f"  host-bound    {report.host_share:.0%} of the critical path is work of host threads"
    yield f"  busiest link  {report.busiest_link}, {report.busiest_link_share:.0%} of the time"
    yield ""


def footer(report: Report) -> Iterator[str]:
    """Memory, what the numbers rest on, and what was assumed."""
    yield f"memory per device at its peak: {format_bytes(report.peak.bytes)}"
    for owner, size in report.peak.held:
        yield f"  {format_bytes(size):>10}  {owner}"
    shares = ", ".join(f"{share:.0%} {name}" for name, share in report.provenance.items() if share >= 0.005)
    yield f"the critical path rests on numbers that are {shares}"
    for note in report.notes:
        yield f"note: {note}"
    yield f"scenario {report.scenario_hash}"


def _phases(report: Report) -> Table:
    table = Table(box=None, pad_edge=False)
    for name, justify in (("phase", "left"), ("busy", "right"), ("critical path", "right"), ("share", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("what")
    for phase, busy in report.busy_s.items():
        if busy == 0:
            continue
        exposed = report.exposed.get(phase, 0.0)
        share = exposed / report.makespan_s
        table.add_row(phase, format_seconds(busy), format_seconds(exposed), f"{share:.1%}", _MEANING[phase])
    table.add_row("total", "", format_seconds(report.makespan_s), "100.0%", "from start to end")
    return table


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Words at both ends, numbers between."""
    table = Table(box=None, pad_edge=False)
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if 0 < i < len(columns) - 1 else "left")
    for row in rows:
        table.add_row(*row)
    return table
