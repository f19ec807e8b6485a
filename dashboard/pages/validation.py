"""Validation: predictions beside what was published, row by row; how far off, and how often intervals hold."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from dash import Dash, Input, Output, dcc, html, no_update

from ...simulator.base.units import format_count
from ...simulator.figures.theme import digits
from .. import parts, tables
from ..background import enabling
from ..figures.validation import coverage_bars, ratios, scatter
from ..ledgers import FAMILIES, KINDS, LEFT_OUT, READERS, STEPS, Ledgers, scores, scores_by, simulate_rows
from ..page import Here, Page, inputs, keep_in_address, outputs, states
from ..question import choices_of
from ..tables import column

if TYPE_CHECKING:
    import pandas as pd
    from dash.development.base_component import Component

ABOUT = (
    "Training steps, weight updates, runs and RL cycles as published, and what we executed, beside predictions: how "
    "far off, and how often intervals hold."
)
NAME, PATH = "validation", "/validation"
_EVERY = "all"
_HIDDEN, _VISIBLE = {"display": "none"}, {"display": "block"}
_FIRST = (
    column("Row", "id", 190),
    column("Error", "error", 100, "+.1%"),
    column("What is known", "known", 340),
)
_COLUMNS_OF_STEPS = (
    *_FIRST,
    column("Model", "model", 150),
    column("GPU", "gpu", 140),
    column("GPUs", "gpus", 90),
    column("Software", "stack", 150),
    column("Measured, s", "measured_s", 120, ".4~r"),
    column("Predicted, s", "predicted_s", 120, ".4~r"),
    column("In the interval", "inside", 130),
    column("Source", "source", 150),
)
_COLUMNS_OF_RUNS = (
    *_FIRST,
    column("Metric", "metric", 150),
    column("Measured", "measured", 120),
    column("Predicted", "predicted", 120),
    column("90 % interval", "interval", 170),
    column("In the interval", "inside", 130),
    column("Subject", "subject", 170),
    column("Where", "where", 220),
    column("Source", "source", 150),
)


@dataclass(frozen=True)
class Shown:
    """What the page shows."""

    kind: str = STEPS
    errors: str = "error"
    source: str = _EVERY
    by: str = "source"

    @classmethod
    def read(cls, said: Mapping[str, str]) -> "Shown":
        """What an address asks for; what is not known stands as it does at first."""
        kind = said["kind"] if said.get("kind") in KINDS else STEPS
        known = {"errors": LEFT_OUT[kind], "by": FAMILIES[kind]}
        good = {key: said[key] for key, allowed in known.items() if said.get(key) in allowed}
        first = next(iter(FAMILIES[kind]))
        return replace(cls(kind, source=said.get("source", _EVERY), by=first), **good)

    def query(self) -> str:
        """The state of the page as the query of an address."""
        return "?" + urlencode(vars(self))


def layout(here: Here, query: str) -> "Component":
    """The choices, and the places of what they show; other ledgers are links, as they have other choices.

    A Store that only pages of ledgers without predictions have begins to simulate these.
    """
    now = Shown.read(choices_of(query))
    links = [
        html.A(name, href=f"{PATH}?kind={kind}", **{"aria-current": str(kind == now.kind).lower()})
        for kind, name in KINDS.items()
    ]
    errors, families = parts.options(LEFT_OUT[now.kind]), parts.options(FAMILIES[now.kind])
    choices = [
        parts.choice(f"{NAME}-errors", "Predicted", errors, now.errors, searchable=False),
        parts.choice(f"{NAME}-source", "Source", list(dict.fromkeys([_EVERY, now.source])), now.source),
        parts.choice(f"{NAME}-by", "Group by", families, now.by, searchable=False),
    ]
    waiting = [
        html.P(id=f"{NAME}-far", role="status"),
        html.Progress(id=f"{NAME}-bar", className="progress", **{"aria-label": "Rows simulated"}),
        parts.button("Cancel", f"{NAME}-cancel", disabled=True),
    ]
    begin = now.kind in READERS and now.kind not in here.results
    wanted = [dcc.Store(id=f"{NAME}-wanted", data=now.kind)] if begin else []
    return html.Div(
        [
            html.Nav(links, className="ledgers", **{"aria-label": "Ledgers"}),
            html.Form(choices, className="choices", **{"aria-label": "Rows"}),
            html.Div(waiting, id=f"{NAME}-waiting", style=_HIDDEN),
            html.Div(parts.notes(["Reading what was measured."]), id=f"{NAME}-numbers", **{"aria-live": "polite"}),
            dcc.Loading(html.Div(id=f"{NAME}-drawn"), type="circle", delay_show=500),
            dcc.Store(id=f"{NAME}-kind", data=now.kind),
            dcc.Store(id=f"{NAME}-query"),
            dcc.Store(id=f"{NAME}-done"),
            *wanted,
        ]
    )


def numbers(rows: "pd.DataFrame") -> "Component":
    """How far off these rows are."""
    found = scores(rows)
    held, of = found["held"], found["held_of"]
    over = rows["error"].abs().groupby(rows["source"]).median()
    many = rows["source"].nunique()
    counted = f"{held:,} of {of:,} rows" if of else "of intervals with rows left out"
    return parts.numbers(
        [
            ("Rows", f"{found['rows']:,}", f"of {format_count(many, 'source')}"),
            ("Median error", f"{found['median_abs_error']:.1%}", f"median over sources {over.median():.1%}"),
            ("90 % are within", f"{found['p90_abs_error']:.1%}", "of what was measured"),
            ("Bias", f"{found['bias']:+.1%}", "the median error with its sign"),
            ("In the 90 % interval", f"{held / of:.0%}" if of else "not known", found["verdict"] or counted),
        ]
    )


def draw(rows: "pd.DataFrame", now: Shown) -> "list[Component]":
    """Predicted over measured, coverage, and the rows."""
    by = FAMILIES[now.kind][now.by]
    over = ratios if "ratio" in rows else scatter
    figures = {f"Predicted over measured, by {by}": over(rows, now.by)}
    if rows["inside"].notna().any():
        figures[f"Coverage of 90 % intervals, by {by}"] = coverage_bars(scores_by(rows, now.by))
    columns = _COLUMNS_OF_RUNS if "ratio" in rows else _COLUMNS_OF_STEPS
    return [*parts.figures(figures), tables.grid(NAME, "Rows, the worst first", columns, records(rows, columns))]


def records(rows: "pd.DataFrame", columns: Sequence[Mapping[str, Any]] = _COLUMNS_OF_STEPS) -> list[dict[str, Any]]:
    """Cells of the table as plain values."""
    words = {True: "yes", False: "no"}
    table = rows[[column["field"] for column in columns]].assign(inside=[words.get(v, "–") for v in rows["inside"]])
    numbers = [key for key in ("error", "measured_s", "predicted_s") if key in table]
    table = table.assign(**{key: digits(rows[key], 5) for key in numbers})
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def connect(app: Dash, here: Here) -> None:
    """A choice draws the rows anew, and stands in the address; rows without predictions are simulated before."""
    ledgers, place = Ledgers(here.results), here.results.directory
    keep_in_address(app, f"{NAME}-query")
    tables.connect(app, NAME)

    @app.callback(
        *outputs(NAME, "numbers.children", "drawn.children", "source.data", "query.data"),
        *inputs(NAME, "errors.value", "source.value", "by.value", "done.data"),
        *states(NAME, "kind.data"),
    )
    def show(errors: str, source: str, by: str, _: Any, kind: str) -> tuple[Any, ...]:
        now = Shown.read({"kind": kind, "errors": errors, "source": source, "by": by})
        rows = ledgers.rows(now.kind, now.errors)
        if rows is None:
            again = html.A("Simulate them", href=PATH + now.query())
            drawn = parts.alert("The rows were not simulated", [again], "yellow")
            return drawn, [], no_update, now.query()
        sources = [_EVERY, *sorted(rows["source"].unique())]
        mine = rows if now.source == _EVERY else rows[rows["source"] == now.source]
        if mine.empty:
            line = f"No row of the source {now.source}: choose another."
            return parts.alert("Nothing to show", [line], "yellow"), [], sources, now.query()
        notes = [note] if (note := ledgers.note(now.kind)) else []
        return [numbers(mine), parts.notes(notes)], draw(mine, now), sources, now.query()

    @app.callback(
        output=Output(f"{NAME}-done", "data"),
        inputs=Input(f"{NAME}-wanted", "data"),
        background=True,
        progress=outputs(NAME, "far.children", "bar.value", "bar.max", "cancel.disabled"),
        progress_default=("", "0", "1", True),
        running=[
            (Output(f"{NAME}-waiting", "style"), _VISIBLE, _HIDDEN),
            (Output(f"{NAME}-numbers", "style"), _HIDDEN, _VISIBLE),
            (Output(f"{NAME}-far", "children"), "Simulating the rows, some seconds in all ...", ""),
        ],
        cancel=inputs(NAME, "cancel.n_clicks"),
    )
    def simulate(tell: Callable[[Any], None], wanted: str) -> str:
        say, words = enabling(tell), f"Simulating {KINDS[wanted]}, some seconds in all"
        say(f"{words} ...", "0", "1")
        simulate_rows(wanted, place, lambda done, total: say(f"{words}: {done} of {total}.", str(done), str(total)))
        return wanted


PAGE = Page(PATH, "Validation", "predicted beside measured", ABOUT, layout, connect)
