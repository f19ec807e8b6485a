"""The ledger of weight updates: every row beside its prediction, as shipped and with its group left out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ....base.tables import Columns, markdown_table, terminal_table
from ....runner import Runner
from ..ledger import Ledger, Watch, csv_bytes, plain, predict_cases, read_left_out, split_rows
from ..scores import coverage, score_parts, warn
from .cases import UpdateCase, read_cases, shipped_table

ERRORS = {"error": "as shipped", "model_left_out": "model left out", "system_left_out": "system left out"}
"""Columns of signed errors, and what they are."""

_COLUMNS = (
    "line", "system", "stack", "model", "method", "phase", "gpus", "seconds", "predicted_s", "error",
    "interval_low_s", "interval_high_s", *list(ERRORS)[1:],
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class UpdateLedger(Ledger):
    """The rows of a file of weight updates."""

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Scores of each system, of all rows, and of each way of leaving out; errors as fractions."""
        by_system = [("system", str(name), rows) for name, rows in self.table.groupby("system", sort=False)]
        parts = [*by_system, ("system", "all", self.table)]
        return score_parts(parts, ERRORS, "seconds").drop(columns="family").rename(columns={"name": "system"})

    def to_json(self) -> dict[str, Any]:
        """All numbers, errors as fractions."""
        return {
            "file": self.path.name,
            "kind": "weight_update",
            "rows": len(self.table) + len(self.reasons),
            "predicted": len(self.table),
            "parameters": self.parameters,
            "summary": plain(self.summary),
            "table": plain(self.worst_first),
            "not_predicted": self.not_predicted(),
        }

    def to_csv(self) -> bytes:
        """The predicted rows, the worst first."""
        return csv_bytes(self.worst_first)

    def lines(self) -> Iterator[str]:
        """Every row, the worst first; scores by system; how many parameters; what was not predicted."""
        if len(self.table):
            yield from (*terminal_table(self.worst_first.to_dict("records"), _ROWS), "")
            yield from (*terminal_table(_summary(self), _SUMMARY), "")
            for row in _summary(self):
                yield from warn(f"{row['system']}, {row['errors']}", row["held"], row["held_of"])
        moved = (
            f"; {self.parameters} parameters of software stacks were moved by the shipped fit, none belongs to a row"
        )
        predicted = f"{len(self.table)} of {len(self.table) + len(self.reasons)} rows predicted"
        yield predicted + (moved if self.parameters else "")
        yield from (f"not predicted: {line}" for line in self.why_not(f"{self.path}:"))


def read_ledger(
    path: Path | None = None, runner: Runner | None = None, watch: Watch | None = None, stack: str | None = None
) -> UpdateLedger:
    """Predict the rows of a file of weight updates (default: the one that ships); `watch` hears how many are done.

    All of them on one `stack`, if one is named: no fit of ours has left these out. A UserError if the file cannot be
    read, or lacks a column.
    """
    path = path or shipped_table()
    cases = read_cases(path, stack)
    left_out, parameters = read_left_out("weight_update_fit.json") if stack is None else ({}, 0)
    answers = predict_cases(cases, runner, watch)
    rows, reasons = split_rows(cases, answers, lambda case, found: _row(case, found, left_out.get(case.key, {})))
    return UpdateLedger(path, pd.DataFrame(rows, columns=list(_COLUMNS)), reasons, parameters)


def _row(case: UpdateCase, found: Mapping[str, float], left_out: Mapping[str, float]) -> dict[str, Any]:
    cells = case.cells
    return {
        **{column: cells.text(column) for column in ("system", "model", "method", "phase")},
        **found,
        **{f"{of}_left_out": left_out.get(of, np.nan) for of in ("model", "system")},
        "line": case.line,
        "stack": case.stack,
        "gpus": f"{cells.text('src_gpus')} to {cells.text('dst_gpus')}",
        "seconds": case.seconds,
        "error": found["predicted_s"] / case.seconds - 1,
    }


# In words and tables, for the terminal and for a page.

_ROWS: Columns = {
    "line": ("line", "count"), "system": ("system", "text"), "model": ("model", "text"), "method": ("method", "text"),
    "phase": ("phase", "text"), "gpus": ("GPUs", "text"), "seconds": ("published", "seconds"),
    "predicted_s": ("predicted", "seconds"), "error": ("error %", "signed percent"),
    "model_left_out": ("model out %", "signed percent"), "system_left_out": ("system out %", "signed percent"),
}  # fmt: skip
_SUMMARY: Columns = {
    "system": ("system", "text"), "errors": ("errors", "text"), "rows": ("rows", "count"),
    "median_abs_error": ("median %", "percent"), "p90_abs_error": ("p90 %", "percent"),
    "largest_abs_error": ("largest %", "percent"), "bias": ("bias %", "signed percent"),
    "interval_coverage": ("in interval %", "percent"),
}  # fmt: skip


def markdown(ledger: UpdateLedger) -> str:
    """The ledger as tables of a page: scores, all rows (worst first), and why others are not predicted."""
    rows = markdown_table(ledger.worst_first.to_dict("records"), _ROWS)
    reasons = (f"- {reason}" for reason in ledger.why_not())
    return "\n".join([*markdown_table(_summary(ledger), _SUMMARY), "", *rows, "", *reasons])


def _summary(ledger: UpdateLedger) -> list[dict[str, Any]]:
    """The scores; of few rows how many are in the interval, not which share."""
    return [row | {"interval_coverage": coverage(row["held"], row["held_of"])} for row in plain(ledger.summary)]
