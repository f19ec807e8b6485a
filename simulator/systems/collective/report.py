"""The Report of a collective: a table by size and algorithm, and its headline, the best one at the largest size."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from ...base.units import format_bytes
from ...collectives import MEASURED
from ...report.report import Metric, Report, Total
from .jobs import JobRow, ResolvedJobs
from .resolve import ResolvedCollective
from .rows import Row

PARTS = ("start", "latency", "bytes", "curve")
"""Of an algorithm: what it would take if its messages were empty, and the rest; of a fitted curve: all of it.

Of jobs: those of the last one to end, after its start.
"""


@dataclass(frozen=True)
class CollectiveReport(Report):
    """Seconds and bandwidths of one collective by size and algorithm; `best` is the fastest at the largest size."""

    op: str
    ranks: int
    best: Row
    rows: tuple[Row, ...]

    kind = "collective"
    metrics = (
        Metric("seconds", "s", "of the fastest algorithm at the largest size; of jobs, until the last one ends",
               "lower", "time", of=attrgetter("best.end_s")),
        Metric("makespan_s", "s", "as `seconds`", "lower", "again", of=attrgetter("best.end_s")),
        Metric("low_s", "s", "the 5 % quantile of `seconds`", role="time", of=lambda report: report.interval_s[0]),
        Metric("high_s", "s", "its 95 % quantile", role="time", of=lambda report: report.interval_s[1]),
        Metric("algbw_bytes_per_s", "B/s", "its bytes over its seconds", "higher",
               of=attrgetter("best.algbw_bytes_per_s")),
        Metric("busbw_bytes_per_s", "B/s", "the same times nccl-tests' factor of the op: what each port carries",
               "higher", of=attrgetter("best.busbw_bytes_per_s")),
        Metric("algorithm", "", "the fastest algorithm at the largest size", of=attrgetter("best.algorithm")),
        Metric("level", "", "how it is priced", of=attrgetter("best.level")),
        Metric("bytes", "B", "the largest size", role="input", of=attrgetter("best.bytes")),
        Metric("op", "", "what ranks do together", role="input"),
        Metric("ranks", "1", "GPUs of a group", role="input"),
        Metric("exposed", "s", "its parts: latency (messages without bytes), and bytes; of a fitted curve: curve; of "
               "jobs also start, when the last one to end is called",
               "lower", "again", names=PARTS, sparse=True),
        Metric("bound_by", "", "the larger part"),
        Metric("provenance", "1", "share of the time by source of its numbers", sparse=True,
               names=("measured", "fitted", "interpolated", "extrapolated", "datasheet", "assumed", "exact")),
        Metric("rows", "", "each size by each algorithm: bytes, algorithm, level, seconds with its interval, algbw and "
               "busbw, provenance, pieces; of a library its protocol and channels, and whether it is chosen; of draws "
               "of hashes their 5 and 95 % quantiles; or each job: its name, op, GPUs and start, seconds from then on, "
               "alone_s without the others, slowed_by (seconds that each other one adds)",
               by_rank=True, of=lambda report: tuple(vars(row) for row in report.rows)),
    )  # fmt: skip

    @property
    def interval_s(self) -> tuple[float, float]:
        """The 90 % interval of the time."""
        before_s = self.best.end_s - self.best.seconds
        return before_s + self.best.low_s, before_s + self.best.high_s

    @property
    def winners(self) -> Mapping[int, Row]:
        """The row of each size that a library chooses, else the fastest; the fitted curve where there is no other.

        A library may choose none at some sizes.
        """
        found: dict[int, Row] = {}
        rows = [row for row in self.rows if row.chosen] or self.rows
        for row in sorted(rows, key=lambda row: (row.algorithm == MEASURED, row.seconds)):
            found.setdefault(row.bytes, row)
        return dict(sorted(found.items()))


def make_report(resolved: ResolvedCollective) -> CollectiveReport:
    """The report of a collective."""
    best, devices = resolved.best, " and ".join(dict.fromkeys(node.device.name for node in resolved.cluster.nodes))
    groups = resolved.keys.groups
    many = f"{len(resolved.ranks):,} x {devices}"
    many += f", {groups} groups at once ({resolved.keys.placement})" if groups > 1 else ""
    return CollectiveReport(
        name=resolved.scenario.name,
        scenario_hash=resolved.hash,
        question=_question(resolved, many),
        exposed=_parts(best),
        provenance={best.provenance: 1.0},
        notes=resolved.notes,
        op=best.op if isinstance(best, JobRow) else resolved.keys.op,
        ranks=best.gpus if isinstance(best, JobRow) else len(resolved.ranks),
        best=best,
        rows=resolved.rows,
    )


def _question(resolved: ResolvedCollective, many: str) -> str:
    if isinstance(resolved, ResolvedJobs):
        return f"{len(resolved.jobs)} jobs at once on {many}"
    return f"{resolved.keys.op} of up to {format_bytes(resolved.best.bytes)} between {many}"


def _parts(row: Row) -> dict[str, float]:
    """The seconds of each of PARTS that a row has."""
    if row.latency_s is None:
        return {"curve": row.seconds}
    latency_s, before_s = min(row.latency_s, row.seconds), row.end_s - row.seconds
    start = {"start": before_s} if before_s else {}
    return start | {"latency": latency_s, "bytes": row.seconds - latency_s}


TOTAL_NEEDS = ("seconds", "exposed")


def total(report: Mapping[str, Any]) -> Total:
    """The time of the best algorithm at the largest size, its interval and parts."""
    interval = (report["low_s"], report["high_s"]) if "low_s" in report else None
    return Total(report["seconds"], interval, report["exposed"])
