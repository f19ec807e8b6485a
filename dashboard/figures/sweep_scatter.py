"""Points of a sweep in two of its columns, coloured by a third, with the Pareto front of those that can be run."""

from typing import TYPE_CHECKING, Any

from ...simulator.figures.theme import PALETTE
from .sweep_columns import (
    GREY,
    SCALE,
    aim,
    axes,
    by_name,
    hover,
    laid_out,
    more_is_better,
    numeric,
    ordered,
    said,
    usable,
    words,
)

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

_ENTRY_PX = 20
"""Of the legend above: names that are long stand below each other."""


def front(frame: "pd.DataFrame", x: str, y: str) -> "pd.DataFrame":
    """The points that can be run of which no other is as good in both columns and better in one, by x.

    Of points with the same two values all are kept. Which way is better is the columns' own (`more_is_better`).
    """
    points = usable(frame).dropna(subset=[x, y])
    ways = [not more_is_better(x), not more_is_better(y)]
    best = float("inf")
    kept: list[Any] = []
    sign = 1 if ways[1] else -1
    for _, group in points.sort_values([x, y], ascending=ways).groupby(x, sort=False):
        lowest = sign * group[y].iloc[0]
        if lowest < best:
            best = lowest
            kept.extend(group.index[group[y] == group[y].iloc[0]])
    return points.loc[kept].sort_values([x, y], kind="stable")


def scatter(frame: "pd.DataFrame", x: str, y: str, colour: str, all_points: bool = True) -> "go.Figure":
    """A figure whose points carry their numbers as `customdata`; crosses cannot be run, and can be left out."""
    import plotly.graph_objects as go

    told = [*axes(frame), x, y, colour]
    points = frame.dropna(subset=[x, y])
    figure = go.Figure()
    if all_points:
        for status, group in points[points["status"] != "ok"].groupby("status", sort=True):
            marker = {"symbol": "x-thin-open", "size": 9, "color": GREY, "line": {"width": 1.5}}
            figure.add_trace(_points(group, x, y, told, said("", words(str(status))), marker))
    _usable(figure, usable(points), x, y, colour, told)
    if x != y and {x, y} <= set(numeric(frame)):
        best = front(frame, x, y)
        line = {"color": "#D55E00", "width": 1.5, "dash": "dot"}
        name = f"Pareto front: {aim(x)}, {aim(y)}"
        figure.add_trace(go.Scatter(x=best[x], y=best[y], mode="lines", line=line, name=name, hoverinfo="skip"))
    laid_out(figure, 380 + _ENTRY_PX * len(figure.data), clickmode="event")
    for update, column in ((figure.update_xaxes, x), (figure.update_yaxes, y)):
        update(title={"text": said("", column)}, exponentformat="SI")
        if column not in numeric(frame):
            update(type="category", categoryarray=[said("", value) for value in ordered(frame[column].astype(str))])
    return figure


def _usable(figure: "go.Figure", points: "pd.DataFrame", x: str, y: str, colour: str, told: list[str]) -> None:
    """One trace with a scale of numbers, or one for each text."""
    if not by_name(points, colour):
        scale = {"colorscale": SCALE, "color": points[colour], "colorbar": {"title": {"text": said("", colour)}}}
        marker = {"size": 9, "line": {"width": 0.5, "color": GREY}, **scale}
        figure.add_trace(_points(points, x, y, told, words("ok"), marker))
        return
    for place, value in enumerate(ordered(points[colour])):
        marker = {"size": 9, "color": PALETTE[place % len(PALETTE)]}
        named = f"{said('', colour)} {said('', value)}" if colour in numeric(points) else said("", value)
        figure.add_trace(_points(points[points[colour] == value], x, y, told, named, marker))


def _points(points: "pd.DataFrame", x: str, y: str, told: list[str], name: str, marker: dict[str, Any]) -> "go.Scatter":
    import plotly.graph_objects as go

    return go.Scatter(
        x=_plotted(points[x]), y=_plotted(points[y]), mode="markers", name=name, marker=marker,
        customdata=points["point"].tolist(), hovertext=hover(points, told), hoverinfo="text",
    )  # fmt: skip


def _plotted(values: "pd.Series[Any]") -> list[Any]:
    """Numbers as they are, all else as text that is not HTML."""
    return values.tolist() if values.dtype.kind in "iuf" else [said("", str(value)) for value in values]
