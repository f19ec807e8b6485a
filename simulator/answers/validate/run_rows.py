"""The rows of a table of published runs: each is a scenario file with changes, and a number of its report.

Columns are those of data/validation/run.csv; the scenario files, with what the rows of a source have in common, are in
data/validation/runs. How rows are scored and shown is in `runs`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import exp, isfinite
from operator import ge, le
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, cast

from ...base.errors import UserError, hint
from ...base.files import path_beside, read_toml
from ...base.memo import Memo
from ...profile import Z90
from ...scenario import change, check_question, parse_changes, resolve
from ...systems.run.report import RunReport, make_run_report
from ...systems.run.resolve import ResolvedRun
from .ledger import Case, CellError, Cells, read_cells, shipped_file

REQUIRED = ("id", "source", "where", "subject", "evidence", "base", "changes", "metric", "measured")
EVIDENCE: Mapping[str, str] = {
    "measured": "a run was measured",
    "identity": "follows from numbers of the same source by arithmetic",
    "projection": "what the source's own model says",
}
"""What a row rests on. Only what was measured is scored."""

BOUNDS = {">=": ge, "<=": le}
"""How what was measured may be bounded: by no more than this number of the source."""

_SPEEDS = ("wall_s", "tokens_per_s")  # metrics to which the uncertainty of a predicted step belongs
_FILES = "runs"


def shipped_table() -> Path:
    """The ledger that ships with runcast."""
    return shipped_file("run.csv")


# A row and its prediction.


@dataclass(frozen=True)
class RunCase(Case):
    """A row of the ledger of runs; `origin` is the file that its scenario is from, which paths rest on."""

    origin: str = ""

    def predict(self) -> dict[str, Any]:
        """The mean of the metric over repeats of the run, and its 90 % interval, None where nothing varies.

        Raises:
            UserError: the scenario contains something that is not allowed, or the report has no such metric.
        """
        resolved = self.resolved
        metric, seed = self.cells.text("metric"), resolved.scenario.seed
        histories = [resolved.simulate(seed + i) for i in range(resolved.repeats)]
        values = [value_of(make_run_report(resolved, [one]).to_json(), metric) for one in histories]
        spread = make_run_report(resolved, histories).spread if metric in _SPEEDS else _spread(values)
        mean = fmean(values)
        low, high = (mean * exp(side * Z90 * spread) if spread else None for side in (-1, 1))
        return {"predicted": mean, "interval_low": low, "interval_high": high}

    @property
    def resolved(self) -> ResolvedRun:
        """The row's resolved scenario."""
        assert self.scenario is not None
        where = self.origin or self.where
        return cast(ResolvedRun, resolve(check_question(self.scenario, where), where, Memo()))


def _spread(values: list[float]) -> float:
    """The standard deviation of values relative to their mean."""
    mean = fmean(values)
    return stdev(values) / mean if len(values) > 1 and mean > 0 else 0.0


def value_of(report: Mapping[str, Any], metric: str) -> float:
    """A number of a report as JSON: `goodput`, `counts.failures`, or a ratio of two: `breakdown_s.lost / wall_s`.

    Raises:
        UserError: the report has no such number, or it is divided by none.
    """
    above, *below = (_number(report, key.strip()) for key in metric.split("/", 1))
    if below and not below[0]:
        raise UserError(f"metric = {metric!r}: divides by zero here")
    return above / below[0] if below else above


def _number(report: Mapping[str, Any], key: str) -> float:
    found: Any = report
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            if found is not report and key in _sparse():
                return 0.0
            raise UserError(f"metric = {key!r}: unknown; {hint(key, _names(report))}")
        found = found[part]
    if isinstance(found, bool) or not isinstance(found, int | float) or not isfinite(found):
        raise UserError(f"metric = {key!r}: is no number here")
    return float(found)


def _sparse() -> set[str]:
    """Metrics that a report leaves out where they are zero."""
    return {f"{one.name}.{name}" for one in RunReport.metrics if one.sparse for name in one.names}


def _names(report: Mapping[str, Any]) -> Iterator[str]:
    """Every number of a report by its key, those of a step's report left out."""
    for key, value in report.items():
        if isinstance(value, Mapping) and key != "step":
            yield from (f"{key}.{name}" for name in value)
        elif isinstance(value, int | float):
            yield key


# Rows of a file.


def read_cases(path: Path) -> list[RunCase]:
    """The rows of a file; a UserError if it cannot be read or lacks a column."""
    return [_case(line, where, cells) for line, where, cells in read_cells(path, REQUIRED, "those of run.csv")]


def _case(line: int, where: str, cells: Cells) -> RunCase:
    try:
        if cells.has("gap"):
            raise CellError(cells.text("gap"))
        _check(cells)
        origin = _origin(cells.text("base"), where.rpartition(":")[0])
        return RunCase(line, cells, _scenario(origin, cells.text("changes")), "", where, str(origin))
    except (CellError, UserError) as error:
        return RunCase(line, cells, None, str(error).partition("\n")[0], where)


def _check(cells: Cells) -> None:
    """Raises a CellError that says what is wrong with a row."""
    for column in ("id", "source", "where", "metric"):
        if not cells.has(column):
            raise CellError(f"{column} is not stated")
    for column, known in (("evidence", (*EVIDENCE,)), ("bound", ("", *BOUNDS))):
        if cells.text(column) not in known:
            allowed = ", ".join(word or "nothing" for word in known)
            raise CellError(f"{column} = {cells.text(column)!r}: expected {allowed}")
    if cells.time("measured") is None:
        raise CellError("measured is not stated")


def _origin(base: str, table: str) -> Path:
    """The scenario file of a row: a shipped one by its name, or a .toml file beside the table."""
    if base.endswith(".toml"):
        return path_beside(base, table)
    found = shipped_file(f"{_FILES}/{base}.toml")
    if not base or not found.is_file():
        known = sorted(file.stem for file in shipped_file(_FILES).glob("*.toml"))
        raise CellError(f"base = {base!r}: unknown; {hint(base, known)}, or a .toml file")
    return found


def _scenario(origin: Path, changes: str) -> dict[str, Any]:
    """The table of a scenario file with the changes of a row: `key=value; key=value`.

    Raises:
        CellError: the file is of another kind.
        UserError: the file cannot be read, or a change is none.
    """
    lines = [line for line in changes.split(";") if line.strip()]
    table = read_toml(origin)
    if table.get("kind") != "run":
        raise CellError(f"base = {origin.name!r}: expected a scenario of kind run")
    return change(table, parse_changes(lines, "changes", "run.wall='54 d'"), str(origin))
