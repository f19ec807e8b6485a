"""Timelines that are drawn anew for what is seen of them: what is short is told apart there, and joined elsewhere."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dash import Dash, Input, Output, Patch, State, no_update

from ..simulator.figures.actions import Window
from ..simulator.predict import AnyPrediction
from .page import Here
from .question import from_query

if TYPE_CHECKING:
    import plotly.graph_objects as go

Draw = Callable[[AnyPrediction, Window], "go.Figure"]


def connect(app: Dash, here: Here, base: str, graph: str, store: str, draw: Draw) -> None:
    """A zoom into this graph draws the prediction of the query in the store for what is seen; `base` is the scenario of
    a query that names none.
    """

    @app.callback(
        Output(graph, "figure"), Input(graph, "relayoutData"), State(store, "data"), prevent_initial_call=True
    )
    def zoom(moved: Mapping[str, Any] | None, query: str | None) -> Any:
        if query is None or window_of(moved, 0.0) is None:
            return no_update
        prediction = here.answers.predict(from_query(query, base))
        window = window_of(moved, prediction.timeline.makespan_s or 1.0)
        assert window is not None
        return nearer(draw(prediction, window))


def window_of(moved: Mapping[str, Any] | None, whole_s: float) -> Window | None:
    """Which seconds are seen after a zoom, as plotly tells it; None where it tells something else."""
    if not moved:
        return None
    if moved.get("xaxis.autorange"):
        return Window(0.0, whole_s)
    ends = moved.get("xaxis.range") or [moved.get("xaxis.range[0]"), moved.get("xaxis.range[1]")]
    if len(ends) != 2 or not all(isinstance(end, int | float) for end in ends):
        return None
    begin, end = sorted(map(float, ends))
    return Window(begin, end) if end > begin else None


def nearer(figure: "go.Figure") -> Patch:
    """The bars of a figure, its window and its subtitle, for one that is drawn already."""
    changed = Patch()
    changed["data"] = figure.data
    changed["layout"]["xaxis"]["range"] = figure.layout.xaxis.range
    changed["layout"]["title"]["subtitle"]["text"] = figure.layout.title.subtitle.text
    return changed
