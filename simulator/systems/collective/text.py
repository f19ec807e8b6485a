"""A CollectiveReport in words, and its table as nccl-tests prints it."""

from collections.abc import Iterator
from csv import DictWriter
from io import StringIO

from ...base.tables import align
from ...base.units import format_bytes, format_rate, format_seconds
from ...report.report import Table, Words
from .jobs import JobRow
from .report import CollectiveReport
from .rows import Row

_MEANING = {
    "start": "until the job that ends last begins",
    "latency": "steps, if their messages were empty",
    "bytes": "the data itself",
    "curve": "the fitted curve, latency and bytes together",
}


def words(report: CollectiveReport) -> Words:
    """The report in words."""
    return Words(
        answer=f"{format_seconds(report.best.end_s)} for {_what(report)}",
        rows=list(_rows(report)),
        phases=Table("Where the time goes", ("part", "time", "share", "what"), list(_parts(report))),
        below=["", *_lines(report)],
        tables=[table(report)],
    )


def table(report: CollectiveReport) -> Table:
    """Each size by each algorithm; a star is what a library chooses, else the fastest one of the algorithms.

    Or each job, alone and beside the others.
    """
    if isinstance(report.best, JobRow):
        return _table_of_jobs([row for row in report.rows if isinstance(row, JobRow)])
    rows = [
        (
            f"{row.bytes}", _name(row), f"{row.seconds * 1e6:.2f}", f"{row.low_s * 1e6:.2f}",
            f"{row.high_s * 1e6:.2f}", f"{row.algbw_bytes_per_s / 1e9:.2f}", f"{row.busbw_bytes_per_s / 1e9:.2f}",
            row.provenance, "*" if row is report.winners.get(row.bytes) else "",
        )
        for row in report.rows
    ]  # fmt: skip
    star = "chosen" if report.best.chosen else "fastest"
    names = ("size (B)", "algorithm", "time (us)", "low", "high", "algbw (GB/s)", "busbw (GB/s)", "basis", star)
    return Table(f"{report.op} between {report.ranks:,} ranks", names, rows)


def _table_of_jobs(jobs: list[JobRow]) -> Table:
    rows = [
        (
            row.job, row.op, f"{row.bytes}", row.algorithm, f"{row.gpus}", f"{row.start_s * 1e6:.2f}",
            f"{row.alone_s * 1e6:.2f}", f"{row.seconds * 1e6:.2f}", f"{row.seconds / row.alone_s:.2f}",
            _blame(row, 1e6),
        )
        for row in jobs
    ]  # fmt: skip
    names = ("job", "op", "size (B)", "algorithm", "GPUs", "start (us)", "alone (us)", "beside (us)", "times",
             "slowed by (us)")  # fmt: skip
    return Table("Each job alone and beside the others", names, rows)


def _what(report: CollectiveReport) -> str:
    jobs = isinstance(report.best, JobRow)
    return f"{len(report.rows)} jobs" if jobs else format_bytes(report.best.bytes)


def _blame(row: JobRow, unit: float = 1.0) -> str:
    """Who slows a job, with how much of a second each, the largest first."""
    most = sorted(row.slowed_by.items(), key=lambda one: -one[1])
    return ", ".join(f"{name} {seconds * unit:.2f}" if unit > 1 else f"{name} {seconds!r}" for name, seconds in most)


def csv_text(report: CollectiveReport) -> bytes:
    """The table as CSV, in SI units."""
    text = StringIO()
    lines = DictWriter(text, list(vars(report.rows[0])), lineterminator="\n")
    lines.writeheader()
    lines.writerows(vars(row) | ({"slowed_by": _blame(row)} if isinstance(row, JobRow) else {}) for row in report.rows)
    return text.getvalue().encode()


def _lines(report: CollectiveReport) -> Iterator[str]:
    shown = table(report)
    right = (2, 4, 5, 6, 7, 8) if isinstance(report.best, JobRow) else (0, 2, 3, 4, 5, 6)
    yield from align([list(map(str, row)) for row in (shown.headers, *shown.rows)], right)


def _rows(report: CollectiveReport) -> Iterator[tuple[str, str]]:
    best, (low_s, high_s) = report.best, report.interval_s
    between = f"   (90 % interval {format_seconds(low_s)} to {format_seconds(high_s)})"
    yield "time", format_seconds(best.end_s) + (between if best.high_s > best.low_s else "")
    if best.draws_low_s is not None and best.draws_high_s is not None:
        yield (
            "hashes",
            f"nine of ten draws take {format_seconds(best.draws_low_s)} to {format_seconds(best.draws_high_s)}",
        )
    if isinstance(best, JobRow):
        yield "job", f"{best.job}, the last one to end, after {format_seconds(best.seconds)}"
    yield "algorithm", f"{_name(best)}, by {best.level}"
    if best.channels is not None:
        yield "channels", f"{best.channels}, each of which holds an SM"
    yield "bandwidth", f"{format_rate(best.algbw_bytes_per_s)} algbw, {format_rate(best.busbw_bytes_per_s)} busbw"


def _name(row: Row) -> str:
    return f"{row.algorithm} {row.protocol}".strip()


def _parts(report: CollectiveReport) -> Iterator[tuple[str, ...]]:
    whole = report.best.end_s or 1.0
    for part, seconds in report.exposed.items():
        yield part, format_seconds(seconds), f"{seconds / whole:.1%}", _MEANING[part]
