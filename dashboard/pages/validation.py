"""Validation: predictions beside what was published, row by row; how far off, and how often intervals hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, ctx, dcc, html, no_update

from ...simulator.base.errors import UserError
from .. import grid, parts
from ..figures.validation import coverage_bars, scatter
from ..ledgers import FAMILIES, KINDS, LEFT_OUT, STEPS, Far, Ledgers, scores, scores_by
from ..page import Here, Page
from ..shell import keep_in_address

if TYPE_CHECKING:
    import pandas as pd
    from dash.development.base_component import Component

ABOUT = "Published training steps and weight updates beside predictions: how far off, and how often intervals hold."
NAME = "validation"
MOST_CHARACTERS = 1000
"""Of a query that is read."""
_EVERY = "all"
_POLL_MS = 1000
_HIDDEN, _VISIBLE = {"display": "none"}, {"display": "block"}
_COLUMNS = (
    grid.column("Row", "id", 190),
    grid.column("Error", "error", 100, "+.1%"),
    grid.column("What is known", "known", 340),
    grid.column("Model", "model", 150),
    grid.column("GPU", "gpu", 140),
    grid.column("GPUs", "gpus", 90),
    grid.column("Software", "stack", 150),
    grid.column("Measured, s", "measured_s", 120, ".4~r"),
    grid.column("Predicted, s", "predicted_s", 120, ".4~r"),
    grid.column("In the interval", "inside", 130),
    grid.column("Source", "source", 150),
)


@dataclass(frozen=True)
class Shown:
    """What the page shows; an address says what differs from this."""

    kind: str = STEPS
    errors: str = "error"
    source: str = _EVERY
    by: str = "source"

    def query(self) -> str:
        """As the query of an address."""
        return "?" + urlencode([(key, value) for key, value in vars(self).items()])


def shown(query: str) -> Shown:
    """What an address asks for; what is not known stands as it does at first."""
    asked = dict(parse_qsl(query.removeprefix("?")[:MOST_CHARACTERS]))
    kind = asked.get("kind", STEPS)
    first = Shown(kind=kind if kind in KINDS else STEPS)
    allowed: Mapping[str, Any] = {"errors": LEFT_OUT[first.kind], "by": FAMILIES[first.kind]}
    good = {key: asked[key] for key, known in allowed.items() if asked.get(key) in known}
    return replace(first, **good, source=asked.get("source", _EVERY))


def layout(_: Here, query: str) -> "Component":
    """The choices, and the places of what they show."""
    now = shown(query)
    return html.Div(
        [
            parts.heading("Validation", ABOUT),
            _kinds(now.kind),
            html.Form(_choices(now), className="choices", **{"aria-label": "Rows"}),
            html.Div(_waiting(), id=f"{NAME}-waiting", style=_HIDDEN),
            html.Div(parts.said(["Reading what was measured."]), id=f"{NAME}-numbers", **{"aria-live": "polite"}),
            dcc.Loading(html.Div(id=f"{NAME}-drawn"), type="circle", delay_show=500),
            dcc.Store(id=f"{NAME}-kind", data=now.kind),
            dcc.Store(id=f"{NAME}-query"),
            dcc.Interval(id=f"{NAME}-wait", interval=_POLL_MS, disabled=True),
        ]
    )


def _kinds(kind: str) -> "Component":
    """Links, as the other ledger has other choices."""
    links = [
        html.A(name, href=f"{PATH}?kind={key}", **{"aria-current": str(key == kind).lower()})
        for key, name in KINDS.items()
    ]
    return html.Nav(links, className="ledgers", **{"aria-label": "Ledgers"})


def _waiting() -> "list[Component]":
    bar = html.Progress(id=f"{NAME}-bar", className="progress", **{"aria-label": "Updates simulated"})
    cancel = dmc.Button("Cancel", id=f"{NAME}-cancel", variant="default", size="xs")
    return [html.P(id=f"{NAME}-far", role="status"), bar, cancel]


def _choices(now: Shown) -> "list[Component]":
    told = {"allowDeselect": False}
    sources = list(dict.fromkeys([_EVERY, now.source]))
    return [
        dmc.Select(id=f"{NAME}-errors", label="Predicted", value=now.errors, data=_options(LEFT_OUT[now.kind]), **told),
        dmc.Select(id=f"{NAME}-source", label="Source", value=now.source, data=sources, searchable=True, **told),
        dmc.Select(id=f"{NAME}-by", label="Told apart by", value=now.by, data=_options(FAMILIES[now.kind]), **told),
    ]


def _options(known: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"value": key, "label": name} for key, name in known.items()]


def numbers(rows: "pd.DataFrame") -> "Component":
    """How far off these rows are."""
    found = scores(rows)
    over = rows["error"].abs().groupby(rows["source"]).median()
    told = [
        ("Rows", f"{found['rows']:,}", f"of {rows['source'].nunique()} sources"),
        ("Median error", f"{found['median_abs_error']:.1%}", f"median over sources {over.median():.1%}"),
        ("90 % are within", f"{found['p90_abs_error']:.1%}", "of what was measured"),
        ("Bias", f"{found['bias']:+.1%}", "the median error with its sign"),
        ("In the 90 % interval", _share(found), found["verdict"] or _counted(found)),
    ]
    return parts.numbers(told)


def _share(found: Mapping[str, Any]) -> str:
    return f"{found['held'] / found['held_of']:.0%}" if found["held_of"] else "not known"


def _counted(found: Mapping[str, Any]) -> str:
    return f"{found['held']:,} of {found['held_of']:,} rows" if found["held_of"] else "of intervals with rows left out"


def drawn(rows: "pd.DataFrame", now: Shown) -> "list[Component]":
    """Scatter, coverage, and the rows."""
    by = FAMILIES[now.kind][now.by]
    found = {f"Predicted over measured, by {by}": scatter(rows, now.by)}
    if rows["inside"].notna().any():
        found[f"Coverage of 90 % intervals, by {by}"] = coverage_bars(scores_by(rows, now.by))
    caption = "Rows, the worst first"
    return [*parts.figures(found), grid.grid(NAME, caption, _COLUMNS, records(rows))]


def records(rows: "pd.DataFrame") -> list[dict[str, Any]]:
    """Cells of the table as plain values."""
    words = {True: "yes", False: "no"}
    table = rows[[column["field"] for column in _COLUMNS]].assign(inside=[words.get(v, "–") for v in rows["inside"]])
    rounded = {key: [float(f"{v:.5g}") for v in rows[key]] for key in ("error", "measured_s", "predicted_s")}
    return [{str(key): value for key, value in row.items()} for row in table.assign(**rounded).to_dict("records")]


def connect(app: Dash, _: Here) -> None:
    """A choice draws the rows anew, and stands in the address."""
    ledgers = Ledgers()
    keep_in_address(app, f"{NAME}-query")
    grid.connect(app, NAME)

    # the answer to Cancel stands only if no tick is sent before it comes
    app.clientside_callback(
        "() => true",
        Output(f"{NAME}-wait", "disabled", allow_duplicate=True),
        Input(f"{NAME}-cancel", "n_clicks"),
        prevent_initial_call=True,
    )

    @app.callback(
        Output(f"{NAME}-numbers", "children"),
        Output(f"{NAME}-drawn", "children"),
        Output(f"{NAME}-source", "data"),
        Output(f"{NAME}-query", "data"),
        Output(f"{NAME}-wait", "disabled"),
        Output(f"{NAME}-waiting", "style"),
        Output(f"{NAME}-far", "children"),
        Output(f"{NAME}-bar", "value"),
        Output(f"{NAME}-bar", "max"),
        Input(f"{NAME}-errors", "value"),
        Input(f"{NAME}-source", "value"),
        Input(f"{NAME}-by", "value"),
        Input(f"{NAME}-wait", "n_intervals"),
        Input(f"{NAME}-cancel", "n_clicks"),
        State(f"{NAME}-kind", "data"),
    )
    def show(errors: str, source: str, by: str, _: Any, __: Any, kind: str) -> tuple[Any, ...]:
        now = shown(Shown(kind, errors, source, by).query())
        there = True, _HIDDEN, "", "0", "1"
        if ctx.triggered_id == f"{NAME}-cancel":
            ledgers.stop()
            return _stopped(now), [], no_update, now.query(), *there
        try:
            rows = ledgers.rows(now.kind, now.errors)
        except UserError as error:
            return _stopped(now, error.faults), [], no_update, now.query(), *there
        if isinstance(rows, Far):
            words = f"Simulating weight updates, some seconds in all: {rows.done} of {rows.total or '...'}."
            return None, [], no_update, now.query(), False, _VISIBLE, words, str(rows.done), str(rows.total or 1)
        sources = [_EVERY, *sorted(rows["source"].unique())]
        mine = rows if now.source == _EVERY else rows[rows["source"] == now.source]
        if mine.empty:
            return _nothing(now.source), [], sources, now.query(), *there
        return numbers(mine), drawn(mine, now), sources, now.query(), *there


def _stopped(now: Shown, why: Sequence[str] = ()) -> "Component":
    again = html.A("Simulate them", href=PATH + now.query())
    return dmc.Alert([*map(html.P, why), again], title="The weight updates were not simulated", color="yellow")


def _nothing(source: str) -> "Component":
    return dmc.Alert(f"No row of the source {source}: choose another.", title="Nothing to show", color="yellow")


PATH = "/validation"
PAGE = Page(PATH, "Validation", "predicted beside measured", layout, connect)
