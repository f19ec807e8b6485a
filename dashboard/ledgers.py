"""The shipped ledgers as the page of validation shows them: rows of one form, whatever was measured.

Training steps are read beside predictions that ship too. Weight updates are simulated, some 6 s, once in a process of
its own; whoever asks meanwhile is told how far it is.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Lock
from typing import TYPE_CHECKING, Any

from ..simulator.answers.validate.scores import count_held, coverage, error_scores, in_interval
from ..simulator.answers.validate.steps import StepLedger, restore, shipped_table
from ..simulator.answers.validate.steps.ledger import ERRORS, known_reason
from ..simulator.answers.validate.steps.ledger import FAMILIES as STEP_FAMILIES
from ..simulator.answers.validate.updates import ERRORS as UPDATE_ERRORS
from ..simulator.answers.validate.updates import UpdateLedger, read_ledger
from ..simulator.base.errors import UserError
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


@dataclass(frozen=True)
class Progress:
    """How far a ledger is that is being simulated: rows that are done, of how many (0: not known yet)."""

    done: int = 0
    total: int = 0


class LedgerProcess:
    """The ledger of weight updates while another process makes it, behind whoever looks now."""

    def __init__(self) -> None:
        spawn = get_context("spawn")  # threads of a server are not for forking
        self._heard, told = spawn.Pipe(duplex=False)
        self._process = spawn.Process(target=_simulate, args=(told,), daemon=True)
        self._process.start()
        told.close()
        self._latest: Progress | UpdateLedger = Progress()

    def latest(self) -> Progress | UpdateLedger:
        """What was heard last: the ledger itself in the end.

        Raises:
            EOFError: the process died, perhaps (OSError) while it told something.
        """
        while not isinstance(self._latest, UpdateLedger) and self._heard.poll():
            self._latest = self._heard.recv()
        return self._latest

    def stop(self) -> None:
        """End it with nothing."""
        self._process.terminate()
        self._process.join()


def _simulate(tell: Connection) -> None:
    os.nice(10)
    tell.send(read_ledger(runner=InProcess(), watch=lambda done, total: tell.send(Progress(done, total))))


@dataclass
class Ledgers:
    """Both ledgers, each made when it is first asked for; threads share them."""

    simulating: Callable[[], LedgerProcess] = LedgerProcess
    _reading: Lock = field(default_factory=Lock)
    _updates: LedgerProcess | None = None

    @cached_property
    def _steps(self) -> StepLedger:
        return restore(shipped_table().with_name("training_predictions.csv"))

    @cached_property
    def _known(self) -> "pd.Series[str]":
        import pandas as pd

        words = read_toml(shipped_table().with_suffix(".toml"))
        rows = self._steps.scored
        told = [known_reason(row, words) for row in rows[["id", *STEP_FAMILIES]].to_dict("records")]
        return pd.Series(told, rows.index)

    def rows(self, kind: str, column: str) -> "pd.DataFrame | Progress":
        """The rows of a ledger with the errors of a column, worst first; how far it is while it is being simulated.

        Raises:
            UserError: the process that simulated it died; whoever asks again starts it anew.
        """
        with self._reading:
            if kind == STEPS:
                return _sorted(step_rows(self._steps.scored, column).assign(known=self._known))
            self._updates = self._updates or self.simulating()
            try:
                ledger = self._updates.latest()
            except (EOFError, OSError):
                self._end(self._updates)
                raise UserError("weight updates: their simulation ended before it was done") from None
        return ledger if isinstance(ledger, Progress) else _sorted(update_rows(ledger, column))

    def stop(self) -> None:
        """Nobody waits for the simulation any more; whoever asks again starts it anew."""
        with self._reading:
            if self._updates is None:
                return
            with suppress(EOFError, OSError):  # of one that died, and is ended like any other
                if isinstance(self._updates.latest(), UpdateLedger):
                    return
            self._end(self._updates)

    def _end(self, simulating: LedgerProcess) -> None:
        simulating.stop()
        self._updates = None


def step_rows(scored: "pd.DataFrame", column: str) -> "pd.DataFrame":
    """Training steps that have this error; seconds as they would have been predicted."""
    rows = scored[scored[column].notna()]
    predicted_s = rows["predicted_s"] if column == "error" else rows["measured_s"] * (1 + rows[column])
    return rows.assign(predicted_s=predicted_s, error=rows[column], inside=in_interval(rows, column, "measured_s"))


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


def _sorted(rows: "pd.DataFrame") -> "pd.DataFrame":
    """By absolute error, the worst first."""
    return rows.loc[rows["error"].abs().sort_values(ascending=False, kind="stable").index]


def scores(rows: "pd.DataFrame") -> dict[str, Any]:
    """Rows, median, p90 and bias as fractions, and how many intervals `held` of those `held_of` that are known."""
    held = count_held(rows["inside"])
    told = {"held": held["held"], "held_of": held["held_of"], "verdict": held["confidence"]}
    shown = coverage(held["held"], held["held_of"])
    return {"rows": len(rows), **error_scores(rows["error"]), **told, "coverage": shown}


def scores_by(rows: "pd.DataFrame", family: str) -> "pd.DataFrame":
    """The same of each part of a family, with its `name`, the largest first."""
    import pandas as pd

    parts = [{"name": str(name), **scores(part)} for name, part in rows.groupby(family)]
    return pd.DataFrame(parts).sort_values("rows", ascending=False, kind="stable", ignore_index=True)
