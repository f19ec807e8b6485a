"""The ledger of published whole runs: rows beside their predictions, how they are scored, and their words.

What a row is, and how it is predicted, is in `run_rows`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from ...base.tables import Columns, markdown_table, terminal_table
from ...base.units import format_long
from ...runner import Runner
from ...systems.rl_cycle.report import CycleReport
from ...systems.run.report import RunReport
from .ledger import Ledger, Watch, csv_bytes, plain, predict_cases, split_rows
from .run_rows import BOUNDS, RunCase, read_cases, shipped_table
from .scores import count_held, coverage, error_scores, warn

PREDICTED = ("predicted",)
"""Columns that `--csv` writes and `--against` reads."""

_TEXTS = ("id", "source", "where", "subject", "evidence", "metric", "bound", "notes", "miss", "mode")
_NUMBERS = ("measured", "predicted", "error", "width", "interval_low", "interval_high")
_COLUMNS = ("line", *_TEXTS, *_NUMBERS, "holds")

GROUPS = {"evidence": "evidence", "subject": "subject", "source": "source"}
"""Columns by which rows are told apart, and what they are."""


@dataclass(frozen=True, eq=False)
class RunLedger(Ledger):
    """The rows of a file of runs. `error` is signed; of a row with a bound, `holds` says whether it is held instead.

    `title`, `every` and `origin` name the ledger, its scored rows and where what was measured is from; `fitted` says
    what was fitted to them.
    """

    cases: Sequence[RunCase]

    kind = "run"
    title = "Runs"
    every = "measured runs"
    origin = "published"
    fitted = "nothing but widths of intervals was fitted to them"
    compared = MappingProxyType({"predicted": "prediction"})
    measured = "measured"
    families = MappingProxyType(GROUPS)

    @cached_property
    def scored(self) -> pd.DataFrame:
        """Rows of runs that were measured, and not only bounded."""
        return self.table[(self.table["evidence"] == "measured") & self.table["error"].notna()]

    @cached_property
    def bounded(self) -> pd.DataFrame:
        """Rows of which the source says no more than a bound."""
        return self.table[self.table["bound"] != ""]

    @cached_property
    def unmeasured(self) -> pd.DataFrame:
        """Identities and projections, which say whether we count as the source does, and not how good a model is."""
        return self.table[(self.table["evidence"] != "measured") & self.table["error"].notna()]

    @cached_property
    def groups(self) -> list[dict[str, Any]]:
        """Scores of each subject and each source."""
        return [
            {"group": GROUPS[column], "name": str(name), **scores(rows)}
            for column in ("subject", "source")
            for name, rows in self.scored.groupby(column, sort=False)
        ]

    @cached_property
    def unmeasured_groups(self) -> list[dict[str, Any]]:
        """Scores of identities and of projections."""
        return [
            {"group": "evidence", "name": str(name), **scores(rows)}
            for name, rows in self.unmeasured.groupby("evidence")
        ]

    def medians(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The median absolute error of all of these rows and of each group: family, name, median_abs_error."""
        parts = [("all", "all", rows), *((of, str(name), part) for of in GROUPS for name, part in rows.groupby(of))]
        found = [
            {"family": family, "name": name, "median_abs_error": error_scores(part["error"])["median_abs_error"]}
            for family, name, part in parts
        ]
        return pd.DataFrame(found, columns=["family", "name", "median_abs_error"])

    def to_json(self) -> dict[str, Any]:
        """All numbers, errors as fractions."""
        return {
            "file": self.path.name,
            "kind": self.kind,
            **scores(self.scored),
            "rows": len(self.cases),
            "predicted": len(self.table),
            "scored": len(self.scored),
            "bounds": len(self.bounded),
            "bounds_held": int(self.bounded["holds"].astype(bool).sum()),
            "groups": self.groups,
            "not_scored": self.unmeasured_groups,
            "table": plain(self.worst_first),
            "not_predicted": self.not_predicted(),
        }

    def to_csv(self) -> bytes:
        """All rows, the worst first, and behind them those that are not predicted with their `reason`."""
        ids = {case.line: case.cells.text("id") for case in self.cases}
        without = [{"line": line, "id": ids[line], "reason": reason} for line, reason in self.reasons.items()]
        return csv_bytes(pd.concat([self.worst_first.astype(object).assign(reason=""), pd.DataFrame(without)]))

    def lines(self) -> Iterator[str]:
        """Scored rows, the worst first; bounds; what is shown apart; scores; what was not predicted."""
        shown = {**ROWS, "measured": (self.origin, "text")}
        for rows, columns in ((self.scored, shown), (self.bounded, BOUNDED), (self.unmeasured, shown)):
            if len(rows):
                yield from (*terminal_table(in_words(rows), columns), "")
        if self.groups:
            yield from (*terminal_table(score_rows(self), SCORES), "")
            yield from warn("all", *(scores(self.scored)[key] for key in ("held", "held_of")))
        yield counts(self)
        yield from (f"not predicted: {line}" for line in self.why_not(f"{self.path}:"))


def read_run_ledger(path: Path | None = None, runner: Runner | None = None, watch: Watch | None = None) -> RunLedger:
    """Predict the rows of a file of runs (default: the one that ships); `watch` hears how many are done.

    A UserError if the file cannot be read, or lacks a column.
    """
    path = path or shipped_table()
    return predict_rows(RunLedger, path, read_cases(path), runner, watch)


L = TypeVar("L", bound=RunLedger)


def predict_rows(of: type[L], path: Path, cases: Sequence[RunCase], runner: Runner | None, watch: Watch | None) -> L:
    """The ledger of these rows, predicted."""
    rows, reasons = split_rows(cases, predict_cases(cases, runner, watch), _row)
    types = dict.fromkeys(_NUMBERS, float) | dict.fromkeys(_TEXTS, str)
    return of(path, pd.DataFrame(rows, columns=list(_COLUMNS)).astype(types), reasons, 0, cases)


def _row(case: RunCase, found: Mapping[str, Any]) -> dict[str, Any]:
    measured, bound = case.cells.number("measured"), case.cells.text("bound")
    low, high = case.interval(found)
    return {
        **{column: case.cells.text(column) for column in _TEXTS},
        **found,
        "interval_low": low,
        "interval_high": high,
        "line": case.line,
        "measured": measured,
        "error": np.nan if bound else found["predicted"] / measured - 1,
        "holds": BOUNDS[bound](found["predicted"], measured) if bound else None,
    }


def scores(rows: pd.DataFrame) -> dict[str, Any]:
    """How many rows, median and p90 of absolute errors, the bias, how many intervals hold what was measured, how wide.

    `median_reach` is the factor from the middle of an interval to its end, less one.
    """
    known = rows[rows["interval_low"].notna()]
    inside = known["measured"].between(known["interval_low"], known["interval_high"])
    errors = error_scores(rows["error"]) if len(rows) else dict.fromkeys(("median_abs_error", "p90_abs_error", "bias"))
    factor = known["interval_high"] / known["interval_low"]
    reach = float(factor.median()) ** 0.5 - 1 if len(known) else None
    return {"rows": len(rows), **errors, **count_held(inside), "median_reach": reach}


# In words and tables, for the terminal and for a page.

_WHOLE = 10_000  # amounts above are shown without decimals

ROWS: Columns = {
    "id": ("row", "text"), "evidence": ("evidence", "text"), "metric": ("metric", "text"),
    "measured": ("published", "text"), "predicted": ("predicted", "text"), "error": ("error %", "signed percent"),
    "interval": ("90 % interval", "text"),
}  # fmt: skip
BOUNDED: Columns = {
    "id": ("row", "text"), "evidence": ("evidence", "text"), "metric": ("metric", "text"),
    "measured": ("published bound", "text"), "predicted": ("predicted", "text"), "holds": ("held", "yes"),
}  # fmt: skip
SCORES: Columns = {
    "group": ("of", "text"), "name": ("rows of", "text"), "rows": ("rows", "count"),
    "median_abs_error": ("median %", "percent"), "p90_abs_error": ("p90 %", "percent"),
    "bias": ("bias %", "signed percent"), "interval_coverage": ("in interval", "text"),
    "median_reach": ("its median ± %", "percent"),
}  # fmt: skip


def in_words(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows with their amounts as text, the worst first."""
    order = rows["error"].abs().sort_values(ascending=False, kind="stable").index
    return [_row_in_words(row) for row in plain(rows.loc[order])]


def _row_in_words(row: Mapping[str, Any]) -> dict[str, Any]:
    def text(column: str) -> str:
        return _amount(row["metric"], row[column])

    varies = row["interval_low"] is not None
    return {
        **row,
        "measured": f"{row['bound']} {text('measured')}".strip(),
        "predicted": text("predicted"),
        "interval": f"{text('interval_low')} to {text('interval_high')}" if varies else "-",
    }


def _amount(metric: str, value: float) -> str:
    """An amount of a metric in words: seconds as people say them, and plain numbers."""
    units = {one.name: one.unit for one in (*CycleReport.metrics, *RunReport.metrics)}
    above, *below = (units.get(key.strip().partition(".")[0], "1") for key in metric.split("/", 1))
    if above == "s" and below in ([], ["1"]):
        return format_long(value)
    return f"{value:,.0f}" if value >= _WHOLE else f"{value:,.4g}"


def score_rows(ledger: RunLedger) -> list[dict[str, Any]]:
    """Scores of all scored rows, of each group, and of what is shown apart; few rows in their interval are counted."""
    every = {"group": "all", "name": ledger.every, **scores(ledger.scored)}
    return [
        row | {"interval_coverage": coverage(row["held"], row["held_of"])}
        for row in (every, *ledger.groups, *ledger.unmeasured_groups)
    ]


def counts(ledger: RunLedger) -> str:
    """The numbers of rows, in words."""
    held, bounds = int(ledger.bounded["holds"].astype(bool).sum()), len(ledger.bounded)
    return (
        f"{len(ledger.table)} of {len(ledger.cases)} rows predicted, {len(ledger.scored)} scored; "
        f"{held} of {bounds} bounds held; {ledger.fitted}"
    )


def markdown(rows: pd.DataFrame, columns: Columns) -> Iterator[str]:
    """Rows as a table of a page."""
    return markdown_table(in_words(rows), columns)
