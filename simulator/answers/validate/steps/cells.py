"""A row of a table of training steps: its cells by column, read as what they should be.

Columns are those of data/validation/training.csv; an empty cell is not known.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

REQUIRED = (
    "framework", "layers", "hidden", "ffn_hidden", "heads", "vocab", "seq_len", "gpu", "gpus_per_node", "n_gpus",
    "mbs", "gbs", "precision",
)  # fmt: skip
"""Columns without which a table is none of training steps."""

_MOST = 10**9


class CellError(ValueError):
    """A cell does not hold what it should; the text says which and what was expected."""


@dataclass(frozen=True)
class Cells:
    """Raises CellError where a cell holds something else than asked for, or nothing and no default is given."""

    values: Mapping[str, str]

    def text(self, column: str) -> str:
        """The cell, empty if there is none."""
        return self.values.get(column, "").strip()

    def has(self, column: str) -> bool:
        """Whether the row says anything there."""
        return bool(self.text(column))

    def number(self, column: str, default: float | None = None) -> float:
        """A finite number."""
        text = self.text(column)
        if not text and default is not None:
            return float(default)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise CellError(f"{column} = {text!r}: expected a number" if text else f"{column} is not stated")
        return value

    def whole(self, column: str, default: int | None = None) -> int:
        """A whole number, zero or above, however a table writes it: `16`, `16.0`."""
        value = self.number(column, default)
        if value < 0 or not value.is_integer():
            raise CellError(f"{column} = {self.text(column)!r}: expected a whole number")
        return int(value)

    def positive(self, column: str, default: int | None = None, most: int = _MOST) -> int:
        """A whole number above zero."""
        value = self.whole(column, default)
        if not 0 < value <= most:
            raise CellError(f"{column} = {self.text(column)!r}: expected a whole number from 1 to {most:,}")
        return value

    def time(self, column: str) -> float | None:
        """Seconds, or another amount above zero; None where the row does not tell."""
        if not self.has(column):
            return None
        if (value := self.number(column)) <= 0:
            raise CellError(f"{column} = {self.text(column)!r}: expected a number above zero")
        return value

    def flag(self, column: str, default: bool) -> bool:
        """1 or 0, true or false."""
        text = self.text(column).casefold()
        if not text:
            return default
        if text not in ("0", "1", "true", "false", "0.0", "1.0"):
            raise CellError(f"{column} = {text!r}: expected 1 or 0")
        return text in ("1", "true", "1.0")
