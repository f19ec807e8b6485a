"""The ledger of our own runs: rows of data/validation/executed.csv beside their predictions.

Collectives, weight updates and training steps that were executed with real processes (docs/testbed.md). A row is a
scenario file of data/validation/executed with changes, and a number of its report, as in the ledger of runs; the
scenarios rest on a profile that was measured on the same machine, before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...base.memo import Memo
from ...predict import predict
from ...runner import Runner
from ...scenario import check_question, resolve
from ...systems.registry import SYSTEMS
from .ledger import Watch, shipped_file
from .metrics import value_of
from .run_rows import RunCase, read_cases
from .runs import RunLedger, predict_rows


@dataclass(frozen=True)
class ExecutedCase(RunCase):
    """A row of the ledger of our own runs."""

    kind: ClassVar[str] = "executed"
    kinds: ClassVar[tuple[str, ...]] = ("collective", "train_step", "weight_update")
    files: ClassVar[str] = "executed"

    def predict(self, memo: Memo) -> dict[str, Any]:
        """The metric, and the ends of the report's 90 % interval over its time, if it has one.

        Raises:
            UserError: the scenario contains something that is not allowed, or the report has no such metric.
        """
        assert self.scenario is not None
        where = self.origin or self.where
        resolved = resolve(check_question(self.scenario, where), where, memo)
        report = predict(resolved).to_json()
        total = SYSTEMS[resolved.scenario.kind].total(report)
        low, high = (end / total.seconds for end in total.interval) if total.interval else (None, None)
        return {
            "predicted": value_of(report, self.cells.text("metric")), "mode": resolved.scenario.kind,
            "low": low, "high": high,
        }  # fmt: skip

    def interval(self, found: Mapping[str, Any]) -> tuple[float | None, float | None]:
        """The 90 % interval; none of a lone collective."""
        if found["low"] is None:
            return None, None
        return found["low"] * found["predicted"], found["high"] * found["predicted"]


@dataclass(frozen=True, eq=False)
class ExecutedLedger(RunLedger):
    """The rows of a file of executed scenarios."""

    kind = "executed"
    title = "Executed by runcast"
    every = "executed scenarios"
    origin = "executed"
    fitted = "nothing was fitted to them"


def read_executed_ledger(
    path: Path | None = None, runner: Runner | None = None, watch: Watch | None = None
) -> ExecutedLedger:
    """Predict the rows of a file (default: the one that ships); `watch` hears how many are done.

    A UserError if the file cannot be read, or lacks a column.
    """
    path = path or shipped_file("executed.csv")
    return predict_rows(ExecutedLedger, path, read_cases(path, ExecutedCase), runner, watch)
