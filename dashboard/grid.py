"""Tables that can be filtered, sorted and taken along as CSV. Cells are text, never markup."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import dash_ag_grid as dag
import dash_mantine_components as dmc
from dash import Dash, Input, Output, html

from .tables import FORMULA

if TYPE_CHECKING:
    from dash.development.base_component import Component

THEME = (
    "themeQuartz.withParams({backgroundColor: 'var(--mantine-color-body)',"
    " foregroundColor: 'var(--mantine-color-text)', borderColor: 'var(--mantine-color-default-border)',"
    " accentColor: 'var(--mantine-primary-color-filled)', browserColorScheme: 'inherit', fontFamily: 'inherit',"
    " fontSize: 13, spacing: 6})"
)
"""Colours are the page's, so that a table is light or dark with it."""

ROW_PX, HEAD_PX, MOST_ROWS = 36, 52, 12


def column(name: str, key: str, width_px: int = 130, format: str = "") -> dict[str, Any]:
    """A column; `format` is d3's (`.1%`), and numbers have filters of their own."""
    number = {
        "type": "rightAligned",
        "valueFormatter": {"function": f"params.value == null ? '–' : d3.format('{format}')(params.value)"},
    }
    filters = "agNumberColumnFilter" if format else "agTextColumnFilter"
    return {
        "headerName": name, "field": key, "width": width_px, "filter": filters, "tooltipField": key,
        **(number if format else {}),
    }  # fmt: skip


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
    table = dag.AgGrid(
        id={"grid": name},
        columnDefs=list(columns),
        rowData=list(rows),
        defaultColDef={"sortable": True, "resizable": True},
        csvExportParams={
            "fileName": f"{name}.csv",
            "processCellCallback": {"function": f"plainCell(params, {json.dumps(FORMULA)})"},
            "processHeaderCallback": {"function": f"plainHead(params, {json.dumps(FORMULA)})"},
        },
        dashGridOptions={
            "theme": {"function": THEME},
            "rowHeight": ROW_PX,
            "enableCellTextSelection": True,
            "tooltipShowDelay": 400,
            "animateRows": False,
            **options,
        },
        **{"style": {"height": height_px, "width": "100%"}, **properties},
    )
    button = dmc.Button("CSV", id={"csv": name}, size="xs", variant="default", **{"aria-label": f"{caption} as CSV"})
    return html.Section([html.Div([html.H2(caption), button], className="headed"), table])


def connect(app: Dash, name: str) -> None:
    """The button writes the rows that the table shows, filtered and in its order; numbers with all their digits."""
    app.clientside_callback(
        "(clicks) => Boolean(clicks)",
        Output({"grid": name}, "exportDataAsCsv"),
        Input({"csv": name}, "n_clicks"),
        prevent_initial_call=True,
    )
