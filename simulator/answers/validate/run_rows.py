"""The rows of a table of runs: each is a scenario file with changes, and a number of its report.

Columns are those of data/validation/run.csv; the scenario files, with what the rows of a source have in common, are in
data/validation/runs. How rows are scored and shown is in `runs`; rows of RL cycles, in `cycles`, and of executed
scenarios, in `executed`, are of the same form.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot
from operator import ge, le
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, cast

from ...base.errors import UserError, hint
from ...base.files import path_beside, read_toml
from ...base.memo import Memo
from ...scenario import change, check_question, parse_changes, resolve
from ...systems.run.history import History
from ...systems.run.intervals import (
    Range,
    certain_of,
    power_of,
    price_width,
    quantity_of,
    range_with_failures,
    shipped_run_errors,
)
from ...systems.run.report import make_run_report
from ...systems.run.resolve import ResolvedRun
from ...systems.run.training.rates import spread_between_clusters
from .ledger import Case, CellError, Cells, read_cells, shipped_file
from .metrics import value_of

REQUIRED = ("id", "source", "where", "subject", "evidence", "base", "changes", "metric", "measured")
EVIDENCE: Mapping[str, str] = {
    "measured": "a run was measured",
    "identity": "follows from numbers of the same source by arithmetic",
    "projection": "what the source's own model says",
}
"""What a row rests on. Only what was measured is scored."""

BOUNDS = {">=": ge, "<=": le}
"""How what was measured may be bounded: by no more than this number of the source."""

_SPEEDS = ("wall_s", "tokens_per_s")  # metrics to which the uncertainty of prices belongs


def shipped_table() -> Path:
    """The ledger that ships with runcast."""
    return shipped_file("run.csv")


# A row and its prediction.


@dataclass(frozen=True)
class RunCase(Case):
    """A row of the ledger of runs; `origin` is the file that its scenario is from, which paths rest on.

    `kind` is that of the ledger, `kinds` are those of its scenarios, and `files` is the folder of the shipped ones.
    """

    origin: str = ""
    kind: ClassVar[str] = "run"
    kinds: ClassVar[tuple[str, ...]] = ("run",)
    files: ClassVar[str] = "runs"

    def predict(self, memo: Memo) -> dict[str, Any]:
        """The mean of the metric over repeats of the run with rates as stated, and the range of its report.

        The `range` is what repeats with drawn rates of failures and prices leave open, as in a report, and `width` the
        deviation of ln(metric) in it; only that clusters of the row's own source do not say how far rates are apart.

        Raises:
            UserError: the scenario contains something that is not allowed, or the report has no such metric.
        """
        resolved, metric = self.resolved, self.cells.text("metric")
        stated = drawn = self._repeat(resolved.with_rate_spread(None))
        if resolved.has_drawn_rates and self.is_scored:
            drawn = self._repeat(resolved.with_rate_spread(spread_between_clusters(self.cells.text("source"))))
        of_prices = price_width(resolved, drawn[0][0]) if metric in _SPEEDS else 0.0
        histories = [history for history, _ in drawn]
        found = range_with_failures(_values(drawn, metric), histories, power_of(metric), of_prices)
        predicted = fmean(_values(stated, metric))
        limits = certain_of(resolved, histories).limits(metric)
        return {
            "predicted": predicted,
            "range": found,
            "limits": limits,
            "width": found.spread,
            "mode": resolved.mode.name,
        }

    def _repeat(self, resolved: ResolvedRun) -> list[tuple[History, Mapping[str, Any]]]:
        """What happened in each repeat of the run, and its report as JSON."""
        seeds = [resolved.scenario.seed + i for i in range(resolved.repeats)]
        found = [(resolved.simulate(seed), resolved.drawn_mtbf_s(seed)) for seed in seeds]
        return [(one, make_run_report(resolved, [one]).to_json() | {"mtbf_s": mtbf_s}) for one, mtbf_s in found]

    def interval(self, found: Mapping[str, Any]) -> tuple[float | None, float | None]:
        """The 90 % interval, with what runs of other sources were off; none where nothing is known to vary."""
        metric, source = (self.cells.text(column) for column in ("metric", "source"))
        off = shipped_run_errors().width(quantity_of(metric), found["mode"], source) if self.is_scored else 0.0
        known: Range = found["range"]
        least, most = found["limits"]
        whole = replace(known, width=hypot(known.width, off), least=least, most=most)
        return whole.ends() if whole.spread else (None, None)

    @property
    def is_scored(self) -> bool:
        """Whether a run was measured, and not only bounded; in identities and projections rates are what they state."""
        return self.cells.text("evidence") == "measured" and not self.cells.has("bound")

    @property
    def resolved(self) -> ResolvedRun:
        """The row's resolved scenario."""
        assert self.scenario is not None
        where = self.origin or self.where
        return cast(ResolvedRun, resolve(check_question(self.scenario, where), where, Memo()))


def _values(repeats: Sequence[tuple[History, Mapping[str, Any]]], metric: str) -> list[float]:
    return [value_of(report, metric) for _, report in repeats]


# Rows of a file.


def read_cases(path: Path, of: type[RunCase] = RunCase) -> list[RunCase]:
    """The rows of a file; a UserError if it cannot be read or lacks a column."""
    return [
        _case(of, line, where, cells) for line, where, cells in read_cells(path, REQUIRED, f"those of {of.kind}.csv")
    ]


def _case(of: type[RunCase], line: int, where: str, cells: Cells) -> RunCase:
    try:
        if cells.has("gap"):
            raise CellError(cells.text("gap"))
        _check(cells)
        origin = _origin(of.files, cells.text("base"), where.rpartition(":")[0])
        return of(line, cells, _scenario(of.kinds, origin, cells.text("changes")), "", where, str(origin))
    except (CellError, UserError) as error:
        return of(line, cells, None, str(error).partition("\n")[0], where)


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


def _origin(files: str, base: str, table: str) -> Path:
    """The scenario file of a row: a shipped one by its name, or a .toml file beside the table."""
    if base.endswith(".toml"):
        return path_beside(base, table)
    found = shipped_file(f"{files}/{base}.toml")
    if not base or not found.is_file():
        known = sorted(file.stem for file in shipped_file(files).glob("*.toml"))
        raise CellError(f"base = {base!r}: unknown; {hint(base, known)}, or a .toml file")
    return found


def _scenario(kinds: Sequence[str], origin: Path, changes: str) -> dict[str, Any]:
    """The table of a scenario file with the changes of a row: `key=value; key=value`.

    Raises:
        CellError: the file is of another kind.
        UserError: the file cannot be read, or a change is none.
    """
    lines = [line for line in changes.split(";") if line.strip()]
    table = read_toml(origin)
    if table.get("kind") not in kinds:
        raise CellError(f"base = {origin.name!r}: expected a scenario of kind {' or '.join(kinds)}")
    return change(table, parse_changes(lines, "changes", "run.wall='54 d'"), str(origin))
