"""A run laid over its prediction as a page: sums by kind, the ops that are farthest apart, and both timelines."""

from pathlib import Path

import pandas as pd

from ...figures.gantt import overlay
from ...figures.page import Section, write_html
from ...report.report import Table
from .spans import KEYS, Joined, sum_by_kind
from .text import headline

_FARTHEST = 20


def write_page(found: Joined, path: Path) -> None:
    """Write the page; a UserError if the file cannot be written."""
    names = list(found.sides)
    write_html(path, f"{names[0]} over {names[1]}", sections(found))


def sections(found: Joined) -> list[Section]:
    """The parts of the page."""
    said = tuple(filter(None, (found.warning, headline(found.whole))))
    kinds, farthest = sum_by_kind(found.table), _farthest(found.table)
    return [
        Section("By kind of op", said, tables=[_table("Seconds summed over ops and ranks", kinds)]),
        Section("Farthest apart", tables=[_table("Ops by the difference of their seconds", farthest)]),
        Section("Both timelines", figures={"Both timelines, rank by rank": overlay(found.sides)}),
    ]


def _farthest(table: pd.DataFrame) -> pd.DataFrame:
    """The ops whose times differ most, with their difference."""
    column = table.columns[len(KEYS)]
    both = table.dropna(subset=[column, "measured_s"])
    apart = both.assign(difference_s=both["measured_s"] - both[column])
    order = apart["difference_s"].abs().sort_values(ascending=False, kind="stable").index[:_FARTHEST]
    return apart.loc[order, ["name", "rank", column, "measured_s", "difference_s"]]


def _table(title: str, frame: pd.DataFrame) -> Table:
    rows = [[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row]
            for row in frame.astype(object).to_numpy().tolist()]  # fmt: skip
    return Table(title, tuple(map(str, frame.columns)), rows)
