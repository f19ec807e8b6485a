"""Reading files of samples: our own tables and JSON lines, and the tables that others have published.

Which it is shows in the header. What each published table means is `published`; logs of tools are not read here but
turned into tables first (`runcast calibrate import`).
"""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...base.errors import UserError
from ...base.files import check_once, read_text
from ...hardware import device
from ...profile.forms import FEATURES
from . import published, records
from .table import KEYS, Samples, join_samples, sound_samples

RECORDS = (".jsonl", ".jsonl.gz")
"""How names of files end that hold records of `calibrate run`, and not a table."""
MOST_ROWS = 1_000_000
"""Longer tables are refused: the longest that is published has a tenth of this."""


def read_samples(paths: Iterable[Path | str]) -> Samples:
    """All samples of some files.

    A UserError if a file is named twice, cannot be read, is no table of samples, or has no good row; with the line
    where one is known.
    """
    files = [Path(path) for path in paths]
    check_once(files)
    parts = [(str(path), _read(path)) for path in files]  # a source may name another file
    return join_samples([samples.of_file(path) for path, samples in parts])


def read_table(path: Path) -> pd.DataFrame:
    """A CSV file with every cell as text without blanks around it, and the line of each row in `line`.

    A UserError if it is no file or no text, has too many rows, or a row has too many cells; with its line.
    """
    reader = csv.reader(io.StringIO(read_text(path, "a CSV file"), newline=""), skipinitialspace=True)
    header = next(_rows(reader, path), [])
    if twice := [name for name, times in Counter(header).items() if times > 1]:
        raise UserError(f"{path}:1: has two columns named {twice[0]!r}")
    rows, lines = list[list[str]](), list[int]()
    for row in _rows(reader, path):
        if len(row) > len(header):
            expected = f"{len(header)}, as the header has" if len(header) > 1 else "comma-separated CSV with a header"
            raise UserError(f"{path}:{reader.line_num}: {len(row)} cells; expected {expected}")
        if any(row):
            if len(rows) == MOST_ROWS:
                raise UserError(f"{path}: holds more than {MOST_ROWS:,} rows, the most that are read")
            rows.append(row + [""] * (len(header) - len(row)))
            lines.append(reader.line_num)
    return pd.DataFrame(rows, columns=header, dtype=str).assign(line=lines)


def _rows(reader: Any, path: Path) -> Iterator[list[str]]:
    try:
        for row in reader:
            yield [cell.strip() for cell in row]
    except csv.Error as error:
        raise UserError(f"{path}:{reader.line_num}: is not CSV: {error}") from None


def _read(path: Path) -> Samples:
    if path.name.endswith(RECORDS):
        lines = read_text(path).splitlines(keepends=True)  # ends tell a last line that was cut short
        return records.read(lines, str(path))
    table = read_table(path)
    if {"cost_class", "seconds"} <= set(table):
        return own_samples(table, path)
    for published_table in published.TABLES:
        if published_table.header <= set(table):
            return published_table.samples(table, str(path))
    raise UserError(f"{path}:1: not a table of samples; its columns are {', '.join(map(str, table.columns[:-1]))}")


def own_samples(table: pd.DataFrame, path: Path) -> Samples:
    """The samples of a table with our own columns; what may be left out is filled in, devices go by any alias.

    A UserError if no row is good.
    """
    sources = table["source"] if "source" in table else f"{path}:" + table["line"].astype(str)
    filled = table.drop(columns="line").assign(source=sources)
    for key in set(KEYS) - set(filled):
        filled[key] = "unknown"
    filled["device"] = filled["device"].map({name: _device(name) for name in filled["device"].unique()})
    for column in {"seconds", "wider", *FEATURES} & set(filled):
        filled[column] = _numbers(filled[column])
    return sound_samples(filled, str(path))


def _numbers(cells: "pd.Series[str]") -> "pd.Series[float]":
    """Numbers, NaN where a cell is empty; what is no number becomes infinity, which no check lets pass."""
    numbers = pd.to_numeric(cells, errors="coerce")
    return numbers.where(numbers.notna() | (cells.str.strip() == ""), np.inf)


def _device(name: str) -> str:
    """The catalogue's name of a device, or the name as it stands."""
    try:
        return device(name).name
    except UserError:
        return name
