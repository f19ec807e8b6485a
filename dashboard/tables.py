"""Tables of text with a heading, each to be downloaded as CSV; cells that differ may be marked."""

import re
from collections.abc import Collection, Sequence
from csv import writer
from io import StringIO
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from dash import html

if TYPE_CHECKING:
    from dash.development.base_component import Component

Row = Sequence[Any]

FORMULA = r"^(?=[=+\-@\t\r])(?![+-](?:\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?: ?[A-Za-zµ%]+(?:/[A-Za-z]+)?)?)?$)"
"""Texts that a spreadsheet takes for formulas; quantities such as `-5 s`, and a dash, are none. Browsers read it."""


def table(
    caption: str, columns: Sequence[str], rows: Sequence[Row], marked: Collection[tuple[int, int]] = (), level: int = 2
) -> "Component":
    """A table below its heading; `marked` are cells (row, column) that are to be seen first.

    A cell is text, or a component whose children are the text.
    """
    head = html.Thead(html.Tr([html.Th(name, scope="col") for name in columns]))
    body = html.Tbody([_row(i, row, marked) for i, row in enumerate(rows)])
    title = (html.H2 if level == 2 else html.H3)(caption)
    scrolled = {"tabIndex": 0, "role": "region", "aria-label": caption}
    return html.Section(
        [title, html.Div(html.Table([head, body], className="table"), className="wide", **scrolled),
         html.A("CSV", href=_href(columns, rows), download=f"{_file(caption)}.csv", className="download",
                **{"aria-label": f"{caption} as CSV"})]
    )  # fmt: skip


def csv(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """The same as CSV; what a spreadsheet would take for a formula is text to it."""
    text = StringIO()
    out = writer(text)  # ends lines with CR LF, so that it quotes texts with either
    out.writerows([_plain(cell) for cell in row] for row in (columns, *rows))
    return text.getvalue()


def _row(i: int, row: Row, marked: Collection[tuple[int, int]]) -> "Component":
    first, *others = row
    cells = [html.Td(html.Mark(cell) if (i, j) in marked else cell) for j, cell in enumerate(others, start=1)]
    return html.Tr([html.Th(first, scope="row"), *cells])


def _href(columns: Sequence[str], rows: Sequence[Row]) -> str:
    return f"data:text/csv;charset=utf-8,{quote(csv(columns, rows))}"


def _plain(cell: Any) -> str:
    text = str(getattr(cell, "children", cell))
    return f"'{text}" if re.search(FORMULA, text) else text


def _file(caption: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in caption.lower()).strip("-")
