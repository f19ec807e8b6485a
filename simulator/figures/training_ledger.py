"""The ledger of training steps as one figure: predicted over measured seconds of every row."""

from itertools import cycle
from typing import TYPE_CHECKING, Any

from .page import png_browser
from .profile import GREY, Axis, ticks_of
from .theme import GRID, PALETTE, TITLE_PX, styled

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

WIDTH_PX, PLOT_PX = 1000, 620
OFF = 0.25
"""Half the width of the band, as a share of what was measured."""
_SYMBOLS = ("circle", "diamond", "square", "triangle-up")


def training_ledger(table: "pd.DataFrame", title: str, subtitle: str) -> "go.Figure":
    """Both axes logarithmic, with the line of equality in a band of ±25 %, and coloured by software stack.

    The table has a row per scored row: `stack`, `measured_s` and `predicted_s`.
    """
    import plotly.graph_objects as go

    stacks = table.groupby("stack", sort=False).size().sort_values(ascending=False, kind="stable").index
    points = [_points(table, str(of), look) for of, look in zip(stacks, _looks(), strict=False)]
    figure = go.Figure([*_guides(table), *points])
    styled(figure, title, subtitle, PLOT_PX)
    figure.update_xaxes(**ticks_of(Axis("measured", "s"), table["measured_s"]), ticksuffix="", gridcolor=GRID)
    figure.update_yaxes(**ticks_of(Axis("predicted", "s"), table["predicted_s"]), gridcolor=GRID, zeroline=False)
    legend = {"orientation": "v", "x": 1.01, "y": 1, "yanchor": "top"}
    figure.update_layout(legend=legend, margin={"l": 70, "t": TITLE_PX})
    return figure


def svg(figure: "go.Figure") -> bytes:
    """The figure as an SVG file on white, so that it reads on a dark page too.

    Raises:
        UserError: no Chromium or no kaleido is installed.
    """
    browser = png_browser()
    import kaleido

    opts = {"format": "svg", "width": WIDTH_PX, "height": figure.layout.height}
    white = type(figure)(figure).update_layout(paper_bgcolor="white", plot_bgcolor="white")
    drawn: bytes = kaleido.calc_fig_sync(white, opts=opts, kopts={"path": browser, "mathjax": False})
    return drawn


def _looks() -> "cycle[dict[str, Any]]":
    """Every colour with one symbol, then all again with the next."""
    return cycle([{"color": colour, "symbol": symbol} for symbol in _SYMBOLS for colour in PALETTE])


def _points(table: "pd.DataFrame", stack: str, look: dict[str, Any]) -> "go.Scatter":
    import plotly.graph_objects as go

    rows = table[table["stack"] == stack]
    columns = rows["measured_s"], rows["predicted_s"]
    measured, predicted = ([float(f"{value:.4g}") for value in seconds] for seconds in columns)
    marker = {"size": 5, "opacity": 0.7, **look}
    return go.Scatter(x=measured, y=predicted, mode="markers", name=f"{stack} ({len(rows):,})", marker=marker)


def _guides(table: "pd.DataFrame") -> "list[go.Scatter]":
    import plotly.graph_objects as go

    seconds = table[["measured_s", "predicted_s"]]
    ends = [float(seconds.min().min()), float(seconds.max().max())]
    low, high = ([end * (1 + off) for end in ends] for off in (-OFF, OFF))
    band = go.Scatter(x=ends + ends[::-1], y=low + high[::-1], fill="toself", fillcolor=GRID, mode="none",
                      name=f"±{OFF:.0%}", hoverinfo="skip")  # fmt: skip
    line = {"color": GREY, "width": 1.2}
    return [band, go.Scatter(x=ends, y=ends, mode="lines", line=line, name="equal", hoverinfo="skip")]
