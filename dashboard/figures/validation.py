"""Predicted over measured, row by row of a ledger, on logarithmic axes; and how often intervals hold."""

from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from ...simulator.base.units import format_seconds
from ...simulator.figures.profile import Axis, ticks_of
from ...simulator.figures.theme import BLUE, GREY, GRID, PALETTE, RED, ROWS, bars, digits, plain, style

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

PLOT_PX = 460
OFF = (0.25, 0.1)
"""Half the widths of the bands around equality, as shares of what was measured; the wider one below."""
_SYMBOLS = ("circle", "diamond", "square", "triangle-up")


def scatter(rows: "pd.DataFrame", family: str) -> "go.Figure":
    """Points coloured by a column, those of the largest group first, with the line of equality and its bands.

    The table has a row per scored row: `id`, `model`, `gpus`, `stack`, `measured_s`, `predicted_s`, `error`, and the
    column of the family.
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    seconds = rows[["measured_s", "predicted_s"]].to_numpy(float)
    ends = np.array([seconds.min(), seconds.max()])
    for off in OFF:
        edge = {"x": [*ends, *ends[::-1]], "y": [*(ends * (1 - off)), *(ends[::-1] * (1 + off))]}
        figure.add_scatter(**edge, fill="toself", fillcolor=GRID, mode="none", name=f"±{off:.0%}", hoverinfo="skip")
    line = {"color": GREY, "width": 1.2}
    figure.add_scatter(x=ends, y=ends, mode="lines", line=line, name="equal", hoverinfo="skip")
    names = rows.groupby(family).size().sort_values(ascending=False, kind="stable").index
    looks = cycle({"color": colour, "symbol": symbol} for symbol in _SYMBOLS for colour in PALETTE)
    for name, look in zip(names, looks, strict=False):
        own = rows[rows[family] == name]
        figure.add_scatter(
            x=digits(own["measured_s"]), y=digits(own["predicted_s"]), mode="markers",
            name=f"{plain(str(name))} ({len(own):,})", marker={"size": 6, "opacity": 0.7, **look},
            hovertext=[_hover(row) for row in own.to_dict("records")], hoverinfo="text",
        )  # fmt: skip
    style(figure, "", "", PLOT_PX)
    figure.update_xaxes(**ticks_of(Axis("measured", "s"), rows["measured_s"]))
    figure.update_yaxes(**ticks_of(Axis("predicted", "s"), rows["predicted_s"]))
    legend = {"orientation": "v", "x": 1.01, "y": 1, "yanchor": "top"}
    margin = {"l": 70, "t": 16}
    return figure.update_layout(legend=legend, margin=margin, height=PLOT_PX + 80, hovermode="closest")


def _hover(row: Any) -> str:
    said = f"{row['id']}\n{row['model']} on {row['gpus']} x {row['gpu']}, {row['stack']}"
    seconds = f"measured {format_seconds(row['measured_s'])}, predicted {format_seconds(row['predicted_s'])}"
    return f"{plain(said)}\n{seconds} ({row['error']:+.1%})".replace("\n", "<br>")


ROW_PX = 24
TIMES = (0.1, 0.2, 0.5, 1, 2, 5, 10)


def ratios(rows: "pd.DataFrame", family: str) -> "go.Figure":
    """A line of points per part of a family: predicted over measured, where rows have units of their own.

    The table has `id`, `where`, `metric`, `ratio`, `error`, and as text `measured` and `predicted`.
    """
    import plotly.graph_objects as go

    names = rows.groupby(family)["ratio"].size().sort_values(kind="stable").index
    figure = go.Figure()
    for off in OFF:
        figure.add_vrect(1 - off, 1 + off, fillcolor=GRID, opacity=0.6, line_width=0, layer="below")
    figure.add_vline(1, line={"color": GREY, "width": 1.2})
    figure.add_scatter(
        x=digits(rows["ratio"]), y=[plain(str(name)) for name in rows[family]], mode="markers",
        marker={"size": 8, "opacity": 0.6, "color": BLUE}, hoverinfo="text",
        hovertext=[_hover_of_ratio(row) for row in rows.to_dict("records")],
    )  # fmt: skip
    height_px = ROW_PX * (len(names) + 1)
    style(figure, "", "", height_px, showlegend=False)
    title = {"text": "predicted over measured", "standoff": 6}
    figure.update_xaxes(title=title, type="log", tickvals=TIMES, ticktext=[f"{n:g}x" for n in TIMES])
    order = {"categoryorder": "array", "categoryarray": [plain(str(name)) for name in names]}
    figure.update_yaxes(**ROWS, **order, automargin="left")
    return figure.update_layout(margin={"t": 12}, height=height_px + 70, hovermode="closest")


def _hover_of_ratio(row: Any) -> str:
    said = f"{row['id']}\n{row['where']}\n{row['metric']}: measured {row['measured']}, predicted {row['predicted']}"
    return f"{plain(said)} ({row['error']:+.1%})".replace("\n", "<br>")


# How often 90 % intervals held what was measured, by family of rows.

AIM = 0.9
SURE, WRONG = BLUE, RED


def coverage_bars(table: "pd.DataFrame") -> "go.Figure":
    """A bar per part, with a line at 90 %; parts whose count cannot be chance are in another colour.

    The table has `name`, `held`, `held_of`, `verdict`; parts of which no interval is known are left out.
    """
    import plotly.graph_objects as go

    known = table[table["held_of"] > 0]
    counts = [f"{held:,} of {of:,}" for held, of in zip(known["held"], known["held_of"], strict=True)]
    text = [", ".join(filter(None, both)) for both in zip(counts, known["verdict"], strict=True)]
    colour = [WRONG if verdict else SURE for verdict in known["verdict"]]
    shares, names = (known["held"] / known["held_of"]).tolist(), [plain(str(name)) for name in known["name"]]
    figure = go.Figure(
        bars("", shares, names, colour, text=text, width=0.7, textposition="auto", insidetextanchor="start",
             hovertemplate="%{y}: %{x:.1%}, %{text}<extra></extra>")
    )  # fmt: skip
    height_px = ROW_PX * (len(known) + 1)
    style(figure, "", "", height_px, showlegend=False)
    figure.add_vline(AIM, line={"color": GREY, "width": 1.5, "dash": "dash"})
    figure.update_xaxes(title="rows whose 90 % interval holds the measurement", range=[0, 1.02], tickformat=".0%",
                        ticksuffix="")  # fmt: skip
    figure.update_yaxes(**ROWS, autorange="reversed", automargin="left")
    return figure.update_layout(margin={"t": 12}, height=height_px + 70)
