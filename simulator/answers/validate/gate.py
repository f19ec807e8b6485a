"""A ledger held against predictions that were written earlier: which rows moved, and what that did to each family."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from ...base.errors import UserError, fault
from ...base.units import parse_share
from .ledger import plain, read_predictions

TOLERANCE = "0.5%"


class Comparable(Protocol):
    """A ledger that can be held against earlier predictions.

    `compared` are the columns that are, the prediction first, and what they are; `measured` is the column of what was
    measured, `families` what families of rows are called.
    """

    @property
    def path(self) -> Path:
        """The file of its rows."""

    @property
    def table(self) -> pd.DataFrame:
        """The predicted rows of the ledger, with their `id`."""

    @property
    def scored(self) -> pd.DataFrame:
        """Those of them that count."""

    @property
    def compared(self) -> Mapping[str, str]:
        """Columns that are compared, and what they are."""

    @property
    def measured(self) -> str:
        """The column of what was measured."""

    @property
    def families(self) -> Mapping[str, str]:
        """What families of rows are called."""

    def medians(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The median absolute error of each family of rows: family, name, median_abs_error."""

    def to_csv(self) -> bytes:
        """The rows of the ledger as bytes of a CSV file."""


@dataclass(frozen=True)
class Gate:
    """Predictions of an earlier time by id, and by what share one may move."""

    path: Path
    before: Mapping[str, Mapping[str, Any]]
    tolerance: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """A ledger of now beside predictions of an earlier time."""

    gate: Gate
    ledger: Comparable

    @cached_property
    def moves(self) -> pd.DataFrame:
        """A row per prediction that moved by more than the tolerance, the largest first."""
        now = self.ledger.table.set_index("id")
        parts = [
            self._before[[column]].join(now[column].rename("after"), how="inner").assign(what=what)
            .rename(columns={column: "before"}).rename_axis("id").reset_index()
            for column, what in self.ledger.compared.items()
        ]  # fmt: skip
        rows = pd.concat(parts, ignore_index=True)
        rows = rows.assign(change=rows["after"] / rows["before"] - 1)[["id", "what", "before", "after", "change"]]
        moved = rows[rows["change"].abs() > self.gate.tolerance]
        return moved.sort_values("change", key=np.abs, ascending=False, kind="stable", ignore_index=True)

    @cached_property
    def _before(self) -> pd.DataFrame:
        known = {key: row for key, row in self.gate.before.items() if "reason" not in row}
        return pd.DataFrame.from_dict(known, orient="index", columns=list(self.ledger.compared))

    @cached_property
    def gone(self) -> list[str]:
        """Rows that were predicted and are not any more."""
        now = set(self.ledger.table["id"])
        return [key for key in self._before.index if key not in now]

    @cached_property
    def new(self) -> list[str]:
        """Rows that are predicted and were not."""
        return [key for key in self.ledger.table["id"] if key not in self._before.index]

    @property
    def moved(self) -> bool:
        """Whether anything did."""
        return bool(len(self.moves) or self.gone or self.new)

    @cached_property
    def families(self) -> pd.DataFrame:
        """Median errors as shipped before and after, of each family whose median the moved rows changed."""
        now, (column, what) = self.ledger.scored, next(iter(self.ledger.compared.items()))
        moved = self.moves[self.moves["what"] == what].set_index("id")["before"]
        were = now.assign(error=(now["id"].map(moved).fillna(now[column]) / now[self.ledger.measured] - 1))
        before = self._medians(were[~were["id"].isin(self.new)], "before")
        both = before.merge(self._medians(now, "after"), on=["family", "name"], how="right")
        return both[both["before"] != both["after"]].reset_index(drop=True)

    def _medians(self, rows: pd.DataFrame, name: str) -> pd.DataFrame:
        return self.ledger.medians(rows).rename(columns={"median_abs_error": name})

    def lines(self) -> Iterator[str]:
        """Each row that moved, the medians that moved with them, and the verdict."""
        for row in plain(self.moves):
            yield f"{row['id']}: {row['what']} {row['before']:.5g} to {row['after']:.5g} ({row['change']:+.2%})"
        yield from (f"{key}: no longer predicted" for key in self.gone)
        yield from (f"{key}: was not predicted" for key in self.new)
        for row in plain(self.families):
            before = "-" if row["before"] is None else f"{row['before']:.2%}"
            family = self.ledger.families.get(row["family"], "rows")
            yield f"median error of {family} {row['name']}: {before} to {row['after']:.2%}"
        many = self.moves["id"].nunique() + len(self.gone) + len(self.new)
        what = f"{many:,} rows moved" if many else "no row moved"
        yield f"{what} by more than {self.gate.tolerance:.2%} of {len(self._before):,} in {self.gate.path}"

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain values."""
        return {
            "file": self.ledger.path.name, "against": self.gate.path.name, "tolerance": self.gate.tolerance,
            "rows": len(self._before), "moved": self.moved, "moves": plain(self.moves), "gone": self.gone,
            "new": self.new, "families": plain(self.families),
        }  # fmt: skip

    def to_csv(self) -> bytes:
        """The rows of the ledger as they are now."""
        return self.ledger.to_csv()


def read_gate(path: Path, columns: Sequence[str], tolerance: str = TOLERANCE) -> Gate:
    """Predictions in these columns as --csv wrote them, and what they may move: `0.5%`, or a fraction.

    A UserError if the file cannot be read or is none of predictions, or the tolerance is no share.
    """
    try:
        if not 0 <= (share := parse_share(tolerance)) < 1:
            raise ValueError(tolerance)
    except ValueError:
        raise UserError(fault("--tolerance", "", tolerance, "expected a share such as 0.5% or 0.005")) from None
    return Gate(path, read_predictions(path, columns), share)
