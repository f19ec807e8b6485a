"""Sweeps that were run: their points as tables, from the data folder or an uploaded report, and a point as a question.

A name from a browser is looked up in a listing; an uploaded report is read as CSV and nothing else.
"""

import io
import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...simulator.answers.sweep import Store, Sweep, Work, load_sweep
from ...simulator.answers.sweep.results import rows_so_far
from ...simulator.base.errors import UserError, unknown
from ...simulator.scenario import Changes, change, check_question, resolve, what_ifs
from ...simulator.systems.registry import SYSTEMS
from ...simulator.systems.tables import FOR_PEOPLE
from ..figures.sweep import axes
from ..library import REPORT, Library
from ..page import PATHS, Here
from ..question import Question
from .run import FILE, open_state, ready_sweeps

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 5_000
"""Points that a page shows: a grid of them is some megabytes in a browser."""
MOST_REPORT_BYTES = 2**20
"""Of a report that is uploaded; it travels with every question about it."""
NEEDED = ("point", "status", "reason", "scenario_hash")
Source = Mapping[str, str]
"""What is open: the `name` of a sweep, with how many points are `done` of one at work, or the `text` of an uploaded
`file`.
"""


@dataclass(frozen=True)
class Table:
    """The first points of a sweep, and how many there are in all."""

    frame: "pd.DataFrame"
    total: int

    @property
    def kind(self) -> str | None:
        """The kind of scenario: that with most of the columns that no other has; None where no point has a report."""
        found = {kind: len(columns & set(self.frame)) for kind, columns in _own_columns().items()}
        kind = max(found, key=lambda kind: found[kind])
        return kind if found[kind] else None

    def row(self, number: int) -> dict[str, Any]:
        """The cells of a point.

        Raises:
            UserError: there is no such point.
        """
        rows = self.frame[self.frame["point"] == number].to_dict("records")
        if not rows:
            raise UserError(f"point {number}: not among those shown")
        return {str(name): value for name, value in rows[0].items()}


@cache
def _own_columns() -> Mapping[str, set[str]]:
    """Metrics that only the reports of a kind have."""
    columns = {kind: {one.name for one in system.report.metrics} for kind, system in SYSTEMS.items()}
    shared = Counter(name for names in columns.values() for name in names)
    return {kind: {name for name in names if shared[name] == 1} for kind, names in columns.items()}


def read_folder(folder: Path) -> Table:
    """The points of a sweep's folder.

    Raises:
        UserError: its files cannot be read as a sweep's.
    """
    files = sorted((folder / "rows").glob("part-*.parquet")) or [folder / REPORT]
    try:
        return _read(folder, tuple((file, file.stat().st_mtime_ns) for file in files))
    except UserError:
        raise
    except (OSError, ValueError) as error:
        raise UserError(f"{folder.name}: cannot be read: {' '.join(str(error).split())[:200]}") from None


def read_store(folder: Path) -> Table | None:
    """The points that are done of a sweep at work, as its report will have them; None if it is not known which sweep.

    Raises:
        UserError: none is done yet.
    """
    sweep = origin(folder)
    try:
        with open_state(folder) as database:
            database.execute("BEGIN")  # all that follows is read from one state
            (held,) = database.execute("SELECT value FROM sweep WHERE key = 'digest'").fetchone()
            if sweep is None or sweep.digest != held:
                return None
            frame = rows_so_far(sweep, Store(folder, database)).to_pandas()
    except (sqlite3.Error, TypeError, ValueError):  # it is being made, or something else has written over it
        return None
    return Table(_checked(frame.head(MOST_ROWS), folder.name), len(frame))


@lru_cache(maxsize=8)
def _read(folder: Path, stamps: tuple[tuple[Path, int], ...]) -> Table:
    """Files by path and time; what is read is shared, so nobody changes it."""
    paths = [path for path, _ in stamps]
    if paths == [folder / REPORT]:
        return read_csv(paths[0].read_text(encoding="utf-8"), folder.name)
    import pyarrow.dataset as ds

    found = ds.dataset([str(path) for path in paths], format="parquet")
    frame = found.head(MOST_ROWS, batch_size=MOST_ROWS).to_pandas()
    return Table(_checked(frame, folder.name), found.count_rows())


def read_csv(text: str, name: str) -> Table:
    """A report.csv as text.

    Raises:
        UserError: it is no CSV, or not one that a sweep writes.
    """
    import pandas as pd

    try:
        frame = pd.read_csv(io.StringIO(text), keep_default_na=False, na_values=[""], low_memory=False)
    except ValueError as error:  # pandas' own errors of parsing are ValueErrors too
        raise UserError(f"{name}: no CSV: {' '.join(str(error).split())[:200]}") from None
    return Table(_checked(frame.head(MOST_ROWS), name), len(frame))


def _checked(frame: "pd.DataFrame", name: str) -> "pd.DataFrame":
    missing = [column for column in NEEDED if column not in frame]
    if missing:
        raise UserError(f"{name}: no column {', '.join(missing)}; expected the {REPORT} of a sweep")
    if not axes(frame):
        raise UserError(f"{name}: no column between point and status; expected those that the sweep varies")
    if frame.empty:
        raise UserError(f"{name}: no point is done yet")
    if frame["point"].dtype.kind not in "iu" or frame["point"].duplicated().any():
        raise UserError(f"{name}: column point: expected whole numbers that differ")
    texts = {column: frame[column].astype(object).where(frame[column].notna(), "").astype(str) for column in NEEDED[1:]}
    return frame.assign(**texts)


def origin(folder: Path) -> Sweep | None:
    """The sweep that a folder holds: the file that was left there, or the shipped one of the name that it notes."""
    try:
        if (folder / FILE).is_file():
            return load_sweep(folder / FILE)
        with open_state(folder) as database:
            noted = dict(database.execute("SELECT key, value FROM sweep"))
        return ready_sweeps().get(Path(noted.get("file", "")).stem)
    except (UserError, sqlite3.Error):
        return None


@dataclass(frozen=True)
class LinkedPoint:
    """A point as a question, and the page that answers it.

    `same` says whether it is the very scenario of the report (None: it never was one).
    """

    question: Question
    page: str
    same: bool | None


def open_point(here: Here, table: Table, number: int, base: str | None, sweep: Sweep | None) -> LinkedPoint:
    """The question that a point asks: a scenario of the library, the sweep's own if `base` is None, and changes.

    Raises:
        UserError: there is no such point or scenario, or the point names files.
    """
    row = table.row(number)
    changes = _changes_of(table.frame, row, sweep)
    if base is not None:
        question = _with_all(here.library, base, changes)
    elif sweep is not None:
        question = question_of(here.library, sweep, changes)
    else:
        raise UserError("choose the scenario that the points change: the report does not name it")
    kind = here.library.scenario(question.base)[0].get("kind", "weight_update")
    return LinkedPoint(question, PATHS[kind], _same(here, question, row))


def _changes_of(frame: "pd.DataFrame", row: Mapping[str, Any], sweep: Sweep | None) -> tuple[Changes, ...]:
    """What a point changes, one table after the other: as its sweep says, else as its columns do.

    Raises:
        UserError: a column names a what-if that is not shipped.
    """
    number = int(row["point"])
    if sweep is not None and _is_of(sweep, number, row):
        return sweep.grid.tables(number)
    found: list[Changes] = []
    for column in axes(frame):
        value, key = row[column], column.partition(" ")[0]
        if value is None or value != value or value == "as is":
            continue
        if key == "what_if":
            if value not in what_ifs():
                raise unknown("report", column, value, what_ifs())
            found.append(what_ifs()[value].changes)
        else:
            found.append({key: _value(value)})
    return tuple(found)


def _is_of(sweep: Sweep, number: int, row: Mapping[str, Any]) -> bool:
    """Whether a sweep's point of this number shows what the row does; it may be another version's."""
    if not 0 <= number < len(sweep):
        return False
    shown = zip(sweep.grid.columns, sweep.grid.shown(number), strict=True)
    return all(name in row and value in (row[name], _value(row[name]), None) for name, value in shown)


def _value(cell: Any) -> Any:
    """A cell as the value of a key: tables and lists are written as JSON."""
    if isinstance(cell, str) and cell[:1] in "[{":
        try:
            return json.loads(cell)
        except ValueError:
            return cell
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell


def _same(here: Here, question: Question, row: Mapping[str, Any]) -> bool | None:
    if row["status"] in ("infeasible", "failed"):
        return None
    try:
        return resolve(*here.answers.scenario(question)).hash == row["scenario_hash"]
    except UserError:
        return False


def question_of(library: Library, sweep: Sweep, changes: Sequence[Changes]) -> Question:
    """Changes to the base of a sweep as a question: of the base if the library has it, else of what is nearest.

    Raises:
        UserError: they name files, or the library has no scenario of this kind.
    """
    place = Path(sweep.base_where).resolve()
    for name, file in library.scenarios().items():
        if Path(str(file)).resolve() == place:
            return _with_all(library, name, changes)
    target, known = sweep.work.table(changes), library.names_of_kind(sweep.kind)
    if not known:
        raise UserError(f"no scenario of kind {sweep.kind} is known")
    found = [Question(name).change(_difference(library.scenario(name)[0], target)) for name in known]
    return min(found, key=lambda question: len(question.changes))


def _with_all(library: Library, name: str, changes: Sequence[Changes]) -> Question:
    """A scenario with tables of changes made one after the other, as a question, which has one table.

    That is all of them together, unless they meet: one multiplies what another set, or sets a table around it.
    """
    table, where = library.scenario(name)
    together = {key: value for some in changes for key, value in some.items()}
    question, target = Question(name).change(together), Work(table, where).table(changes)
    if change(table, together, where) == target:
        return question
    return Question(name).change(_difference(table, target))


def _difference(table: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, Any]:
    """Changes that make a scenario ask what another one does.

    What only the first says becomes its default; where that is to say nothing, its table is replaced.
    """
    have, want = _flat(table), _flat(target)
    silent = _flat(check_question(dict(target), "sweep").model_dump(mode="json", by_alias=True))
    defaults = {key: silent.get(key) for key in have if key not in want}
    tops = {key.partition(".")[0] for key, value in defaults.items() if value is None}
    replaced = {top: target[top] for top in tops if isinstance(target.get(top), Mapping)}
    changes = {key: value for key, value in want.items() if have.get(key) != value}
    changes |= {key: value for key, value in defaults.items() if value is not None}
    apart = {*replaced, *FOR_PEOPLE, "kind"}
    return replaced | {key: value for key, value in changes.items() if key.partition(".")[0] not in apart}


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = value
    return found
