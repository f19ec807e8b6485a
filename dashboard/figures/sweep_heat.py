"""A value of a sweep's points over two of its axes; where several points share a cell, the best of them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .sweep_columns import INK, SCALE, aim, drawn, laid_out, more_is_better, ordered, said, ticks, usable

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

MOST_TEXT = 48
"""Characters that cells beside each other have room for; what is longer is told under the mouse alone."""
MOST_TICKS = 32
"""Values that an axis names; of more, one in so many."""


def cells(frame: "pd.DataFrame", across: str, up: str, value: str) -> "pd.DataFrame":
    """For each pair of values of two columns the point with the best value among those that can be run.

    Columns `across`, `up`, `point`, `value`, and `of`: how many points that can be run share the cell.
    """
    points = usable(frame).dropna(subset=[across, up, value])
    table = points.assign(across=points[across], up=points[up], value=points[value])
    best = table.sort_values("value", ascending=not more_is_better(value), kind="stable")
    first = best.groupby(["across", "up"], sort=False).first().reset_index()
    counts = table.groupby(["across", "up"], sort=False).size().to_dict()
    of = [counts[row.across, row.up] for row in first.itertuples()]
    return first.assign(of=of)[["across", "up", "point", "value", "of"]]


def heat(frame: "pd.DataFrame", across: str, up: str, value: str) -> "go.Figure":
    """A cell for each pair of values, blank where no point can be run; `customdata` are numbers of points."""
    import plotly.graph_objects as go

    columns, rows = ordered(frame[across]), ordered(frame[up])
    best = cells(frame, across, up, value)
    shades, title = drawn(value, best["value"])
    found = {(row.across, row.up): row for row in best.assign(shade=shades).itertuples()}
    grid = [[found.get((column, row)) for column in columns] for row in rows]
    text = [["" if cell is None else said(value, cell.value) for cell in line] for line in grid]
    across_text, up_text = [said(across, name) for name in columns], [said(up, name) for name in rows]
    fits = len(columns) * max((len(one) for line in text for one in line), default=0) <= MOST_TEXT
    trace = go.Heatmap(
        z=[[None if cell is None else cell.shade for cell in line] for line in grid],
        customdata=[[None if cell is None else cell.point for cell in line] for line in grid],
        text=text if fits else None,
        texttemplate="%{text}" if fits else None,
        textfont={"color": INK},
        hovertext=[
            [f"{column}, {row}<br>{_told(cell, value)}" for column, cell in zip(across_text, line, strict=True)]
            for row, line in zip(up_text, grid, strict=True)
        ],
        hoverinfo="text",
        colorscale=SCALE,
        xgap=2,
        ygap=2,
        colorbar={"title": {"text": aim(value, title)}, **ticks(value)},
    )
    figure = laid_out(go.Figure(trace), 120 + max(240, 40 * len(rows)))
    figure.update_xaxes(title={"text": said("", across)}, showgrid=False, **_ticks(across_text))
    figure.update_yaxes(title={"text": said("", up)}, showgrid=False, **_ticks(up_text))
    return figure


def _ticks(texts: Sequence[str]) -> dict[str, Any]:
    """Values by their places: two that differ may have the same text."""
    step = max(1, -(-len(texts) // MOST_TICKS))
    return {"tickvals": list(range(0, len(texts), step)), "ticktext": texts[::step]}


def _told(cell: Any, value: str) -> str:
    if cell is None:
        return "no point can be run"
    best = f", the best of {cell.of}" if cell.of > 1 else ""
    return f"{said('', value)} = {said(value, cell.value)}<br>point {cell.point}{best}"
