"""The shipped ledgers as the page of validation shows them: rows of one form, whatever was measured.

Training steps are read beside predictions that ship too. Weight updates are simulated, some 6 s, once, in another
process, and kept in a cache that all sessions share.
"""

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from diskcache import Cache

from ..simulator.answers.validate.scores import count_held, coverage, error_scores, is_covered
from ..simulator.answers.validate.steps import StepLedger, restore, shipped_table
from ..simulator.answers.validate.steps.ledger import ERRORS, known_reason
from ..simulator.answers.validate.steps.ledger import FAMILIES as STEP_FAMILIES
from ..simulator.answers.validate.updates import ERRORS as UPDATE_ERRORS
from ..simulator.answers.validate.updates import UpdateLedger, read_ledger
from ..simulator.base.files import read_toml
from ..simulator.formats.samples import read_table
from ..simulator.runner import InProcess

if TYPE_CHECKING:
    import pandas as pd

STEPS, UPDATES = "train_step", "weight_update"
KINDS = {STEPS: "Training steps", UPDATES: "Weight updates"}
LEFT_OUT: Mapping[str, Mapping[str, str]] = {STEPS: ERRORS, UPDATES: UPDATE_ERRORS}
"""Columns of signed errors by kind of ledger, and what they are; the first is that of predictions as shipped."""

FAMILIES: Mapping[str, Mapping[str, str]] = {
    STEPS: STEP_FAMILIES,
    UPDATES: {"source": "system", "gpu": "GPU", "stack": "stack", "model": "model", "method": "method"},
}
"""Columns by which rows are told apart, and what they are."""


def simulate_updates(place: str, watch: Callable[[int, int], None]) -> None:
    """Simulate the ledger of weight updates, some seconds, and keep it in the cache of this folder."""
    with Cache(place) as cache:
        if UPDATES not in cache:
            os.nice(10)
            cache[UPDATES] = read_ledger(runner=InProcess(), watch=watch)


class Ledgers:
    """Both ledgers: training steps are read on first use, weight updates once they are in the cache."""

    def __init__(self, cache: Mapping[str, Any]):
        self._cache = cache

    @cached_property
    def _steps(self) -> StepLedger:
        return restore(shipped_table().with_name("training_predictions.csv"))

    @cached_property
    def _known(self) -> "pd.Series[str]":
        import pandas as pd

        words = read_toml(shipped_table().with_suffix(".toml"))
        rows = self._steps.scored
        reasons = [known_reason(row, words) for row in rows[["id", *STEP_FAMILIES]].to_dict("records")]
        return pd.Series(reasons, rows.index)

    def rows(self, kind: str, column: str) -> "pd.DataFrame | None":
        """The rows of a ledger with the errors of a column, worst first; None while nobody has simulated it."""
        if kind == STEPS:
            rows = step_rows(self._steps.scored, column).assign(known=self._known)
        elif (ledger := self._cache.get(UPDATES)) is not None:
            rows = update_rows(ledger, column)
        else:
            return None
        return rows.loc[rows["error"].abs().sort_values(ascending=False, kind="stable").index]


def step_rows(scored: "pd.DataFrame", column: str) -> "pd.DataFrame":
    """Training steps that have this error; seconds as they would have been predicted."""
    rows = scored[scored[column].notna()]
    predicted_s = rows["predicted_s"] if column == "error" else rows["measured_s"] * (1 + rows[column])
    return rows.assign(predicted_s=predicted_s, error=rows[column], inside=is_covered(rows, column, "measured_s"))


def update_rows(ledger: UpdateLedger, column: str) -> "pd.DataFrame":
    """Weight updates, the same, with devices as the file names them.

    What the interval would have been with rows left out is not known.
    """
    rows = ledger.table[ledger.table[column].notna()]
    known = rows["seconds"].between(rows["interval_low_s"], rows["interval_high_s"]).astype(object)
    return rows.assign(
        id="line " + rows["line"].astype(str),
        source=rows["system"],
        gpu=rows["line"].map(read_table(ledger.path).set_index("line")["gpu"]),
        measured_s=rows["seconds"],
        predicted_s=rows["seconds"] * (1 + rows[column]),
        error=rows[column],
        inside=known if column == "error" else None,
        known=rows["method"] + ", " + rows["phase"],
    )


def scores(rows: "pd.DataFrame") -> dict[str, Any]:
    """Rows, median, p90 and bias as fractions, and how many intervals `held` of those `held_of` that are known."""
    held = count_held(rows["inside"])
    told = {"held": held["held"], "held_of": held["held_of"], "verdict": held["confidence"]}
    shown = coverage(held["held"], held["held_of"])
    return {"rows": len(rows), **error_scores(rows["error"]), **told, "coverage": shown}


def scores_by(rows: "pd.DataFrame", family: str) -> "pd.DataFrame":
    """The scores of each part of a family, with its `name`, the largest first."""
    import pandas as pd

    parts = [{"name": str(name), **scores(part)} for name, part in rows.groupby(family)]
    return pd.DataFrame(parts).sort_values("rows", ascending=False, kind="stable", ignore_index=True)
