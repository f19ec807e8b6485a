"""The ledger of weight updates: every published row beside its prediction, as shipped and with its group left out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...base.errors import UserError
from ...base.files import read_json
from .summary import count, held, of_errors, verdict
from .table import Ledger, csv_of, not_predicted, plain
from .updates import Case, read_cases, shipped

SCORES = {"error": "as shipped", "model_left_out": "model left out", "system_left_out": "system left out"}
"""Columns of signed errors, and what they are."""


@dataclass(frozen=True, eq=False)
class UpdateLedger(Ledger):
    """The rows of a file of weight updates."""

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Scores of each system, of all rows, and of each way of leaving out; errors as fractions."""
        parts = [(str(system), rows) for system, rows in self.table.groupby("system", sort=False)]
        return pd.DataFrame([
            {"system": name, "errors": words, **_scores(rows, column)}
            for name, rows in (*parts, ("all", self.table))
            for column, words in SCORES.items()
            if rows[column].notna().any()
        ])  # fmt: skip

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
            "not_predicted": not_predicted(self.reasons),
        }

    def to_csv(self) -> bytes:
        """The predicted rows, the worst first."""
        return csv_of(self.worst_first)


def read_ledger(path: Path | None = None, watch: Callable[[int, int], None] = lambda done, total: None) -> UpdateLedger:
    """Predict the rows of a file of weight updates (default: the one that ships); `watch` hears how many are done.

    Raises:
        UserError: the file cannot be read, or lacks a column.
    """
    path = path or shipped()
    cases = read_cases(path)
    about = read_json(files("runcast.data") / "validation" / "weight_update_fit.json")
    seen = about["left_out"]
    rows, reasons = [], {case.line: case.reason for case in cases if case.scenario is None}
    for done, case in enumerate(cases):
        watch(done, len(cases))
        if case.scenario is None:
            continue
        try:
            rows.append(_row(case, seen.get(case.key, {})))
        except UserError as error:  # what the row says does not divide, or does not fit
            reasons[case.line] = error.faults[0].removeprefix(f"{case.where}: ")
    table = pd.DataFrame(rows, columns=list(_COLUMNS))
    return UpdateLedger(path, table, dict(sorted(reasons.items())), about["about"]["parameters"])


_COLUMNS = (
    "line", "system", "stack", "model", "method", "phase", "gpus", "seconds", "predicted_s", "error",
    "interval_low_s", "interval_high_s", *list(SCORES)[1:],
)  # fmt: skip


def _row(case: Case, seen: Mapping[str, float]) -> dict[str, Any]:
    answer, cells = case.answer(), case.cells
    return {
        "line": case.line,
        "system": cells["system"],
        "stack": case.stack,
        "model": cells["model"],
        "method": cells["method"],
        "phase": cells["phase"],
        "gpus": f"{cells['src_gpus']} to {cells['dst_gpus']}",
        "seconds": case.seconds,
        "predicted_s": answer.seconds,
        "error": answer.seconds / case.seconds - 1,
        "interval_low_s": answer.low_s,
        "interval_high_s": answer.high_s,
        "model_left_out": seen.get("model", np.nan),
        "system_left_out": seen.get("system", np.nan),
    }


def _scores(rows: pd.DataFrame, column: str) -> dict[str, Any]:
    error = rows[column].dropna()
    inside, known = count(held(rows, "seconds")) if column == "error" else (0, 0)
    return {
        "rows": len(error),
        **of_errors(error),
        "largest_abs_error": float(error.abs().max()),
        "interval_coverage": inside / known if known else None,
        "held": inside,
        "held_of": known,
        "confidence": verdict(inside, known),
    }
