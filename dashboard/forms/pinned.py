"""The answer that others of a page are held against: the first one, until another one is pinned."""

from typing import TYPE_CHECKING, Any

from dash import Dash, Input, Output, State, ctx, dcc, html, no_update

from ...simulator.base.units import format_seconds
from ...simulator.systems.registry import SYSTEMS
from .. import parts
from ..page import Here
from ..question import parse_query

if TYPE_CHECKING:
    from dash.development.base_component import Component


def place(form: str) -> "Component":
    """Where the difference is told, and the button that pins what is shown."""
    told = html.Span(id=f"{form}-difference", role="status")
    button = parts.button("Pin this answer", f"{form}-pin")
    return html.Div([told, button, dcc.Store(id=f"{form}-pinned")], className="bar said")


def connect(app: Dash, here: Here, form: str, base: str) -> None:
    """Each answer is held against the pinned one; `base` is the scenario of a query that names none."""

    @app.callback(
        Output(f"{form}-difference", "children"),
        Output(f"{form}-pinned", "data"),
        Input(f"{form}-query", "data"),
        Input(f"{form}-pin", "n_clicks"),
        State(f"{form}-pinned", "data"),
    )
    def tell(query: str | None, _: Any, pinned: float | None) -> tuple[Any, Any]:
        if query is None:
            return no_update, no_update
        report = here.answers.predict(parse_query(query, base)).report
        seconds = SYSTEMS[report.kind].total(report.to_json()).seconds
        if pinned is None or ctx.triggered_id == f"{form}-pin":
            pinned = seconds
        return difference(seconds, pinned), pinned


def difference(seconds: float, pinned_s: float) -> str:
    """How a time differs from the pinned one."""
    if seconds == pinned_s or not pinned_s:
        return "Changes are compared with this answer."
    more = "longer" if seconds > pinned_s else "shorter"
    change, by_s = abs(seconds / pinned_s - 1), format_seconds(abs(seconds - pinned_s))
    return f"{change:.2%} {more} than the pinned answer: by {by_s}, {format_seconds(seconds)} in all."
