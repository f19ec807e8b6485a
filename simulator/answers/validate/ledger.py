"""What all ledgers share: rows of a published table as cases, their predictions, and the ledger of all of them."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from ...base.errors import UserError
from ...base.files import digest, read_json
from ...base.memo import Memo
from ...formats.samples import read_table, summarize
from ...runner import Died, InProcess, Processes, Runner, cores

_MOST = 10**9
_CHUNK = 4
_NEAR = 0.85  # of a known column's name
_FEW = 64  # rows below which other processes cost more than they save


class CellError(ValueError):
    """A cell does not hold what it should; the text says which and what was expected."""


class Cells(dict[str, str]):
    """A row's cells by column; an empty cell is not known.

    Raises CellError where a cell holds something else than asked for, or nothing and no default is given.
    """

    def text(self, column: str) -> str:
        """The cell, empty if there is none."""
        return self.get(column, "").strip()

    def has(self, column: str) -> bool:
        """Whether the row has a value in this column."""
        return bool(self.text(column))

    def number(self, column: str, default: float | None = None, expected: str = "a number") -> float:
        """A finite number."""
        text = self.text(column)
        if not text and default is not None:
            return float(default)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise CellError(f"{column} = {text!r}: expected {expected}" if text else f"{column} is not stated")
        return value

    def whole(self, column: str, default: int | None = None, least: int = 0, most: float = math.inf) -> int:
        """A whole number within limits, however a table writes it: `16`, `16.0`, `65e9`."""
        limits = f" from {least} to {most:,}" if most < math.inf else " above zero" if least else ""
        expected = f"a whole number{limits}"
        value = self.number(column, default, expected)
        if not (least <= value <= most and value.is_integer()):
            raise CellError(f"{column} = {self.text(column)!r}: expected {expected}")
        return int(value)

    def positive(self, column: str, default: int | None = None, most: float = _MOST) -> int:
        """A whole number above zero."""
        return self.whole(column, default, 1, most)

    def time(self, column: str) -> float | None:
        """Seconds, or another amount above zero; None where the row does not tell."""
        if not self.has(column):
            return None
        if (value := self.number(column, expected="a number above zero")) <= 0:
            raise CellError(f"{column} = {self.text(column)!r}: expected a number above zero")
        return value

    def flag(self, column: str, default: bool) -> bool:
        """1 or 0, true or false."""
        text = self.text(column).casefold()
        if text not in ("", "0", "1", "true", "false", "0.0", "1.0"):
            raise CellError(f"{column} = {text!r}: expected 1 or 0")
        return text in ("1", "true", "1.0") if text else default


@dataclass(frozen=True)
class Case:
    """A row: its line, its cells, and either the scenario it stands for or the reason why there is none."""

    line: int
    cells: Cells
    scenario: Mapping[str, Any] | None
    reason: str
    where: str

    @property
    def stack(self) -> str:
        """The software that ran it, empty where nothing is predicted."""
        return str(self.scenario["stack"]) if self.scenario else ""

    def predict(self, memo: Memo) -> dict[str, Any]:
        """The columns of its prediction, with what it may share with other rows.

        A UserError if what the row says does not divide, or does not fit.
        """
        raise NotImplementedError


_Case = TypeVar("_Case", bound=Case)
Watch = Callable[[int, int], None]
"""Is called with how many rows are done and how many there are."""


def shipped_file(name: str) -> Path:
    """A file of the shipped ledgers."""
    return Path(str(files("runcast.data") / "validation" / name))


def full_name(stack: str) -> str:
    """A stack as a scenario anywhere may name it: a file by its full path."""
    return str(Path(stack).resolve()) if stack.endswith((".toml", ".json")) else stack


def check_slips(path: Path, known: Collection[str]) -> None:
    """Raise UserError if a column has nearly the name of a known one that is missing, or its name in other letters.

    Such columns are slips; all others are the user's own.
    """
    columns = list(map(str, read_table(path).columns.drop("line")))
    missing, wrong = [name for name in known if name not in columns], []
    for name in columns:
        near = get_close_matches(name.casefold(), missing, n=1, cutoff=_NEAR) or {name.casefold()} & {*known}
        if near and name not in known:
            wrong.append(f"{path}:1: column {name!r}: unknown; did you mean {next(iter(near))}?")
    if wrong:
        raise UserError(*wrong)


def read_cells(path: Path, required: Collection[str], like: str) -> list[tuple[int, str, Cells]]:
    """Line, `file:line` and cells of every row; `like` says whose columns these should be.

    A UserError if the file cannot be read, holds no rows, lacks a column, or has two rows of one `id`.
    """
    table = read_table(path)
    if missing := [column for column in required if column not in table]:
        raise UserError(f"{path}:1: no column {', '.join(missing)}; expected {like}")
    if table.empty:
        raise UserError(f"{path}: holds no rows")
    if "id" in table and (twice := list((ids := table["id"][table["id"] != ""])[ids.duplicated()])):
        raise UserError(f"{path}: id = {twice[0]!r}: stands there more than once")
    rows = table.drop(columns="line").to_dict("records")
    cells = (Cells({str(key): str(value) for key, value in row.items()}) for row in rows)
    return [(line, f"{path}:{line}", row) for line, row in zip(table["line"].tolist(), cells, strict=True)]


def predict_cases(cases: Sequence[Case], runner: Runner | None, watch: Watch | None) -> list[dict[str, Any]]:
    """The prediction of each case, or the `reason` why there is none.

    The runner is by default as many processes as there are cores, where there are many cases.
    """
    found: dict[int, dict[str, Any]] = {}
    count = cores() if len(cases) >= _FEW else 1
    chunks = (cases[i : i + _CHUNK] for i in range(0, len(cases), _CHUNK))
    with runner or (InProcess() if count == 1 else Processes(count)) as workers:
        for pairs in workers.run(_predict, chunks):
            for case, answer in pairs:
                found[case.line] = {"reason": answer.reason} if isinstance(answer, Died) else answer
                if watch is not None:
                    watch(len(found), len(cases))
    return [found[case.line] for case in cases]


def _predict(case: Case, memo: Memo) -> dict[str, Any]:
    try:
        return {"reason": case.reason} if case.scenario is None else case.predict(memo)
    except UserError as error:
        return {"reason": error.reasons(case.where)[0]}


def read_left_out(fit: str, path: Path | None = None) -> tuple[Mapping[str, Mapping[str, float]], int]:
    """Errors of a shipped fit by row and by what was left out of it with the row, and how many parameters were fitted.

    With a path, only if the fit was made to that very file: others have rows of their own, whatever their names.
    """
    place = shipped_file(fit)
    if not place.is_file():  # nothing was fitted: the stacks are as they were written
        return {}, 0
    found = read_json(place)
    other = path is not None and found["about"]["sha256"] != digest(path)
    return {} if other else found["left_out"], found["about"]["parameters"]


def read_predictions(path: Path, columns: Sequence[str]) -> dict[str, dict[str, Any]]:
    """These columns of a CSV of predictions or of a ledger, by id; `reason` says why a row was not predicted.

    A UserError if the file cannot be read, lacks a column, names a row twice, or holds something else than numbers.
    """
    found: dict[str, dict[str, Any]] = {}
    for _, where, cells in read_cells(path, ("id", *columns), "what --csv writes"):
        if not cells.has(columns[0]):
            found[cells["id"]] = {"reason": cells.text("reason") or "not predicted"}
            continue
        try:
            found[cells["id"]] = {name: cells.time(name) for name in columns}
        except CellError as error:
            raise UserError(f"{where}: {error}") from None
        if missing := [name for name, value in found[cells["id"]].items() if value is None]:
            raise UserError(f"{where}: {missing[0]}: is empty")
    return found


@dataclass(frozen=True, eq=False)
class Ledger:
    """`table` has a row per row of the file that is predicted; `reasons` say why others are not, by line."""

    path: Path
    table: pd.DataFrame
    reasons: Mapping[int, str]
    parameters: int

    @property
    def predicted(self) -> int:
        """The number of rows with a prediction."""
        return len(self.table)

    @cached_property
    def worst_first(self) -> pd.DataFrame:
        """The rows by absolute error, those without one last."""
        order = self.table["error"].abs().sort_values(ascending=False, kind="stable").index
        return self.table.loc[order]

    def why_not(self, before: str = "line ") -> list[str]:
        """One line per reason why rows are not predicted."""
        return summarize(f"{before}{line}: {reason}" for line, reason in self.reasons.items())

    def not_predicted(self) -> list[dict[str, Any]]:
        """Lines with the reasons why they have no prediction, as plain values."""
        return [{"line": line, "reason": reason} for line, reason in self.reasons.items()]


def plain(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of plain values; what is not known is None."""
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    return [{str(key): value for key, value in row.items()} for row in rows]


def csv_bytes(table: pd.DataFrame) -> bytes:
    """A table as a CSV file has it."""
    return str(table.to_csv(index=False, lineterminator="\n")).encode()


def split_rows(
    cases: Iterable[_Case], answers: Iterable[Mapping[str, Any]], make_row: Callable[[_Case, Any], dict[str, Any]]
) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """The rows of cases that have a prediction, and the reasons of the others by line."""
    rows, reasons = [], {}
    for case, answer in zip(cases, answers, strict=True):
        try:
            if "reason" in answer:
                raise CellError(answer["reason"])
            rows.append(make_row(case, answer))
        except CellError as error:  # what was measured is no number
            reasons[case.line] = str(error)
    return rows, reasons
