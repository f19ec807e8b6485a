"""Spans as a CSV file for spreadsheets and DataFrames; units stand in the column names."""

from collections.abc import Sequence
from pathlib import Path

from ..files import write_by_suffix
from .ranks import spans_of_ranks
from .timeline import Timeline


def spans_csv(timeline: Timeline, ranks: Sequence[int] | None = None) -> str:
    """The rows of `spans_of_ranks` as CSV; numbers read back exactly, absent rates and tags are empty."""
    rows = spans_of_ranks(timeline, ranks)
    tags = list(timeline.program.tags)
    rows[tags] = rows[tags].astype("Int64").mask(rows[tags] == -1)
    return rows.to_csv(index=False, lineterminator="\n")


def write_csv(timeline: Timeline, path: Path | str, ranks: Sequence[int] | None = None) -> None:
    """Write the spans to a `.csv` or `.csv.gz` file."""
    write_by_suffix(path, spans_csv(timeline, ranks).encode())
