"""What a sweep found, as files: `report.csv` and `rows/part-*.parquet`, made from the store, in order of the points.

They hold nothing but what the sweep asks and what was predicted, so equal sweeps give equal bytes.
"""

import csv
import heapq
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ...systems.registry import SYSTEMS
from .plan import Sweep
from .store import Store, disk_faults

if TYPE_CHECKING:
    import pyarrow as pa

PART = 5_000
"""Rows of a Parquet file."""
LISTED = 60
"""The most points whose table is printed."""
MAIN: Mapping[str, tuple[str, int]] = {
    kind: (metric.name, 1 if metric.better == "higher" else -1)
    for kind, one in SYSTEMS.items()
    for metric in one.report.metrics
    if metric.name == one.best
}
"""By kind, the column that says which point is best, and whether more of it is better (1) or less (-1)."""


@dataclass(frozen=True)
class Results:
    """Where the report is; `columns` are those of the axes; the best points by `metric`, best first.

    `table` are the cells of all points in the columns that the sweep wants printed, headed by their names; none of a
    sweep of more than `LISTED` points.
    """

    report: Path
    columns: tuple[str, ...]
    metric: str
    best: tuple[tuple[int, tuple[Any, ...], float], ...]
    table: tuple[tuple[Any, ...], ...] = ()


def write_results(sweep: Sweep, store: Store, most: int = 5) -> Results:
    """Write report.csv and the Parquet files of what is done so far.

    Raises:
        UserError: they cannot be written.
    """
    columns, best = _survey(sweep, store, most)
    report = store.folder / "report.csv"
    with disk_faults(store.folder, OSError):
        with _replacing(report) as file:
            _write_csv(file, columns, _records(sweep, store))
        _write_parquet(store.folder / "rows", columns, _records(sweep, store))
    return Results(report, sweep.grid.columns, MAIN[sweep.kind][0], best, _table(sweep, store))


_Types = dict[str, set[type]]


def _table(sweep: Sweep, store: Store) -> tuple[tuple[Any, ...], ...]:
    """The cells of a small sweep that says what is worth printing; those of axes as the sweep says them."""
    if not sweep.table or len(sweep) > LISTED:
        return ()
    told = (*sweep.table, "status")
    rows = ((*sweep.grid.shown(record["point"]), *map(record.get, told)) for record in _records(sweep, store))
    return ((*sweep.grid.columns, *told), *rows)


def _survey(sweep: Sweep, store: Store, most: int) -> tuple[_Types, tuple[tuple[int, tuple[Any, ...], float], ...]]:
    """All columns with the types of their values, in order of first appearance, and the best points."""
    columns: _Types = {"point": {int}, **{name: set() for name in sweep.grid.columns}}
    columns |= {"status": {str}, "reason": {str}, "scenario_hash": {str}}
    metric, sign = MAIN[sweep.kind]
    best: list[tuple[float, int]] = []
    for number, status, _, _, row in store.rows():
        values = (*zip(sweep.grid.columns, map(_plain, sweep.grid.shown(number)), strict=True), *row.items())
        for name, value in values:
            columns.setdefault(name, set()).update({type(value)} - {type(None)})
        if status == "ok" and row.get(metric) is not None:
            heapq.heappush(best, (sign * row[metric], -number))
            if len(best) > most:
                heapq.heappop(best)
    ranked = sorted(best, reverse=True)
    return columns, tuple((-number, sweep.grid.shown(-number), sign * value) for value, number in ranked)


def _records(sweep: Sweep, store: Store) -> Iterator[dict[str, Any]]:
    """The points that are done as records by column; a record says only what it has."""
    for number, status, reason, hash_, row in store.rows():
        shown = zip(sweep.grid.columns, map(_plain, sweep.grid.shown(number)), strict=True)
        yield {"point": number, **dict(shown), "status": status, "reason": reason, "scenario_hash": hash_, **row}


def _plain(value: Any) -> Any:
    """A value of an axis as one cell."""
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value, default=str)


def _write_csv(file: IO[bytes], columns: Iterable[str], records: Iterable[Mapping[str, Any]]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    text.detach()


def _write_parquet(folder: Path, columns: _Types, records: Iterator[Mapping[str, Any]]) -> None:
    """All records, in parts with one schema; parts of an earlier report are replaced."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(exist_ok=True)
    schema = pa.schema([(name, _arrow_type(types)) for name, types in columns.items()])
    written: set[Path] = set()
    while part := list(islice(records, PART)):
        place = folder / f"part-{len(written):05d}.parquet"
        rows = [{name: _cell(record.get(name), schema.field(name).type) for name in columns} for record in part]
        with _replacing(place) as file:
            pq.write_table(pa.Table.from_pylist(rows, schema), file)
        written.add(place)
    for other in set(folder.glob("part-*.parquet")) - written:
        other.unlink()


def _arrow_type(types: set[type]) -> "pa.DataType":
    import pyarrow as pa

    if types and types <= {int, float}:
        return pa.float64() if float in types else pa.int64()
    return pa.bool_() if types == {bool} else pa.string()


def _cell(value: Any, kind: "pa.DataType") -> Any:
    return str(value) if value is not None and str(kind) == "string" else value


@contextmanager
def _replacing(place: Path) -> Iterator[IO[bytes]]:
    """A file that takes its place when it is whole. The folder is held: nobody else uses the temporary name."""
    temporary = place.with_name(f".{place.name}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
        os.replace(temporary, place)
    finally:
        temporary.unlink(missing_ok=True)
