"""The shipped ledgers as the page of validation shows them: rows of one form, whatever was measured.

Training steps are read beside predictions that ship too. All other ledgers are simulated, 3 to 20 s, once, in another
process, and kept in a cache that all sessions share.
"""

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from diskcache import Cache

from ..simulator.answers.validate.cycles import read_cycle_ledger
from ..simulator.answers.validate.executed import read_executed_ledger
from ..simulator.answers.validate.ledger import Ledger
from ..simulator.answers.validate.runs import RunLedger, counts, in_words, read_run_ledger
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

STEPS, UPDATES, RUNS, CYCLES, EXECUTED = "train_step", "weight_update", "run", "rl_cycle", "executed"
KINDS = {
    STEPS: "Training steps", UPDATES: "Weight updates", RUNS: "Runs", CYCLES: "RL cycles", EXECUTED: "Executed here",
}  # fmt: skip
LEFT_OUT: Mapping[str, Mapping[str, str]] = {
    **{key: {"error": "as shipped"} for key in KINDS}, STEPS: ERRORS, UPDATES: UPDATE_ERRORS,
}  # fmt: skip
"""Columns of signed errors by kind of ledger, and what they are; the first is that of predictions as shipped."""

FAMILIES: Mapping[str, Mapping[str, str]] = {
    **{key: {"subject": "subject", "source": "source"} for key in KINDS},
    STEPS: STEP_FAMILIES,
    UPDATES: {"source": "system", "gpu": "GPU", "stack": "stack", "model": "model", "method": "method"},
}
"""Columns by which rows are told apart, and what they are."""

READERS: Mapping[str, Callable[..., Ledger]] = {
    UPDATES: read_ledger, RUNS: read_run_ledger, CYCLES: read_cycle_ledger, EXECUTED: read_executed_ledger,
}  # fmt: skip
"""What simulates each ledger whose predictions do not ship."""


def simulate_rows(kind: str, place: str, watch: Callable[[int, int], None]) -> None:
    """Simulate a ledger, some seconds, and keep it in the cache of this folder."""
    with Cache(place) as cache:
        if kind not in cache:
            os.nice(10)
            cache[kind] = READERS[kind](runner=InProcess(), watch=watch)


class Ledgers:
    """All ledgers: training steps are read on first use, others once they are in the cache."""

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
        elif (ledger := self._cache.get(kind)) is not None:
            rows = update_rows(ledger, column) if kind == UPDATES else run_rows(ledger)
        else:
            return None
        return rows.loc[rows["error"].abs().sort_values(ascending=False, kind="stable").index]

    def note(self, kind: str) -> str:
        """How many rows there are, and what was fitted to them: of a ledger with rows that are bounds, or have gaps."""
        ledger = self._cache.get(kind)
        return counts(ledger) if isinstance(ledger, RunLedger) else ""


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


def run_rows(ledger: RunLedger) -> "pd.DataFrame":
    """Runs, cycles or executed scenarios that were measured; amounts are text, as each row has a unit of its own."""
    import pandas as pd

    rows = ledger.scored
    held = rows["measured"].between(rows["interval_low"], rows["interval_high"]).astype(object)
    told = pd.DataFrame(in_words(rows)).set_index("line").loc[rows["line"]].set_index(rows.index)
    return rows.assign(
        inside=held.where(rows["interval_low"].notna(), None),
        known=rows["miss"].where(rows["miss"] != "", rows["notes"]),
        ratio=1 + rows["error"],
        **told[["measured", "predicted", "interval"]],
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
