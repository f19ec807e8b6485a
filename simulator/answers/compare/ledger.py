"""A ledger of one's own runs: what each took by kind of op, beside its prediction. A row is a run and a kind."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ...base.errors import UserError
from ...base.files import read_json, write_atomic
from .spans import SUMMARY, Joined, sum_by_kind

COLUMNS = [
    "run",
    "scenario",
    "scenario_hash",
    "machine",
    "ranks",
    "kind",
    "spans",
    "measured_s",
    "predicted_s",
    "error",
]
WHOLE = "(whole run)"
"""The kind of the row of a run from its first op to its last; others add up seconds over ops and ranks."""


def append(path: Path, found: Joined, run: Path) -> None:
    """Add the rows of a run to a ledger, which is made if need be. A run that is there already is replaced.

    Raises:
        UserError: the run has no summary, nothing predicts it, or the ledger is no ledger or cannot be written.
    """
    rows = rows_of(found, _summary(run))
    if path.exists():
        before = _read(path)
        same = (before["run"] == rows["run"].iloc[0]) & (before["scenario_hash"] == rows["scenario_hash"].iloc[0])
        rows = pd.concat([before[~same], rows])
    write_atomic(path, rows.to_csv(index=False, lineterminator="\n", float_format="%.6g").encode())


def rows_of(found: Joined, summary: Mapping[str, Any]) -> pd.DataFrame:
    """The rows of a run: the whole of it, then each kind of op that both sides have.

    A UserError if the other side is no prediction.
    """
    if "simulated_s" not in found.table:
        raise UserError("--ledger: takes a run and its scenario, not two runs")
    kinds = sum_by_kind(found.table).rename(columns={"simulated_s": "predicted_s"})
    whole = {"kind": WHOLE, "spans": int(kinds["spans"].sum()), **{key: summary[key] for key in _SECONDS}}
    table = pd.concat([pd.DataFrame([whole]), kinds[list(whole)]], ignore_index=True)
    about = {"run": summary.get("started"), "scenario": summary["name"], "scenario_hash": summary["scenario_hash"],
             "machine": summary.get("machine"), "ranks": summary["ranks"]}  # fmt: skip
    return table.assign(error=table["predicted_s"] / table["measured_s"] - 1, **about)[COLUMNS]


_SECONDS = ("measured_s", "predicted_s")


def _summary(run: Path) -> Mapping[str, Any]:
    folder = run if run.is_dir() else run.parent
    found = read_json(folder / SUMMARY)
    if not isinstance(found, dict) or not {"name", "scenario_hash", "ranks", *_SECONDS} <= found.keys():
        raise UserError(f"{folder / SUMMARY}: is not what `runcast execute --out` writes")
    return found


def _read(path: Path) -> pd.DataFrame:
    try:
        found = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as CSV: {str(error).splitlines()[0]}") from None
    if list(found.columns) != COLUMNS:
        raise UserError(f"{path}: is no ledger of runs: expected the columns {', '.join(COLUMNS)}")
    return found
