"""Timelines that mouse and keys zoom, and that are drawn anew for what is seen of them: what is short is told apart
there, and joined elsewhere.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dash import ClientsideFunction, Dash, Input, Output, Patch, State, dcc, no_update

from ..simulator.figures import Window, draw_timeline
from ..simulator.figures.critical import CRITICAL_PATH
from ..simulator.figures.run import second_of
from . import parts
from .page import Here
from .question import parse_query

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from dash.development.base_component import Component

Seen = str | Sequence[float | str] | None
"""What a browser says of a zoom (assets/zoom.js), none of it believed yet."""
MOST_SPANS = 5000
"""Exchanges of a step that are drawn apart: more make zooming slow, which draws what is seen anew."""
HINT = "Zoom: drag, or turn the wheel with Ctrl. Keys, after a click: + and - zoom, ← and → move, 0 shows all."
CONFIG = parts.CONFIG | {"scrollZoom": True}
"""Plotly zooms with the wheel; assets/zoom.js leaves it the one with Ctrl alone."""


def figure(caption: str, drawn: "go.Figure", *above: "Component", **more: Any) -> "Component":
    """A timeline below its heading; `above` and `more` are as `parts.figure` has them."""
    return parts.figure(caption, drawn, *above, around="wide timeline", hint=HINT, config=CONFIG, **more)


def store(graph: str) -> dcc.Store:
    """The store of a graph's visible range."""
    return dcc.Store(id=f"{graph}-seen")


def connect(app: Dash, here: Here, base: str, graph: str, query: str) -> None:
    """A zoom into this graph draws the timeline of the query in that store for what is seen; `base` is the scenario of
    a query that names none.
    """
    app.clientside_callback(
        ClientsideFunction("zoom", "one"),
        Output(f"{graph}-seen", "data"),
        Input(graph, "relayoutData"),
        prevent_initial_call=True,
    )

    @app.callback(Output(graph, "figure"), Input(f"{graph}-seen", "data"), State(query, "data"),
                  prevent_initial_call=True)  # fmt: skip
    def redraw(told: Any, asked: str | None) -> Any:
        if asked is None or not isinstance(told, dict):
            return no_update
        prediction = here.answers.predict(parse_query(asked, base))
        window = window_of(told.get("seen"), prediction.timeline.makespan_s or 1.0)
        if window is None:
            return no_update
        drawn = draw(prediction, window)
        if told.get("path") is True:
            drawn.update_traces(visible=True, selector={"uid": CRITICAL_PATH})
        return patch(drawn)


def draw(prediction: Any, window: Window) -> "go.Figure":
    """The timeline of a prediction for what is seen of it."""
    kind, timeline, grid = prediction.report.kind, prediction.timeline, prediction.grid
    return draw_timeline(kind, timeline, grid, window_s=window, most_spans=MOST_SPANS)


def window_of(seen: Seen, whole_s: float) -> Window | None:
    """Which seconds are seen; None where a browser says no such thing."""
    if seen == "all":
        return Window(0.0, whole_s)
    if not isinstance(seen, list) or len(seen) != 2:
        return None
    try:
        begin, end = sorted(second_of(end) if isinstance(end, str) else float(end) for end in seen)
    except (TypeError, ValueError):
        return None
    return Window(begin, end) if end > begin else None


def patch(figure: "go.Figure") -> Patch:
    """The bars of a figure, its window and its subtitle, for one that is drawn already."""
    changed = Patch()
    changed["data"] = figure.data
    changed["layout"]["xaxis"]["range"] = figure.layout.xaxis.range
    changed["layout"]["xaxis"]["autorange"] = False
    changed["layout"]["title"]["subtitle"]["text"] = figure.layout.title.subtitle.text
    return changed
