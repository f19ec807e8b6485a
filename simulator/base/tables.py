"""Tables of words and numbers as text: aligned for a terminal, in Markdown for a page, or as CSV."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from csv import writer
from io import StringIO
from typing import Any

from .units import format_seconds

Columns = Mapping[str, tuple[str, str]]
"""A table's columns by their keys: heading, and how a value is written (a key of `_FORMATS`)."""

_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "text": str, "count": str, "seconds": format_seconds, "signed": "{:+.1%}".format, "share": "{:.1%}".format,
    "signed percent": lambda value: f"{100 * value:+.1f}", "percent": lambda value: f"{100 * value:.1f}",
    "yes": lambda value: "yes" if value else "no",
}  # fmt: skip
"""`percent` rounds a hundredfold value, `share` the value itself: halves go other ways."""


def align(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """Rows of equal length as lines, a head among them; columns of these numbers stand to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        yield "  ".join(f"{c:>{w}}" if i in right else f"{c:<{w}}" for i, (c, w) in enumerate(cells)).rstrip()


def terminal_table(rows: Iterable[Mapping[Any, Any]], columns: Columns) -> Iterator[str]:
    """Rows by column as lines below their headings."""
    numbers = [i for i, (_, written) in enumerate(columns.values()) if written != "text"]
    yield from align([[heading for heading, _ in columns.values()], *_cells(rows, columns)], numbers)


def markdown_table(rows: Iterable[Mapping[Any, Any]], columns: Columns) -> Iterator[str]:
    """Rows by column as a table of a page."""
    yield f"| {' | '.join(heading for heading, _ in columns.values())} |"
    yield "|" + "---|" * len(columns)
    for cells in _cells(rows, columns):
        yield f"| {' | '.join(cells)} |"


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A head and rows as a CSV file has them."""
    text = StringIO()
    writer(text, lineterminator="\n").writerows([plain_cell(cell) for cell in row] for row in (head, *rows))
    return text.getvalue()


def plain_cell(value: Any) -> Any:
    """A cell that no spreadsheet runs as a formula: a text that would be one gets an apostrophe before it.

    Source: OWASP, "CSV Injection".
    """
    if not isinstance(value, str) or len(value) < 2 or value[0] not in "=+-@\t\r":
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def _cells(rows: Iterable[Mapping[Any, Any]], columns: Columns) -> Iterator[list[str]]:
    for row in rows:
        yield [_cell(row[key], written) for key, (_, written) in columns.items()]


def _cell(value: Any, written: str) -> str:
    if value is None or value != value:
        return "-"
    return value if isinstance(value, str) else _FORMATS[written](value).removesuffix("%")
