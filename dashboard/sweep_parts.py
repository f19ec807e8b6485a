"""What the page of sweeps is made of: forms to open and to start one, columns to choose, the grid, a point."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import dcc, html

from ..simulator.answers.sweep.results import MAIN
from . import parts
from .figures.sweep import STATUS, axes, number_columns
from .grid import grid as grid_of
from .sweeping import MOST_POINTS
from .swept import MOST_REPORT_BYTES, Table

if TYPE_CHECKING:
    from dash.development.base_component import Component

GRID = "sweep"
"""The name of the table of points."""
NAME = "my-sweep"
"""Of a sweep that nobody named."""
OWN = "axes of my own"
"""The choice beside shipped sweeps."""

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
CHOICES = (*SCATTER, *HEAT, *PARALLEL)


def columns(table: Table, choice: Choice) -> list[str]:
    """The columns that can be chosen: axes first."""
    first = [] if choice.numbers else [*axes(table.frame), "status"]
    texts = [] if choice.numbers or "bound_by" not in table.frame else ["bound_by"]
    return list(dict.fromkeys([*first, *texts, *number_columns(table.frame)]))


def chosen(table: Table, asked: Mapping[str, str]) -> dict[str, str]:
    """The column of each choice: the one that is asked for if there is one, else one that says most."""
    varied = axes(table.frame)
    main = MAIN[table.kind][0] if table.kind else varied[0]
    first = {"x": "peak_memory_bytes", "y": main, "colour": varied[0], "across": varied[0], "value": main}
    first |= {"up": varied[1] if len(varied) > 1 else "status", "shade": main}
    found = {}
    for choice in CHOICES:
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
    choice = dmc.Select(
        id="sweeps-name", label="Sweep", description="of the data folder, or started here", data=list(names),
        value=value, searchable=True, allowDeselect=False, nothingFoundMessage="none yet",
    )  # fmt: skip
    told = html.Span(f"Report of a sweep, at most {MOST_REPORT_BYTES / 2**20:g} MiB", className="said")
    rejected = html.P(id="sweeps-rejected", className="rejected", role="alert")
    return dmc.Fieldset([choice, html.Label([told, upload], id="sweeps-uploading"), rejected], legend="Open")


def start_form(shipped: Mapping[str, str], scenarios: Sequence[str]) -> "Component":
    """A small sweep to start: a shipped one, or a scenario and one or two axes; as it was, for who comes back."""
    which = dmc.Select(
        id="sweeps-shipped", label="Sweep to run", description=f"at most {MOST_POINTS} points", value=OWN,
        data=[OWN, *({"value": name, "label": about} for name, about in shipped.items())],
        searchable=True, allowDeselect=False, **_KEPT,
    )  # fmt: skip
    first = next(iter(scenarios), None)
    base = dmc.Select(
        id="sweeps-base", label="Scenario", data=list(scenarios), searchable=True, allowDeselect=False,
        value="train-llama3-70b-64xh100" if "train-llama3-70b-64xh100" in scenarios else first, **_KEPT,
    )  # fmt: skip
    own = html.Div([base, _axis(1, "parallel.tp", "2, 4, 8"), _axis(2, "", "")], id="sweeps-own", className="form")
    name = dmc.TextInput(
        id="sweeps-new", label="Name", value=NAME, description="letters, digits, - and _; the same goes on", **_KEPT,
    )  # fmt: skip
    buttons = dmc.Group(
        [
            dmc.Button("Start", id="sweeps-start"),
            dmc.Button("Cancel", id="sweeps-cancel", variant="default", disabled=True),
        ]
    )
    bar = html.Progress(id="sweeps-bar", value="0", max="1", className="progress", **{"aria-label": "Points done"})
    told = html.Div(id="sweeps-told", **{"aria-live": "polite"})
    wait = dcc.Interval(id="sweeps-wait", interval=_POLL_MS, disabled=True)
    return dmc.Fieldset([which, own, name, buttons, bar, told, wait], legend="Start a small one")


def _axis(number: int, key: str, values: str) -> "Component":
    return html.Div(
        [
            dmc.TextInput(id=f"sweeps-key{number}", label=f"Axis {number}: key", value=key, **_KEPT),
            dmc.TextInput(id=f"sweeps-values{number}", label=f"Axis {number}: values", value=values, **_KEPT),
        ],
        className="pair",
    )


def nothing_yet() -> "Component":
    """What to do where there is no sweep."""
    return dmc.Alert(
        [
            html.P("Start a small one on this page, or upload the report.csv of one."),
            html.P(["Larger ones run from the command line: ", html.Code("runcast sweep SWEEP.toml --out DIR/name")]),
            html.P(["Then serve their folder: ", html.Code("runcast dashboard --data DIR")]),
        ],
        title="No sweep to show yet",
        color="blue",
    )


def refused(lines: Sequence[str], title: str) -> "Component":
    """What is wrong, a line each, as text."""
    return dmc.Alert([html.P(line) for line in lines], title=title, color="red")


def body(
    table: Table, name: str, columns_chosen: Mapping[str, str], lines: Sequence[str], bases: Sequence[str]
) -> "list[Component]":
    """All that is shown of a sweep; figures are drawn into it afterwards. `bases`: what its points may change."""
    frame = table.frame
    counts = frame["status"].value_counts()
    cards = [("Points", f"{table.total:,}", name)]
    cards += [(STATUS.get(str(status), str(status)).capitalize(), f"{count:,}", "") for status, count in counts.items()]
    notes = []
    if table.total > len(frame):
        notes.append(f"Shown are the first {len(frame):,} of {table.total:,} points; report.csv has all.")
    if blank := int((frame["status"] == "infeasible").sum()):
        notes.append(f"{blank:,} points were refused and have no values; the grid says why.")
    shown = [*axes(frame), *number_columns(frame)]
    switch = dmc.Switch(id="sweeps-all", label="Points that cannot be run", checked=True)
    pick = dmc.MultiSelect(
        id="sweeps-lines", label="Columns", data=list(dict.fromkeys(shown)), value=list(lines), searchable=True,
        maxValues=12,
    )  # fmt: skip
    return [
        parts.numbers(cards),
        parts.said(notes),
        _section("Pareto front", _selects(table, SCATTER, columns_chosen, switch), "sweeps-scatter"),
        html.Section([html.H2("Point"), html.Div(id="sweeps-point", **{"aria-live": "polite"}), _bases(bases)]),
        _section("Heat map", _selects(table, HEAT, columns_chosen), "sweeps-heat"),
        _section("Parallel coordinates", _selects(table, PARALLEL, columns_chosen, pick), "sweeps-parallel"),
        grid(frame),
    ]


def _bases(names: Sequence[str]) -> "Component":
    return dmc.Select(
        id="sweeps-of", label="Scenario that points change", placeholder="the sweep's own", data=list(names),
        searchable=True, clearable=True, maw=360,
    )  # fmt: skip


def _section(caption: str, controls: "Component", graph: str) -> "Component":
    drawn = html.Div(dcc.Graph(id=graph, config=parts.CONFIG), className="wide")
    return html.Section([parts.headed(caption), controls, drawn])


def _selects(table: Table, choices: Sequence[Choice], value: Mapping[str, str], *more: "Component") -> "Component":
    made = [
        dmc.Select(
            id={"sweeps": choice.key}, label=choice.label, data=columns(table, choice), value=value[choice.key],
            searchable=True, allowDeselect=False,
        )
        for choice in choices
    ]  # fmt: skip
    return html.Div([*made, *more], className="columns")


def grid(frame: "Any") -> "Component":
    """All columns of the points, to sort, filter and keep as CSV; cells are text, never markup."""
    rows = [{name: _cell(value) for name, value in row.items()} for row in frame.to_dict("records")]
    numbers = {"point", *number_columns(frame)}
    defs = [_column(name, name in numbers, frame[name].dtype.kind == "f") for name in _in_order(frame)]
    return grid_of(
        GRID,
        "All points",
        defs,
        rows,
        {
            "suppressFieldDotNotation": True,
            "rowSelection": {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True},
            "pagination": True,
            "paginationPageSize": 20,
            "domLayout": "autoHeight",
        },
        getRowId="params.data.point.toString()",
        columnSize="autoSize",
        style={"width": "100%"},
    )


def _in_order(frame: "Any") -> list[str]:
    """What is looked at first stands first: axes, what became of a point, its main values."""
    main = [*(metric for metric, _ in MAIN.values()), "step_time_s", "peak_memory_bytes", "mfu", "cost_usd"]
    first = ["point", *axes(frame), "status", *main, "reason"]
    return [name for name in dict.fromkeys([*first, *map(str, frame.columns)]) if name in frame.columns]


def _formatted(value: str, form: str, unit: str = "") -> str:
    return f"params.value == null ? '' : d3.format('{form}')({value}) + '{unit}'"


def _column(name: str, number: bool, decimal: bool) -> dict[str, Any]:
    said: dict[str, Any] = {"field": name, "headerName": name, "minWidth": 90}
    said["filter"] = "agNumberColumnFilter" if number else "agTextColumnFilter"
    if number:
        said["type"] = "rightAligned"
    if number and name.endswith("bytes"):
        said["valueFormatter"] = {"function": _formatted(f"params.value / {2**30}", ",.4~g", " GiB")}
    elif decimal:
        said["valueFormatter"] = {"function": _formatted("params.value", ",.5~g")}
    if name == "reason":
        said |= {"tooltipField": name, "maxWidth": 320}
    if name == "point":
        said["pinned"] = "left"
    return said


def _cell(value: Any) -> Any:
    """Plain, and nothing where there is none."""
    if value is None or value != value:
        return None
    return value.item() if hasattr(value, "item") else value


def point(said: Mapping[str, str], link: str, name: str, notes: Sequence[str]) -> "Component":
    """What a point says of itself, and the way to its page."""
    rows = [html.Tr([html.Th(name, scope="row"), html.Td(value)]) for name, value in said.items()]
    return html.Div(
        [
            html.Div(html.Table(html.Tbody(rows), className="table"), className="wide"),
            html.P(html.A(name, href=link)) if link else None,
            parts.said(notes),
        ]
    )
