"""The shipped ledgers as the page of validation shows them: rows of one form, whatever was measured.

Training steps are read beside predictions that ship too. Weight updates are simulated, some 15 s, once in a process of
its own; whoever asks meanwhile is told so.
"""

import os
from collections.abc import Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing import get_context
from threading import Lock
from typing import TYPE_CHECKING, Any

from ..simulator.files import read_toml
from ..simulator.samples import read_table
from ..simulator.validate.coverage import count, coverage, verdict
from ..simulator.validate.ledger import SCORES, Ledger, read_ledger
from ..simulator.validate.steps import StepLedger, restored, shipped
from ..simulator.validate.steps.families import ERRORS, inside
from ..simulator.validate.steps.families import FAMILIES as STEP_FAMILIES
from ..simulator.validate.steps.known import known_of
from ..simulator.validate.summary import of_errors

if TYPE_CHECKING:
    import pandas as pd

STEPS, UPDATES = "train_step", "weight_update"
KINDS = {STEPS: "Training steps", UPDATES: "Weight updates"}
LEFT_OUT: Mapping[str, Mapping[str, str]] = {STEPS: ERRORS, UPDATES: SCORES}
"""Columns of signed errors by kind of ledger, and what they are; the first is that of predictions as shipped."""

FAMILIES: Mapping[str, Mapping[str, str]] = {
    STEPS: STEP_FAMILIES,
    UPDATES: {"source": "system", "gpu": "GPU", "stack": "stack", "model": "model", "method": "method"},
}
"""Columns by which rows are told apart, and what they are."""

COLUMNS = ("id", "source", "gpu", "gpus", "model", "stack", "measured_s", "predicted_s", "error", "inside", "known")
"""Of all rows; those of `FAMILIES` are there besides."""


@dataclass
class Ledgers:
    """Both ledgers, each made when it is first asked for; threads share them."""

    _reading: Lock = field(default_factory=Lock)
    _simulated: "Future[Ledger] | None" = None

    @cached_property
    def _steps(self) -> StepLedger:
        return restored(shipped().with_name("training_predictions.csv"))

    @cached_property
    def _known(self) -> "pd.Series[str]":
        words = read_toml(shipped().with_suffix(".toml"))
        rows = self._steps.scored
        return rows[["id", *STEP_FAMILIES]].apply(lambda row: known_of(row, words), axis=1)

    def rows(self, kind: str, column: str) -> "pd.DataFrame | None":
        """The rows of a ledger with the errors of a column, worst first; None while they are being simulated."""
        with self._reading:
            if kind == STEPS:
                return worst_first(step_rows(self._steps.scored, column).assign(known=self._known))
            ledger = self._updates()
        return None if ledger is None else worst_first(update_rows(ledger, column))

    def _updates(self) -> Ledger | None:
        if self._simulated is None:
            spawn = get_context("spawn")  # threads of a server are not for forking
            pool = ProcessPoolExecutor(1, mp_context=spawn, initializer=os.nice, initargs=(10,))  # behind who looks now
            self._simulated = pool.submit(read_ledger)
            pool.shutdown(wait=False)
        return self._simulated.result() if self._simulated.done() else None


def step_rows(scored: "pd.DataFrame", column: str) -> "pd.DataFrame":
    """Training steps that have this error; seconds as they would have been predicted."""
    rows = scored[scored[column].notna()]
    predicted_s = rows["predicted_s"] if column == "error" else rows["measured_s"] * (1 + rows[column])
    return rows.assign(predicted_s=predicted_s, error=rows[column], inside=inside(rows, column))


def update_rows(ledger: Ledger, column: str) -> "pd.DataFrame":
    """Weight updates, the same; what the interval would have been with rows left out is not known."""
    rows = ledger.table[ledger.table[column].notna()]
    known = rows["seconds"].between(rows["interval_low_s"], rows["interval_high_s"]).astype(object)
    return rows.assign(
        id="line " + rows["line"].astype(str),
        source=rows["system"],
        gpu=rows["line"].map(gpus_by_line(ledger)),
        measured_s=rows["seconds"],
        predicted_s=rows["seconds"] * (1 + rows[column]),
        error=rows[column],
        inside=known if column == "error" else None,
        known=rows["method"] + ", " + rows["phase"],
    )


def gpus_by_line(ledger: Ledger) -> dict[int, str]:
    """The device that each line of the file names."""
    table = read_table(ledger.path)
    return dict(zip(table["line"], table["gpu"], strict=True))


def worst_first(rows: "pd.DataFrame") -> "pd.DataFrame":
    """By absolute error."""
    return rows.loc[rows["error"].abs().sort_values(ascending=False, kind="stable").index]


def scores(rows: "pd.DataFrame") -> dict[str, Any]:
    """Rows, median, p90 and bias as fractions, and how many intervals `held` of those `held_of` that are known."""
    held, known = count(rows["inside"])
    told = {"held": held, "held_of": known, "coverage": coverage(held, known), "verdict": verdict(held, known)}
    return {"rows": len(rows), **of_errors(rows["error"]), **told}


def scores_by(rows: "pd.DataFrame", family: str) -> "pd.DataFrame":
    """The same of each part of a family, with its `name`, the largest first."""
    import pandas as pd

    parts = [{"name": str(name), **scores(part)} for name, part in rows.groupby(family)]
    return pd.DataFrame(parts).sort_values("rows", ascending=False, kind="stable", ignore_index=True)
