"""Timelines: what happened when, the questions asked of it, and the files that other tools open."""

from .chart import chart
from .memory import Peak, lifetimes, memory, peak_bytes, peaks
from .ranks import few_ranks, spans_csv, spans_of_ranks, write_csv
from .timeline import Timeline, union_s
from .trace import trace, write_trace

__all__ = [
    "Peak", "Timeline", "chart", "few_ranks", "lifetimes", "memory", "peak_bytes", "peaks", "spans_csv",
    "spans_of_ranks", "trace", "union_s", "write_csv", "write_trace",
]  # fmt: skip
