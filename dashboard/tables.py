"""Tables that are taken along as CSV: plain ones, and ones to filter and sort. Cells are text, never markup."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from csv import writer
from io import StringIO
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import dash_ag_grid as dag
from dash import Dash, Input, Output, html

from . import parts

if TYPE_CHECKING:
    from dash.development.base_component import Component

Row = Sequence[Any]

FORMULA = r"^(?=[=+\-@\t\r])(?![+-](?:\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?: ?[A-Za-zµ%]+(?:/[A-Za-z]+)?)?)?$)"
"""Texts that a spreadsheet takes for formulas; quantities such as `-5 s`, and a dash, are none. Browsers read it."""


def table(
    caption: str, columns: Sequence[str], rows: Sequence[Row], marked: Collection[tuple[int, int]] = (), level: int = 2
) -> "Component":
    """A table below its heading; `marked` are cells (row, column) that are to be seen first.

    A cell is text, or a component whose children are the text. Many rows of text are shown as a grid, which draws those
    in sight.
    """
    title = (html.H2 if level == 2 else html.H3)(caption)
    long = len(rows) * len(columns) > MOST_CELLS and all(isinstance(cell, str) for row in rows for cell in row)
    drawn = _grid_of_text(columns, rows) if long else _plain_table(caption, columns, rows, marked)
    file = "".join(c if c.isalnum() else "-" for c in caption.lower()).strip("-")
    href = f"data:text/csv;charset=utf-8,{quote(csv(columns, rows))}"
    label = {"aria-label": f"{caption} as CSV"}
    return html.Section([title, drawn, html.A("CSV", href=href, download=f"{file}.csv", className="download", **label)])


def _plain_table(
    caption: str, columns: Sequence[str], rows: Sequence[Row], marked: Collection[tuple[int, int]]
) -> "Component":
    head = html.Thead(html.Tr([html.Th(name, scope="col") if name else html.Td() for name in columns]))
    body = html.Tbody([_row(i, row, marked) for i, row in enumerate(rows)])
    scrolled = {"tabIndex": 0, "role": "region", "aria-label": caption}
    return html.Div(html.Table([head, body], className="table"), className="wide", **scrolled)


def csv(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """The table as CSV; text that a spreadsheet could read as a formula is escaped."""
    text = StringIO()
    out = writer(text)  # ends lines with CR LF, so that it quotes texts with either
    out.writerows([_plain(cell) for cell in row] for row in (columns, *rows))
    return text.getvalue()


def _row(i: int, row: Row, marked: Collection[tuple[int, int]]) -> "Component":
    first, *others = row
    shown = [parts.unbroken(cell) if isinstance(cell, str) else cell for cell in others]
    cells = [html.Td(html.Mark(cell) if (i, j) in marked else cell) for j, cell in enumerate(shown, start=1)]
    return html.Tr([html.Th(first, scope="row"), *cells])


def _plain(cell: Any) -> str:
    text = str(getattr(cell, "children", cell))
    return f"'{text}" if re.search(FORMULA, text) else text


# Tables of ag-grid, to filter and sort.

MOST_CELLS = 600
"""Of a table as plain HTML: each cell takes the browser a millisecond, and more than that where it is busy."""

_THEME = (
    "themeQuartz.withParams({backgroundColor: 'var(--mantine-color-body)',"
    " foregroundColor: 'var(--mantine-color-text)', borderColor: 'var(--mantine-color-default-border)',"
    " accentColor: 'var(--mantine-primary-color-filled)', browserColorScheme: 'inherit', fontFamily: 'inherit',"
    " fontSize: 13, spacing: 6})"
)
"""Colours are the page's, so that a table is light or dark with it."""
ROW_PX, HEAD_PX, MOST_ROWS = 36, 52, 12


def _grid_of_text(columns: Sequence[str], rows: Sequence[Row]) -> "Component":
    """Cells as they are written, in their order."""
    keys = [str(i) for i in range(len(columns))]
    defined = [
        {"headerName": name, "field": key, "flex": 1, "minWidth": 90} for name, key in zip(columns, keys, strict=True)
    ]
    return dag.AgGrid(
        columnDefs=defined, rowData=[dict(zip(keys, row, strict=True)) for row in rows],
        defaultColDef={"sortable": False, "resizable": True}, dashGridOptions=_options(),
        style={"height": HEAD_PX + ROW_PX * MOST_ROWS, "width": "100%"},
    )  # fmt: skip


def _options() -> dict[str, Any]:
    """How all grids look."""
    return {
        "theme": {"function": _THEME},
        "rowHeight": ROW_PX,
        "enableCellTextSelection": True,
        "tooltipShowDelay": 400,
        "animateRows": False,
    }


def column(name: str, key: str, width_px: int = 130, format: str = "", **more: Any) -> dict[str, Any]:
    """A column; `format` is d3's (`.1%`), and numbers have filters of their own."""
    said = {"headerName": name, "field": key, "width": width_px, "filter": "agTextColumnFilter", "tooltipField": key}
    if format:
        said |= {"filter": "agNumberColumnFilter", "type": "rightAligned", "valueFormatter": number(format)}
    return said | more


def number(format: str, divisor: float = 1, unit: str = "", none: str = "–") -> dict[str, str]:
    """How a column writes its numbers."""
    value = f"d3.format('{format}')(params.value / {divisor}) + '{unit}'"
    return {"function": f"params.value == null ? '{none}' : {value}"}


def grid(
    name: str,
    caption: str,
    columns: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any] = MappingProxyType({}),
    **properties: Any,
) -> "Component":
    """A table below its heading; `connect` gives it its button. `options` are more of ag-grid's own."""
    height_px = HEAD_PX + ROW_PX * min(max(len(rows), 2), MOST_ROWS)
    export = {
        "fileName": f"{name}.csv",
        "processCellCallback": {"function": f"plainCell(params, {json.dumps(FORMULA)})"},
        "processHeaderCallback": {"function": f"plainHead(params, {json.dumps(FORMULA)})"},
    }
    drawn = dag.AgGrid(
        id={"grid": name}, columnDefs=list(columns), rowData=list(rows), csvExportParams=export,
        defaultColDef={"sortable": True, "resizable": True}, dashGridOptions={**_options(), **options},
        **{"style": {"height": height_px, "width": "100%"}, **properties},
    )  # fmt: skip
    button = parts.button("CSV", {"csv": name}, **{"aria-label": f"{caption} as CSV"})
    return html.Section([html.Div([html.H2(caption), button], className="headed"), drawn])


def connect(app: Dash, name: str) -> None:
    """The button writes the rows that the table shows, filtered and in its order; numbers with all their digits."""
    app.clientside_callback(
        "(clicks) => Boolean(clicks)",
        Output({"grid": name}, "exportDataAsCsv"),
        Input({"csv": name}, "n_clicks"),
        prevent_initial_call=True,
    )
