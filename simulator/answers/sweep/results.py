"""What a sweep found, as files and in words.

`report.csv` and `rows/part-*.parquet` are made from the store, in order of the points. They hold nothing but what the
sweep asks and what was predicted, so equal sweeps give equal bytes.
"""

import csv
import heapq
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...base.errors import shorten
from ...base.files import replace_whole
from ...base.tables import align, plain_cell
from ...base.units import format_named, format_probability
from ...scenario import toml_value
from ...systems.registry import SYSTEMS
from ...uncertainty import Budget, difference
from .columns import BEYOND, ERRORS
from .plan import Sweep
from .store import Store, disk_faults

if TYPE_CHECKING:
    import pyarrow as pa

PART = 5_000
"""Rows of a Parquet file."""
LISTED = 60
"""The most points whose table is printed."""
_MOST_BEST = 5
MAIN: Mapping[str, tuple[str, int]] = {
    kind: (metric.name, 1 if metric.better == "higher" else -1)
    for kind, one in SYSTEMS.items()
    for metric in one.report.metrics
    if metric.name == one.best
}
"""By kind, the column that says which point is best, and whether more of it is better (1) or less (-1)."""


DIFFERENCE_TO_BEST = ("time_to_best", "time_to_best_low", "time_to_best_high", "beats_best_probability")
"""Columns of a point's time (per token) over that of the best point, with its 90 % interval."""


class Best(NamedTuple):
    """One of the best points: its number, its place on the axes, its metric, and the probability that it is faster than
    the first one.
    """

    number: int
    shown: tuple[Any, ...]
    value: float
    beats_probability: float | None


@dataclass(frozen=True)
class Results:
    """The results of a sweep: the report file, the columns of the axes, the best points by `metric`, best first.

    `table` are the cells of all points in the columns that the sweep wants printed and some point has, headed by their
    names; none of a sweep of more than `LISTED` points. `beyond` is the number of points that may take longer than the
    interval says, `refused` why the first point of those that could not be predicted was not.
    """

    report: Path
    columns: tuple[str, ...]
    metric: str
    best: tuple[Best, ...]
    table: tuple[tuple[Any, ...], ...] = ()
    beyond: int = 0
    refused: str = ""


_Types = dict[str, set[type]]


class _Survey(NamedTuple):
    """All columns with the types of their values, in order of first appearance, and what `Results` says of points."""

    columns: _Types
    best: tuple[Best, ...]
    beyond: int
    refused: str


def rows_so_far(sweep: Sweep, store: Store) -> "pa.Table":
    """The rows that a report would have if it were written now."""
    columns, best, *_ = _survey(sweep, store)
    return _arrow_table(columns, _records(sweep, store, best[0].number if best else None))


def write_results(sweep: Sweep, store: Store) -> Results:
    """Write report.csv and the Parquet files of what is done so far; a UserError if they cannot be written."""
    columns, best, beyond, refused = _survey(sweep, store)
    records = partial(_records, sweep, store, best[0].number if best else None)
    report = store.folder / "report.csv"
    with disk_faults(store.folder, OSError):
        with replace_whole(report) as file:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            writer = csv.DictWriter(text, list(columns), lineterminator="\n")
            writer.writeheader()
            writer.writerows({name: plain_cell(cell) for name, cell in one.items()} for one in records())
            text.detach()
        _write_parquet(store.folder / "rows", columns, records())
    table: tuple[tuple[Any, ...], ...] = ()
    if sweep.table and len(sweep) <= LISTED:  # cells of axes as the sweep says them
        told = {name for one in records() for name, value in one.items() if value is not None}
        names = (*(name for name in sweep.table if name in told), "status")
        rows = ((*sweep.grid.shown(one["point"]), *map(one.get, names)) for one in records())
        table = ((*sweep.grid.columns, *names), *rows)
    return Results(report, sweep.grid.columns, MAIN[sweep.kind][0], best, table, beyond, refused)


def _survey(sweep: Sweep, store: Store) -> _Survey:
    beyond, refused = 0, ""
    columns: _Types = {name: set() for name in ("point", *sweep.grid.columns, "status", "reason", "scenario_hash")}
    for record in _records(sweep, store):
        beyond += BEYOND in record
        if record["status"] in ("infeasible", "failed"):
            refused = refused or f"point {record['point']}: {record['reason']}"
        for name, value in record.items():
            columns.setdefault(name, set()).update({type(value)} - {type(None)})
    metric, sign = MAIN[sweep.kind]
    usable = (
        one for one in _records(sweep, store) if one["status"] == "ok" and isinstance(one.get(metric), int | float)
    )
    numbers = [
        -number for _, number in heapq.nlargest(_MOST_BEST, ((sign * one[metric], -one["point"]) for one in usable))
    ]
    rows = {number: store.report(number) for number in numbers}
    beats = {number: _difference_to_best(sweep.kind, rows[number], rows[numbers[0]]) for number in numbers}
    if any(beats.values()):
        columns |= {name: {float} for name in DIFFERENCE_TO_BEST}
    best = (
        Best(number, sweep.grid.shown(number), rows[number][metric], beats[number].get(DIFFERENCE_TO_BEST[-1]))
        for number in numbers
    )
    return _Survey(columns, tuple(best), beyond, refused)


def _records(sweep: Sweep, store: Store, best: int | None = None) -> Iterator[dict[str, Any]]:
    """The points that are done as records by column; a record says only what it has. `best` is the best point."""
    first = {} if best is None else store.report(best)
    for number, status, reason, hash_, row in store.rows():
        shown = {  # a value of an axis as one cell
            name: value if isinstance(value, bool | int | float | str | None) else json.dumps(value, default=str)
            for name, value in zip(sweep.grid.columns, sweep.grid.shown(number), strict=True)
        }
        known = {name: value for name, value in row.items() if name != ERRORS}
        beside = _difference_to_best(sweep.kind, row, first) if number != best else {}
        yield {"point": number, **shown, "status": status, "reason": reason, "scenario_hash": hash_, **known, **beside}


def _difference_to_best(kind: str, row: Mapping[str, Any], best: Mapping[str, Any]) -> dict[str, float]:
    """The columns DIFFERENCE_TO_BEST of a point; none where the errors of either are not known."""
    if not row.get(ERRORS) or not best.get(ERRORS):
        return {}
    metric, sign = MAIN[kind]
    ours, theirs = row[metric] ** -sign, best[metric] ** -sign  # a rate counts as the time per unit
    found = difference(theirs, ours, Budget.from_json(best[ERRORS]), Budget.from_json(row[ERRORS]))
    return dict(zip(DIFFERENCE_TO_BEST, found, strict=True))


def _write_parquet(folder: Path, columns: _Types, records: Iterator[Mapping[str, Any]]) -> None:
    """All records, in parts with one schema; parts of an earlier report are replaced."""
    import pyarrow.parquet as pq

    folder.mkdir(exist_ok=True)
    written: set[Path] = set()
    while part := list(islice(records, PART)):
        place = folder / f"part-{len(written):05d}.parquet"
        with replace_whole(place) as file:
            pq.write_table(_arrow_table(columns, part), file)
        written.add(place)
    for other in set(folder.glob("part-*.parquet")) - written:
        other.unlink()


def _arrow_table(columns: _Types, records: Iterable[Mapping[str, Any]]) -> "pa.Table":
    """Records with these columns; in one of texts, all is text."""
    import pyarrow as pa

    schema = pa.schema([(name, _arrow_type(types)) for name, types in columns.items()])
    texts = [name for name in columns if schema.field(name).type == pa.string()]
    rows = [{**one, **{name: str(one[name]) for name in texts if one.get(name) is not None}} for one in records]
    return pa.Table.from_pylist(rows, schema)


def _arrow_type(types: set[type]) -> "pa.DataType":
    import pyarrow as pa

    if types and types <= {int, float}:
        return pa.float64() if float in types else pa.int64()
    return pa.bool_() if types == {bool} else pa.string()


# In words: points by status, then a table of chosen columns, or the best points.

_WIDEST, _LONGEST = 40, 300
"""Characters of a value of an axis, and of a reason; what is longer is cut."""


def lines(sweep: Sweep, counts: Mapping[str, int], results: Results) -> Iterator[str]:
    """A sweep that ended with so many points by status, and where its report is."""
    by_status = ", ".join(f"{count:,} {status}" for status, count in counts.items())
    yield f"{sweep.name}: {sum(counts.values()):,} of {len(sweep):,} points: {by_status or 'none'}"
    if results.table:
        yield from table_lines(results.table)
    elif results.best:
        yield from best_lines(results)
    if results.beyond:
        yield f"points that may take longer than the interval says: {results.beyond:,} (column {BEYOND} says why)"
    if results.refused:
        yield f"not predicted: {shorten(results.refused, _LONGEST)} (column reason says why of each)"
    yield f"wrote {results.report}"


def best_lines(results: Results) -> Iterator[str]:
    """The best points, a line each."""
    yield f"best {results.metric}:"
    for place, one in enumerate(results.best):
        cells = zip(results.columns, one.shown, strict=True)
        said = ", ".join(f"{name} = {_short(cell)}" for name, cell in cells if cell is not None)
        likely = one.beats_probability
        beats = f"; beats the first with {format_probability(likely)}" if place and likely is not None else ""
        yield f"  {one.value:,.4g}  point {one.number}: {said}{beats}"


def table_lines(table: Sequence[tuple[Any, ...]]) -> Iterator[str]:
    """Points a line each, columns below their names: seconds, bytes and shares as people read them."""

    def cell(name: str, value: Any) -> str:
        if value is None:
            return ""
        return format_named(name, value) if isinstance(value, int | float) else _short(value)

    head, *rows = table
    numbers = [i for i in range(len(head)) if all(isinstance(row[i], int | float | None) for row in rows)]
    yield from align([head, *([*map(cell, head, row)] for row in rows)], numbers)


def _short(value: Any) -> str:
    """A value of an axis: tables and lists as TOML writes them, text as it is."""
    return shorten(toml_value(value) if isinstance(value, Mapping | list | tuple) else str(value), _WIDEST)
