"""Spans as a CSV file for spreadsheets and DataFrames; units stand in the column names."""

from collections.abc import Sequence
from pathlib import Path

from ..base.files import write_by_suffix
from .ranks import spans_of_ranks
from .timeline import Timeline


def spans_csv(timeline: Timeline, ranks: Sequence[int] | None = None) -> str:
    """The spans as CSV: of the given ranks, or all of them, by place (a class of ranks that act alike stands once).

    Numbers read back exactly; absent rates and tags are empty.
    """
    rows = timeline.spans() if ranks is None else spans_of_ranks(timeline, ranks)
    tags = list(timeline.program.tags)
    rows[tags] = rows[tags].astype("Int64").mask(rows[tags] == -1)
    return rows.to_csv(index=False, lineterminator="\n")


def write_csv(timeline: Timeline, path: Path | str, ranks: Sequence[int] | None = None) -> None:
    """Write the spans to a `.csv` or `.csv.gz` file."""
    write_by_suffix(path, spans_csv(timeline, ranks).encode())
