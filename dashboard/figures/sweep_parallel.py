"""Parallel coordinates: a line for each point of a sweep that can be run, across several of its columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .sweep_columns import GREY, SCALE, by_name, drawn, laid_out, numeric, ordered, said, ticks, usable

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

_SIDE_PX, _MOST_LEFT_PX, _LETTER_PX = 72, 220, 7
"""Room beside the axes: the names of the first one stand left of it."""


def parallel(frame: "pd.DataFrame", columns: Sequence[str], colour: str) -> "go.Figure":
    """Lines over these columns, texts in order of appearance; numbers of `colour` colour them, texts by their order."""
    import plotly.graph_objects as go

    points = usable(frame).dropna(subset=[name for name in columns if name in numeric(frame)])
    shade = _dimension(points, colour)
    scale: dict[str, Any] = {"color": shade["values"], "colorscale": SCALE} if len(points) else {"color": GREY}
    if colour in numeric(points):
        scale |= {"showscale": True, "colorbar": {"title": {"text": shade["label"]}, **ticks(colour)}}
    lines = go.Parcoords(
        dimensions=[_dimension(points, name) for name in dict.fromkeys(columns)],
        line=scale,
        labelside="top",
        tickfont={"size": 11},
        rangefont={"size": 1, "color": "rgba(0,0,0,0)"},
    )
    figure = laid_out(go.Figure(lines), 420)
    first = lines.dimensions[0].ticktext if lines.dimensions else None
    left_px = min(_MOST_LEFT_PX, max(_SIDE_PX, *(_LETTER_PX * len(text) for text in first))) if first else _SIDE_PX
    return figure.update_layout(margin={"t": 64, "b": 24, "l": left_px, "r": _SIDE_PX})


def _dimension(points: "pd.DataFrame", name: str) -> dict[str, Any]:
    values, label = drawn(name, points[name])
    if name in numeric(points):
        named = {"tickvals": sorted(set(values))} if by_name(points, name) else {}
        return {"label": label, "values": values, **named}
    texts = points[name].fillna("").astype(str)
    known = ordered(texts)
    return {
        "label": label,
        "values": [known.index(text) for text in texts],
        "tickvals": list(range(len(known))),
        "ticktext": [said("", text) or "as is" for text in known],
    }
