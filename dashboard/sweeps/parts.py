"""What the page of sweeps is made of: forms to open and to start one, columns to choose, the grid, a point."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import dcc, html

from ...simulator.answers.sweep.results import MAIN
from .. import parts, tables
from ..figures.sweep import STATUS, axes, number_columns
from ..question import BASE
from .points import MOST_REPORT_BYTES, Source, Table
from .run import MOST_POINTS

if TYPE_CHECKING:
    import pandas as pd
    from dash.development.base_component import Component

GRID = "sweep"
"""The name of the table of points."""
NAME = "my-sweep"
"""Of a sweep that nobody named."""
OWN = "axes of my own"
"""The choice beside shipped sweeps."""

OPEN = "Open this point"
"""The link from a point to its page."""

_KEPT = {"persistence": True, "persistence_type": "session"}
_POLL_MS = 1000


@dataclass(frozen=True)
class Choice:
    """A choice of a column: its key in the address, label, and whether only numbers can be shown."""

    key: str
    label: str
    numbers: bool = False


SCATTER = (Choice("x", "Across"), Choice("y", "Up"), Choice("colour", "Colour"))
HEAT = (Choice("across", "Across"), Choice("up", "Up"), Choice("value", "Value", numbers=True))
PARALLEL = (Choice("shade", "Colour"),)


def columns(table: Table, choice: Choice) -> list[str]:
    """The columns that can be chosen: axes first."""
    texts = [] if choice.numbers else [*axes(table.frame), "status", "bound_by"]
    return list(dict.fromkeys([*(name for name in texts if name in table.frame), *number_columns(table.frame)]))


def default_columns(table: Table, asked: Mapping[str, str]) -> dict[str, str]:
    """The column of each choice: the one that is asked for if there is one, else one that says most."""
    varied = axes(table.frame)
    main = MAIN[table.kind][0] if table.kind else varied[0]
    first = {"x": "peak_memory_bytes", "y": main, "colour": varied[0], "across": varied[0], "value": main}
    first |= {"up": varied[1] if len(varied) > 1 else "status", "shade": main}
    found = {}
    for choice in (*SCATTER, *HEAT, *PARALLEL):
        known = columns(table, choice)
        wanted = [asked.get(choice.key), first[choice.key], *known]
        found[choice.key] = next((name for name in wanted if name in known), varied[0])
    return found


def open_form(names: Sequence[str], value: str | None) -> "Component":
    """A sweep of the data folder, or a report to upload."""
    upload = dcc.Upload(
        dmc.Button("Upload a report.csv", id="sweeps-upload-button", variant="default", fullWidth=True),
        id="sweeps-upload", accept=".csv,text/csv", max_size=MOST_REPORT_BYTES,
    )  # fmt: skip
    choice = parts.choice("sweeps-name", "Sweep", list(names), value, nothingFoundMessage="none yet",
                          description="of the data folder, or started here")  # fmt: skip
    limit = html.Span(f"Report of a sweep, at most {MOST_REPORT_BYTES / 2**20:g} MiB", className="said")
    rejected = html.P(id="sweeps-rejected", className="rejected", role="alert")
    return dmc.Fieldset([choice, html.Label([limit, upload], id="sweeps-uploading"), rejected], legend="Open")


def start_form(shipped: Mapping[str, str], scenarios: Sequence[str]) -> "Component":
    """A small sweep to start: a shipped one, or a scenario and one or two axes; as it was, for who comes back."""
    first = BASE if BASE in scenarios else next(iter(scenarios), None)
    own = [
        parts.choice("sweeps-base", "Scenario", list(scenarios), first, **_KEPT),
        _axis(1, "parallel.tp", "2, 4, 8"),
        _axis(2, "", ""),
    ]
    buttons = [
        dmc.Button("Start", id="sweeps-start"),
        parts.button("Cancel", "sweeps-cancel", size="sm", disabled=True),
    ]
    return dmc.Fieldset(
        [
            parts.choice("sweeps-shipped", "Sweep to run", [OWN, *parts.options(shipped)], OWN,
                         description=f"at most {MOST_POINTS} points", **_KEPT),
            html.Div(own, id="sweeps-own", className="form"),
            dmc.TextInput(id="sweeps-new", label="Name", value=NAME, **_KEPT,
                          description="letters, digits, - and _; the same goes on"),
            dmc.Group(buttons),
            html.Progress(id="sweeps-bar", value="0", max="1", className="progress", **{"aria-label": "Points done"}),
            html.Div(id="sweeps-told", **{"aria-live": "polite"}),
            dcc.Interval(id="sweeps-wait", interval=_POLL_MS, disabled=True),
        ],
        legend="Start a small one",
    )  # fmt: skip


def _axis(number: int, key: str, values: str) -> "Component":
    inputs = [
        dmc.TextInput(id=f"sweeps-key{number}", label=f"Axis {number}: key", value=key, **_KEPT),
        dmc.TextInput(id=f"sweeps-values{number}", label=f"Axis {number}: values", value=values, **_KEPT),
    ]
    return html.Div(inputs, className="pair")


def nothing_yet() -> "Component":
    """What to do where there is no sweep."""
    lines = [
        "Start a small one on this page, or upload the report.csv of one.",
        html.Span(["Larger ones run from the command line: ", html.Code("runcast sweep SWEEP.toml --out DIR/name")]),
        html.Span(["Then serve their folder: ", html.Code("runcast dashboard --data DIR")]),
    ]
    return parts.alert("No sweep to show yet", lines, "blue")


def draw(
    table: Table, source: Source, chosen: Mapping[str, str], lines: Sequence[str], bases: Sequence[str]
) -> "list[Component]":
    """All that is shown of a sweep, whose points are from `source`; figures are drawn into it afterwards.

    `chosen` are columns by the keys of choices, `lines` those of parallel coordinates, `bases` what its points may
    change.
    """
    frame = table.frame
    switch = dmc.Switch(id="sweeps-all", label="Points that cannot be run", checked=True)
    shown = list(dict.fromkeys([*axes(frame), *number_columns(frame)]))
    pick = dmc.MultiSelect(id="sweeps-lines", label="Columns", data=shown, value=list(lines), searchable=True,
                           maxValues=12)  # fmt: skip
    of = parts.choice("sweeps-of", "Scenario that points change", list(bases), None, placeholder="the sweep's own",
                      clearable=True, allowDeselect=True, maw=360)  # fmt: skip
    return [
        html.Div(counts(table, source), id="sweeps-counts", **{"data-sweep": source.get("name", "")}),
        _section("Pareto front", table, SCATTER, chosen, "sweeps-scatter", switch),
        html.Section([html.H2("Point"), html.Div(id="sweeps-point", **{"aria-live": "polite"}), of]),
        _section("Heat map", table, HEAT, chosen, "sweeps-heat"),
        _section("Parallel coordinates", table, PARALLEL, chosen, "sweeps-parallel", pick),
        grid(frame),
    ]


def counts(table: Table, source: Source) -> "list[Component]":
    """How many points there are by status, and what is not shown of them."""
    frame = table.frame
    name = source.get("name") or source["file"]
    cards = [("Points", f"{table.total:,}", f"{name}, so far" if "done" in source else name)]
    by_status = frame["status"].value_counts().items()
    cards += [(STATUS.get(str(status), str(status)).capitalize(), f"{count:,}", "") for status, count in by_status]
    notes = []
    if table.total > len(frame):
        notes.append(f"Shown are the first {len(frame):,} of {table.total:,} points; report.csv has all.")
    if blank := int((frame["status"] == "infeasible").sum()):
        notes.append(f"Points that were refused: {blank:,}. They have no values; the grid says why.")
    return [parts.numbers(cards), parts.notes(notes)]


def _section(
    caption: str, table: Table, choices: Sequence[Choice], chosen: Mapping[str, str], graph: str, *more: "Component"
) -> "Component":
    """A figure below the choices of its columns."""
    selects = [
        parts.choice({"sweeps": choice.key}, choice.label, columns(table, choice), chosen[choice.key])
        for choice in choices
    ]
    scrolled = {"tabIndex": 0, "role": "region", "aria-label": caption}
    figure = html.Div(dcc.Graph(id=graph, config=parts.CONFIG), className="wide", **scrolled)
    return html.Section([parts.heading(caption), html.Div([*selects, *more], className="columns"), figure])


def rows(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """The rows of the grid: cells are text, never markup, and nothing where there is none."""
    plain = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{str(name): cell for name, cell in row.items()} for row in plain]


def grid_columns(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """The columns of the grid: axes, what became of a point and its main values first."""
    numbers = {"point", *number_columns(frame)}
    main = [*(metric for metric, _ in MAIN.values()), "step_time_s", "peak_memory_bytes", "mfu", "cost_usd"]
    first = ["point", *axes(frame), "status", *main, "reason"]
    ordered = [name for name in dict.fromkeys([*first, *map(str, frame.columns)]) if name in frame.columns]
    return [_column(name, name in numbers, frame[name].dtype.kind == "f") for name in ordered]


def grid(frame: "pd.DataFrame") -> "Component":
    """All columns of the points, to sort, filter and keep as CSV."""
    options = {
        "suppressFieldDotNotation": True,
        "rowSelection": {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True},
        "pagination": True,
        "paginationPageSize": 20,
        "domLayout": "autoHeight",
    }
    return tables.grid(
        GRID, "All points", grid_columns(frame), rows(frame), options, getRowId="params.data.point.toString()",
        columnSize="autoSize", style={"width": "100%"},
    )  # fmt: skip


def _column(name: str, number: bool, decimal: bool) -> dict[str, Any]:
    own: dict[str, dict[str, Any]] = {"point": {"pinned": "left"}, "reason": {"maxWidth": 320}}
    more = own.get(name, {})
    if not number:
        return tables.column(name, name, minWidth=90, **more)
    size = tables.number(",.4~g", 2**30, " GiB", none="")
    form = size if name.endswith("bytes") else tables.number(",.5~g" if decimal else "d", none="")
    return tables.column(name, name, format="d", valueFormatter=form, minWidth=90, **more)


def point(cells: Mapping[str, str], link: str, notes: Sequence[str]) -> "Component":
    """What a point says of itself, and the way to its page."""
    rows = [html.Tr([html.Th(name, scope="row"), html.Td(value)]) for name, value in cells.items()]
    return html.Div(
        [
            html.Div(html.Table(html.Tbody(rows), className="table"), className="wide"),
            html.P(html.A(OPEN, href=link)) if link else None,
            parts.notes(notes),
        ]
    )
