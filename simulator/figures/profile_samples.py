"""Samples beside what a Profile predicts of them: predicted over measured, and error over size."""

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from .profile import GREY, Axis, finish_grid, panel_grid, ticks_of
from .theme import colours

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

MOST_POINTS = 2000
IN_SAMPLE = "in-sample"


def scored_samples(table: "pd.DataFrame", title: str, subtitle: str, size: Axis) -> "go.Figure":
    """Left predicted over measured seconds with lines at equality and ±10 %, right the error over size.

    The table has a row per sample: `library`, `measured_s`, `predicted_s`, `size`, `text` and `seen`, which is
    `IN_SAMPLE` or says otherwise. Points are coloured by library, filled where they are in-sample, else open, and
    thinned to `MOST_POINTS` of each kind.
    """
    figure, height_px = panel_grid(["predicted over measured", "error over size"], 2)
    shown = {key: thinned(rows) for key, rows in table.groupby(["library", "seen"], sort=False)}
    colour = colours(dict.fromkeys(table["library"].astype(str)))
    for (library, seen), rows in shown.items():
        left, right = _points(rows, escape(f"{library}, {seen}", quote=False), seen == IN_SAMPLE, colour[str(library)])
        figure.add_trace(left, row=1, col=1)
        figure.add_trace(right, row=1, col=2)
    _guides(figure, table)
    _axes(figure, table, size)
    drawn = sum(map(len, shown.values()))
    few = f"{drawn:,} of {len(table):,} samples drawn" if drawn < len(table) else f"{len(table):,} samples"
    finish_grid(figure, title, f"{subtitle}; {few}", height_px)
    return figure


def thinned(rows: "pd.DataFrame", most: int = MOST_POINTS) -> "pd.DataFrame":
    """At most so many of the rows, chosen by a seeded draw, in their order."""
    if len(rows) <= most:
        return rows
    chosen = np.random.default_rng(0).choice(len(rows), most, replace=False)
    return rows.iloc[np.sort(chosen)]


def _points(rows: "pd.DataFrame", name: str, filled: bool, colour: str) -> "tuple[go.Scatter, go.Scatter]":
    import plotly.graph_objects as go

    error = rows["predicted_s"] / rows["measured_s"] - 1
    common: dict[str, Any] = {
        "mode": "markers",
        "name": name,
        "legendgroup": name,
        "marker": {"color": colour, "size": 4, "opacity": 0.6, "symbol": "circle" if filled else "circle-open"},
        "hovertext": rows["text"],
        "hoverinfo": "text",
    }
    left = go.Scatter(x=_short(rows["measured_s"]), y=_short(rows["predicted_s"]), **common)
    return left, go.Scatter(x=_short(rows["size"]), y=_short(error), showlegend=False, **common)


def _short(values: "pd.Series[float]") -> list[float]:
    """Four digits, as more cannot be seen."""
    return [float(f"{value:.4g}") for value in values]


def _guides(figure: "go.Figure", table: "pd.DataFrame") -> None:
    """Where predicted equals measured, and where it is 10 % off."""
    import plotly.graph_objects as go

    both = table[["measured_s", "predicted_s"]]
    ends = [float(both.min().min()), float(both.max().max())]
    sizes = [float(table["size"].min()), float(table["size"].max())]
    for off, dash, name in ((0.0, "solid", "equal"), (0.1, "dot", "±10 %"), (-0.1, "dot", "±10 %")):
        line = {"color": GREY, "width": 1.2, "dash": dash}
        kept = {"mode": "lines", "line": line, "legendgroup": name, "name": name, "hoverinfo": "skip"}
        figure.add_trace(go.Scatter(x=ends, y=[e * (1 + off) for e in ends], showlegend=off >= 0, **kept), row=1, col=1)
        figure.add_trace(go.Scatter(x=sizes, y=[off, off], showlegend=False, **kept), row=1, col=2)


def _axes(figure: "go.Figure", table: "pd.DataFrame", size: Axis) -> None:
    error = table["predicted_s"] / table["measured_s"] - 1
    reach = min(max(float(error.abs().quantile(0.99)) * 1.15, 0.15), 4.0)
    figure.update_xaxes(**ticks_of(Axis("measured", "s"), table["measured_s"]), row=1, col=1)
    figure.update_yaxes(**ticks_of(Axis("predicted", "s"), table["predicted_s"]), row=1, col=1)
    figure.update_xaxes(**ticks_of(size, table["size"]), row=1, col=2)
    figure.update_yaxes(
        **ticks_of(Axis("error", "%", log=False), error), range=[max(-reach, -1.05), reach], row=1, col=2
    )
