"""A file of rows to predict: its cells as they stand, and samples that know the line they came from.

A row whose time is left blank is no fault here: it is predicted and not scored.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...base.errors import UserError
from ...formats.samples import Samples, own_samples, read_samples, read_table
from ...formats.samples.published import TABLES, PublishedTable

_TIMES = {"us", "time_us", "us_median", "value"}
"""Columns of published tables that hold what was measured."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The cells of a file (none of JSON lines), and its good rows with their `line`; `left_out` is line by reason."""

    path: Path
    cells: pd.DataFrame | None
    table: pd.DataFrame
    left_out: dict[int, str]

    def __len__(self) -> int:
        return len(self.table) + len(self.left_out)


def read_rows(path: Path) -> Rows:
    """The rows of a file.

    Raises:
        UserError: the file cannot be read, is no table of samples, or has no good row.
    """
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        return _rows(path, None, read_samples([path]))
    cells = read_table(path)
    if cells.empty:
        raise UserError(f"{path}: holds no rows")
    return _rows(path, cells, _samples(cells, path))


def _rows(path: Path, cells: pd.DataFrame | None, samples: Samples) -> Rows:
    """Places are `file:line` in samples and `file:line: reason` in what was dropped."""
    table = samples.table
    line = table["source"].str.rpartition(":")[2].astype(int)
    places = [entry.removeprefix(f"{path}:").partition(": ") for entry in samples.dropped]
    return Rows(path, cells, table.assign(line=line), {int(number): reason for number, _, reason in places})


def _samples(cells: pd.DataFrame, path: Path) -> Samples:
    """The samples of a table, with no number of seconds where the file has none."""
    if "cost_class" in cells:
        filled, blank = _blanks_filled(cells, "seconds")
        # a source that the rows name is another file's line: here a row's place is in this file
        samples = own_samples(filled.assign(source=f"{path}:" + filled["line"].astype(str)), path)
    else:
        published = _published(cells, path)
        filled, blank = _blanks_filled(cells, next(iter(published.header & _TIMES)))
        samples = published.samples(filled, str(path))
    unmeasured = samples.table["source"].isin(blank.map(lambda line: f"{path}:{line}"))
    seconds = samples.table["seconds"].where(~unmeasured, np.nan)
    return Samples(samples.table.assign(seconds=seconds), samples.dropped, samples.environment)


def _blanks_filled(cells: pd.DataFrame, column: str) -> tuple[pd.DataFrame, "pd.Series[int]"]:
    """The table with some time in each row, and the lines where it had none."""
    times = cells[column] if column in cells else pd.Series("", index=cells.index)
    blank = times.str.strip() == ""
    return cells.assign(**{column: times.where(~blank, "1")}), cells.loc[blank, "line"]


def _published(cells: pd.DataFrame, path: Path) -> PublishedTable:
    """The published table with these columns, times apart."""
    for table in sorted(TABLES, key=lambda table: not table.header <= set(cells)):
        if table.header - _TIMES <= set(cells):
            return table
    raise UserError(f"{path}:1: not a table of samples; its columns are {', '.join(_names(cells))}")


def _names(cells: pd.DataFrame) -> Sequence[str]:
    return [str(name) for name in cells.columns if name != "line"]


def rows_of(path: Path, required: Collection[str], like: str) -> list[dict[str, str]]:
    """The cells of every row as text, with its `line`; `like` is the table whose columns these should be.

    Raises:
        UserError: the file cannot be read, holds no rows, lacks a column, or has two rows of one `id`.
    """
    table = read_table(path)
    if missing := [column for column in required if column not in table]:
        raise UserError(f"{path}:1: no column {', '.join(missing)}; expected those of {like}")
    if table.empty:
        raise UserError(f"{path}: holds no rows")
    if "id" in table:
        named = table["id"][table["id"] != ""]
        if twice := list(named[named.duplicated()]):
            raise UserError(f"{path}: id = {twice[0]!r}: stands there more than once")
    return [{str(key): str(value) for key, value in row.items()} for row in table.to_dict("records")]


def plain(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of plain values; what is not known is None."""
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    return [{str(key): value for key, value in row.items()} for row in rows]


def not_predicted(reasons: Mapping[int, str]) -> list[dict[str, Any]]:
    """Lines with the reasons why they have no prediction."""
    return [{"line": line, "reason": reason} for line, reason in reasons.items()]


def csv_of(table: pd.DataFrame) -> bytes:
    """A table as a CSV file has it."""
    return str(table.to_csv(index=False, lineterminator="\n")).encode()


@dataclass(frozen=True, eq=False)
class Ledger:
    """`table` has a row per row of the file that is predicted; `reasons` say why others are not, by line."""

    path: Path
    table: pd.DataFrame
    reasons: Mapping[int, str]
    parameters: int

    @property
    def predicted(self) -> int:
        """How many rows have a prediction."""
        return len(self.table)

    @cached_property
    def worst_first(self) -> pd.DataFrame:
        """The rows by absolute error, those without one last."""
        order = self.table["error"].abs().sort_values(ascending=False, kind="stable").index
        return self.table.loc[order]
