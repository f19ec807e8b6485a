"""The ledger of training steps: every row beside its prediction, as shipped and with its group left out of the fit."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ....base.errors import UserError
from ....base.files import digest, read_json, read_toml
from ....formats.samples import read_table
from ....uncertainty import shipped_fit
from ..table import Ledger, csv_of, not_predicted, plain
from .cases import Case, read_cases, shipped
from .columns import CellError, Cells
from .families import ERRORS, LEFT_OUT, over_sources, scores_by_family, scores_of_memory
from .pairs import pairs_of, scores_of_pairs

PREDICTED = ("predicted_s", "interval_low_s", "interval_high_s", "predicted_gib")
"""What a prediction says, in this order; a file of predictions has these columns, `id` and `reason`."""

Told = Callable[[int, int], None]
"""What is called with the rows done and the rows in all."""

_DEVICE = {"rank": "fullest", "counts": "device"}
"""What memory is taken for where its convention is not known."""


@dataclass(frozen=True, eq=False)
class StepLedger(Ledger):
    """The rows of a file of training steps; rows without an error have no measured time."""

    cases: Sequence[Case]

    @cached_property
    def scored(self) -> pd.DataFrame:
        """The rows that have a measured time."""
        return self.table[self.table["error"].notna()]

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Scores of each family of rows and each way of leaving out; errors as fractions."""
        return scores_by_family(self.scored)

    @cached_property
    def summary_without(self) -> pd.DataFrame:
        """The same without the rows that contradict their neighbours."""
        return scores_by_family(self.scored[~self.scored["contradicts"]])

    @cached_property
    def over_sources(self) -> dict[str, float]:
        """The median over sources of each source's median absolute error, by way of leaving out."""
        return over_sources(self.scored)

    @cached_property
    def memory(self) -> pd.DataFrame:
        """Scores of memory by what was measured."""
        return scores_of_memory(self.table)

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """Rows that differ in one choice alone, and what it changed."""
        line, measured, predicted = (self.scored[name] for name in ("line", "measured_s", "predicted_s"))
        return pairs_of(self.cases, dict(zip(line, zip(measured, predicted, strict=True), strict=True)))

    def to_json(self) -> dict[str, Any]:
        """All numbers, errors as fractions."""
        return {
            "file": self.path.name,
            "kind": "train_step",
            "rows": len(self.cases),
            "predicted": len(self.table),
            "scored": len(self.scored),
            "parameters": self.parameters,
            "summary": plain(self.summary),
            "summary_without_contradicting": plain(self.summary_without),
            "median_over_sources": self.over_sources,
            "memory": plain(self.memory),
            "pairs_summary": plain(scores_of_pairs(self.pairs)),
            "pairs": plain(self.pairs),
            "table": plain(self.worst_first),
            "not_predicted": not_predicted(self.reasons),
        }

    def to_csv(self) -> bytes:
        """All rows, the worst first, and behind them those that are not predicted with their `reason`."""
        ids = {case.line: case.key for case in self.cases}
        without = [{"line": line, "id": ids[line], "reason": reason} for line, reason in self.reasons.items()]
        return csv_of(pd.concat([self.worst_first.astype(object).assign(reason=""), pd.DataFrame(without)]))

    def predictions(self) -> bytes:
        """What was predicted, in the order of the file and with five digits; `restored` reads it."""
        ids = [case.key for case in self.cases]
        rounded = self.table.set_index("line")[list(PREDICTED)].map(lambda value: f"{value:.5g}")
        rows = rounded.reindex([case.line for case in self.cases]).reset_index()
        return csv_of(rows.assign(id=ids, reason=rows["line"].map(self.reasons))[["id", *PREDICTED, "reason"]])


def read_step_ledger(
    path: Path | None = None, processes: int | None = None, told: Told = lambda done, rows: None
) -> StepLedger:
    """Predict the rows of a file of training steps (default: the one that ships), on as many processes as CPUs.

    Raises:
        UserError: the file cannot be read, or lacks a column.
    """
    path = path or shipped()
    cases = read_cases(path)
    return _ledger(path, cases, list(_counted(_predictions(cases, processes or os.cpu_count() or 1), len(cases), told)))


def restored(predictions: Path, path: Path | None = None) -> StepLedger:
    """The ledger of a file of training steps from predictions that were written earlier; predicts nothing.

    Raises:
        UserError: a file cannot be read, or lacks a column.
    """
    path = path or shipped()
    cases, found = read_cases(path), read_predictions(predictions)
    lost = {"reason": f"not in {predictions.name}"}
    return _ledger(path, cases, [found.get(case.key, lost) for case in cases])


def read_predictions(path: Path) -> dict[str, dict[str, Any]]:
    """What a CSV of predictions or of a ledger says, by id; `reason` where a row was not predicted.

    Raises:
        UserError: the file cannot be read, lacks a column, names a row twice, or holds something else than numbers.
    """
    table = read_table(path)
    if missing := [name for name in ("id", *PREDICTED) if name not in table]:
        raise UserError(f"{path}:1: no column {', '.join(missing)}; expected what --csv writes")
    if twice := list(table["id"][table["id"].duplicated()]):
        raise UserError(f"{path}: id = {twice[0]!r}: stands there more than once")
    return {str(row["id"]): _prediction(row, path) for row in table.to_dict("records")}


def _prediction(row: Mapping[Any, Any], path: Path) -> dict[str, Any]:
    if row["predicted_s"] == "":
        return {"reason": row.get("reason") or "not predicted"}
    try:
        found = {name: Cells(row).time(name) for name in PREDICTED}
    except CellError as error:
        raise UserError(f"{path}:{row['line']}: {error}") from None
    if missing := [name for name, value in found.items() if value is None]:
        raise UserError(f"{path}:{row['line']}: {missing[0]}: is empty")
    return found


def _predictions(cases: Sequence[Case], processes: int) -> Iterator[dict[str, Any]]:
    if processes == 1:
        yield from map(_predicted, cases)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(_predicted, cases, chunksize=4)


def _counted(found: Iterable[dict[str, Any]], rows: int, told: Told) -> Iterator[dict[str, Any]]:
    for done, prediction in enumerate(found, 1):
        told(done, rows)
        yield prediction


def _predicted(case: Case) -> dict[str, Any]:
    if case.scenario is None:
        return {"reason": case.reason}
    try:
        answer = case.answer()
    except UserError as error:  # what the row says does not divide, or does not fit
        return {"reason": error.faults[0].removeprefix(f"{case.where}: ")}
    held = _as_measured(case, answer.memory_bytes) / 2**30
    return dict(zip(PREDICTED, (answer.seconds, answer.low_s, answer.high_s, held), strict=True))


def _as_measured(case: Case, by_rank: Sequence[float]) -> float:
    """Bytes of the rank that was measured, as its convention counts them."""
    said = _measures(case.cells.text("mem_convention"))
    held = by_rank[0] if said["rank"] == "first" else max(by_rank)
    context, unused = (case.resolved.profile.value(f"memory.{name}") for name in ("context_bytes", "fragmentation"))
    counted = {"device": held, "reserved": held - context * (1 + unused), "allocated": held / (1 + unused) - context}
    return counted[said["counts"]]


@cache
def _measures(convention: str) -> Mapping[str, str]:
    known: Mapping[str, Mapping[str, str]] = read_toml(shipped().with_suffix(".toml"))["memory"]
    return next((said for start, said in known.items() if convention.startswith(start)), _DEVICE)


def _ledger(path: Path, cases: Sequence[Case], predictions: Sequence[Mapping[str, Any]]) -> StepLedger:
    seen, parameters = _fitted(path)
    sure = shipped_fit().left_out if shipped_fit().about.get("sha256") == digest(path) else {}
    contradicts = read_toml(shipped().with_suffix(".toml"))["contradicts"]
    rows, reasons = [], {}
    for case, found in zip(cases, predictions, strict=True):
        if "reason" in found:
            reasons[case.line] = str(found["reason"])
            continue
        try:
            row = _row(case, found, seen.get(case.key, {}), case.key in contradicts)
            rows.append(row | {f"{name}_left_out_deviation": of for name, of in sure.get(case.key, {}).items()})
        except CellError as error:  # what was measured is no number
            reasons[case.line] = str(error)
    table = pd.DataFrame(rows, columns=list(_COLUMNS)).astype(_TYPES)
    return StepLedger(path, table, reasons, parameters, cases)


def _fitted(path: Path) -> tuple[Mapping[str, Mapping[str, float]], int]:
    """Errors with a row's group, stack or source left out, by id, and how many parameters were fitted.

    Another table than the one that was fitted to has rows of its own, whatever their ids.
    """
    file = files("runcast.data") / "validation" / "training_fit.json"
    if not file.is_file():  # nothing was fitted: the stacks are as they were written
        return {}, 0
    found = read_json(file)
    about = found["about"]
    return found["left_out"] if about["sha256"] == digest(path) else {}, about["parameters"]


DEVIATIONS = tuple(f"{column}_deviation" for column in LEFT_OUT)
"""Standard deviation of ln(seconds) that a prediction has with the row's group, stack or source left out."""

_COLUMNS = (
    "line", "id", "source", "framework", "sw_version", "stack", "model", "arch", "gpu", "gpus", "precision", "pattern",
    "measured_s", "predicted_s", "error", "interval_low_s", "interval_high_s", *LEFT_OUT, *DEVIATIONS,
    "measured_gib", "predicted_gib", "memory_error", "mem_convention", "assumed", "contradicts",
)  # fmt: skip
_TYPES = {"contradicts": bool, "arch": str} | dict.fromkeys((*ERRORS, *DEVIATIONS), float)
"""Of columns that hold nothing where no row is predicted, or where the fit left nothing out."""


def _row(case: Case, found: Mapping[str, float], seen: Mapping[str, float], contradicts: bool) -> dict[str, Any]:
    cells = case.cells
    measured_s, measured_gib = (_measured(cells, column) for column in ("iter_time_s", "peak_mem_gib"))
    told = ("source", "framework", "sw_version", "model", "arch", "gpu", "precision", "mem_convention")
    return {
        **found,
        **{column: cells.text(column) for column in told},
        **{column: seen.get(column.removesuffix("_left_out"), np.nan) for column in LEFT_OUT},
        "line": case.line,
        "id": case.key,
        "stack": case.stack,
        "gpus": cells.whole("n_gpus"),
        "pattern": _pattern(case),
        "measured_s": measured_s,
        "error": found["predicted_s"] / measured_s - 1,
        "measured_gib": measured_gib,
        "memory_error": found["predicted_gib"] / measured_gib - 1,
        "assumed": "; ".join(case.assumed),
        "contradicts": contradicts,
    }


def _measured(cells: Cells, column: str) -> float:
    value = cells.time(column)
    return np.nan if value is None else value


def _pattern(case: Case) -> str:
    """Which axes are above 1; data parallelism that shards weights is `fsdp`."""
    assert case.scenario is not None
    parallel: Mapping[str, Any] = case.scenario["parallel"]
    axes = [axis for axis in ("tp", "cp", "pp", "ep") if parallel.get(axis, 1) > 1]
    if case.cells.whole("dp", 1) > 1:
        axes.append("fsdp" if parallel["zero"] == 3 else "dp")
    return "+".join(axes) or "one rank"
