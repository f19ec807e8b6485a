"""What a sweep found, as lines of text: points by status, then a table of chosen columns, or the best points."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...base.tables import aligned
from ...base.units import format_named
from ...scenario import toml_value
from .plan import Sweep
from .results import Results
from .run import Swept

_WIDEST = 40
"""Characters of a value of an axis; what is longer is cut."""


def told(sweep: Sweep, swept: Swept) -> Iterator[str]:
    """A sweep that ended, and where its report is."""
    counts = ", ".join(f"{count:,} {status}" for status, count in swept.counts.items())
    yield f"{sweep.name}: {sum(swept.counts.values()):,} of {len(sweep):,} points: {counts or 'none'}"
    if swept.results.table:
        yield from table_lines(swept.results.table)
    elif swept.results.best:
        yield from best_lines(swept.results)
    yield f"wrote {swept.results.report}"


def best_lines(results: Results) -> Iterator[str]:
    """The best points, a line each."""
    yield f"best {results.metric}:"
    for number, shown, value in results.best:
        cells = zip(results.columns, shown, strict=True)
        said = ", ".join(f"{name} = {_short(cell)}" for name, cell in cells if cell is not None)
        yield f"  {value:,.4g}  point {number}: {said}"


def table_lines(table: Sequence[tuple[Any, ...]]) -> Iterator[str]:
    """Points a line each, columns below their names: seconds, bytes and shares as people read them."""
    head, *rows = table
    cells = [head, *([_cell(name, value) for name, value in zip(head, row, strict=True)] for row in rows)]
    numbers = [i for i in range(len(head)) if all(isinstance(row[i], int | float | None) for row in rows)]
    yield from aligned(cells, numbers)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    return format_named(name, value) if isinstance(value, int | float) else _short(value)


def _short(value: Any) -> str:
    """A value of an axis: tables and lists as TOML writes them, text as it is."""
    text = toml_value(value) if isinstance(value, Mapping | list | tuple) else str(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
