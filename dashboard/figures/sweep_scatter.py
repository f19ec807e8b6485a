"""Points of a sweep in two of its columns, coloured by a third, with the Pareto front of those that can be run."""

from typing import TYPE_CHECKING, Any

from ...simulator.figures.theme import PALETTE
from .sweep_columns import (
    GREY,
    SCALE,
    aim,
    by_name,
    drawn,
    hover,
    laid_out,
    more_is_better,
    numeric,
    ordered,
    said,
    ticks,
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
    import pandas as pd
    import plotly.graph_objects as go

    points = frame.dropna(subset=[x, y])
    points = points if all_points else usable(points)
    (across, x_title), (up, y_title) = drawn(x, points[x]), drawn(y, points[y])
    of = {"point": points["point"], "status": points["status"], "colour": points[colour]}
    dots = pd.DataFrame({**of, "x": across, "y": up, "told": hover(points, x, y, colour)}, index=points.index)
    figure = go.Figure()
    for status, group in dots[dots["status"] != "ok"].groupby("status", sort=True):
        marker = {"symbol": "x-thin-open", "size": 9, "color": GREY, "line": {"width": 1.5}}
        figure.add_trace(_marked(group, said("", words(str(status))), marker))
    _usable(figure, usable(dots), colour, by_name(frame, colour))
    if x != y and {x, y} <= set(numeric(frame)):
        best = dots.loc[front(frame, x, y).index]
        line = {"color": "#D55E00", "width": 1.5, "dash": "dot"}
        name = f"Pareto front: {aim(x)}, {aim(y)}"
        figure.add_trace(go.Scatter(x=best["x"], y=best["y"], mode="lines", line=line, name=name, hoverinfo="skip"))
    laid_out(figure, 380 + _ENTRY_PX * len(figure.data), clickmode="event")
    for update, column, title in ((figure.update_xaxes, x, x_title), (figure.update_yaxes, y, y_title)):
        update(title={"text": title}, **ticks(column))
        if column not in numeric(frame):
            update(type="category", categoryarray=[said("", value) for value in ordered(frame[column].astype(str))])
    return figure


def _usable(figure: "go.Figure", dots: "pd.DataFrame", colour: str, by_name: bool) -> None:
    """One trace with a scale of numbers, or one for each text."""
    if not by_name:
        shades, title = drawn(colour, dots["colour"])
        scale = {"color": shades, "colorscale": SCALE, "colorbar": {"title": {"text": title}, **ticks(colour)}}
        marker = {"size": 9, "line": {"width": 0.5, "color": GREY}, **scale}
        figure.add_trace(_marked(dots, words("ok"), marker))
        return
    for place, value in enumerate(ordered(dots["colour"])):
        marker = {"size": 9, "color": PALETTE[place % len(PALETTE)]}
        called = f"{said('', colour)} {said(colour, value)}" if dots["colour"].dtype.kind in "iuf" else said("", value)
        figure.add_trace(_marked(dots[dots["colour"] == value], called, marker))


def _marked(dots: "pd.DataFrame", name: str, marker: dict[str, Any]) -> "go.Scatter":
    import plotly.graph_objects as go

    return go.Scatter(
        x=dots["x"].tolist(), y=dots["y"].tolist(), mode="markers", name=name, marker=marker,
        customdata=dots["point"].tolist(), hovertext=dots["told"].tolist(), hoverinfo="text",
    )  # fmt: skip
