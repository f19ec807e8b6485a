"""Tables of published measurements, for the ledgers: read with what they need, and told as plain values."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ...base.errors import UserError
from ...formats.samples import read_table


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
