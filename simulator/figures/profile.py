"""Figures about a Profile: errors by band of sizes, and what it predicts over size, inside and beyond the measured.

Both are pure functions from tables; what stands in them is decided in `calibrate.report`.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from .theme import GRID, colours, styled

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

ROW_PX, PANEL_PX, GAP_PX, NAME_PX, COLUMNS = 17, 300, 84, 24, 2
DARK, LIGHT, MARK = "#0072B2", "rgba(86,180,233,0.55)", "#D55E00"
LEGEND_ROW_PX, NARROW_PX = 20, 800
FAINT = 0.65
GREY = "#8C8C8C"


class Axis(NamedTuple):
    """What an axis shows; `unit` is written behind numbers with SI prefixes, `binary` puts ticks at KiB, MiB, ..."""

    title: str
    unit: str = ""
    log: bool = True
    binary: bool = False


_BARS = (("p90 of |error|", "p90", 0.8, LIGHT), ("median of |error|", "median", 0.4, DARK))


def residual_bands(table: "pd.DataFrame", title: str) -> "go.Figure":
    """Errors of each band of sizes as bars: median in p90, with bias and the 90 % interval that predictions state.

    The table has a row per band, those of a model together: `model`, `band`, `rows`, and as fractions `median`, `p90`,
    `bias` and `reach` (of the interval).
    """
    import plotly.graph_objects as go

    places, ticks = _places(table)
    figure = go.Figure([*_error_bars(table, places), *_error_marks(table, places)])
    bottom = max(places, default=0) + 0.7
    subtitle = "held out from the fit; rows in brackets; the tick is the 90 % interval that predictions state"
    styled(figure, title, subtitle, ROW_PX * (bottom + 0.7), barmode="overlay")
    figure.update_xaxes(title="error", ticksuffix="", tickformat=".0%", zeroline=True, zerolinecolor=GREY)
    figure.update_yaxes(
        tickvals=list(ticks),
        ticktext=list(ticks.values()),
        range=[bottom, -0.7],
        showgrid=False,
        zeroline=False,
        automargin="left",
        fixedrange=True,
    )
    return figure


def _places(table: "pd.DataFrame") -> tuple[list[int], dict[int, str]]:
    """Where each band goes, below the name of its model, and what stands at the left."""
    places: list[int] = []
    ticks: dict[int, str] = {}
    for model, rows in table.groupby("model", sort=False):
        ticks[len(ticks)] = f"<b>{escape(str(model), quote=False)}</b>"
        for band, count in zip(rows["band"], rows["rows"], strict=True):
            places.append(len(ticks))
            ticks[len(ticks)] = f"{band} ({count:,})"
    return places, ticks


def _error_bars(table: "pd.DataFrame", places: Sequence[int]) -> "list[go.Bar]":
    import plotly.graph_objects as go

    return [
        go.Bar(orientation="h", name=name, x=list(table[column]), y=places, width=width, marker_color=colour,
               marker_line_width=0, hovertemplate=f"{name} %{{x:.1%}}<extra></extra>")
        for name, column, width, colour in _BARS
    ]  # fmt: skip


def _error_marks(table: "pd.DataFrame", places: Sequence[int]) -> "list[go.Scatter]":
    import plotly.graph_objects as go

    bias = {"symbol": "diamond", "size": 7, "color": MARK}
    reach = {"symbol": "line-ns", "size": 11, "line": {"width": 2, "color": GREY}}
    return [
        go.Scatter(mode="markers", name=name, x=list(table[column]), y=places, marker=marker,
                   hovertemplate=f"{name} %{{x:.1%}}<extra></extra>")
        for name, column, marker in (("bias (median error)", "bias", bias), ("stated 90 % interval", "reach", reach))
    ]  # fmt: skip


def predicted_lines(
    table: "pd.DataFrame", title: str, subtitle: str, x: Axis, y: Axis, columns: int = COLUMNS
) -> "go.Figure":
    """A panel per `panel` with a line per `line`: `y` over `x` (logarithmic), in a band from `low` to `high`.

    Where `outside` is true the line is dashed and faint: it lies beyond what was measured.
    """
    panels = list(dict.fromkeys(table["panel"]))
    figure, height_px = panel_grid([escape(panel, quote=False) for panel in panels], columns)
    colour = colours(dict.fromkeys(table["line"]))
    for i, panel in enumerate(panels):
        where = {"row": i // columns + 1, "col": i % columns + 1}
        rows = table[table["panel"] == panel]
        for name in dict.fromkeys(rows["line"]):
            said = escape(str(name), quote=False)
            figure.add_traces(_line(rows[rows["line"] == name], said, colour[name]), **_each(where, 3))
        figure.update_xaxes(
            **ticks_of(x, rows["x"]), range=[math.log10(rows["x"].min()), math.log10(rows["x"].max())], **where
        )
        figure.update_yaxes(**ticks_of(y, rows["y"]), range=_span(rows["y"], y), **where)
    _one_legend(figure, outside=bool(table["outside"].any()))
    finish_grid(figure, title, subtitle, height_px)
    return figure


def _each(where: Mapping[str, int], count: int) -> dict[str, Any]:
    return {f"{key}s": [value] * count for key, value in where.items()}


def _line(rows: "pd.DataFrame", name: str, colour: str) -> "list[go.Scatter]":
    """The band, the part inside what was measured, and the parts beyond."""
    import plotly.graph_objects as go

    outside = rows["outside"].to_numpy(bool)
    beyond = outside.copy()
    beyond[1:] |= outside[:-1]  # one point further, to join the part inside
    beyond[:-1] |= outside[1:]
    common: dict[str, Any] = {"name": name, "legendgroup": name, "showlegend": False}
    inside = "lines" if (~outside).sum() > 2 else "lines+markers"  # a single point is no line
    hover = f"{name}<br>%{{x:.4s}}: %{{y:.4s}} (%{{customdata[0]:.4s}} to %{{customdata[1]:.4s}})"
    spans = rows[["low", "high"]].to_numpy()
    edge = {"x": [*rows["x"], *rows["x"][::-1]], "y": [*rows["high"], *rows["low"][::-1]]}
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    fill = f"rgba({red},{green},{blue},0.13)"
    return [
        go.Scatter(**edge, **common, mode="lines", line_width=0, fill="toself", fillcolor=fill, hoverinfo="skip"),
        go.Scatter(**common, x=rows["x"], y=rows["y"].where(~outside), mode=inside, customdata=spans,
                   line={"color": colour, "width": 2}, hovertemplate=f"{hover}<extra></extra>"),
        go.Scatter(**common, x=rows["x"], y=rows["y"].where(beyond), mode="lines", customdata=spans, opacity=FAINT,
                   line={"color": colour, "width": 1.5, "dash": "5px,4px"},
                   hovertemplate=f"{hover}<br>extrapolated<extra></extra>"),
    ]  # fmt: skip


def _one_legend(figure: "go.Figure", outside: bool) -> None:
    """Each line once in the legend, in full colour, and what dashes mean."""
    import plotly.graph_objects as go

    named = {trace.name: trace.line.color for trace in figure.data if trace.line.color}
    for name, colour in named.items():
        figure.add_trace(go.Scatter(x=[None], y=[None], mode="lines", name=name, legendgroup=name, line_color=colour))
    if outside:
        dashed = {"color": GREY, "dash": "5px,4px", "width": 1.5}
        figure.add_trace(go.Scatter(x=[None], y=[None], mode="lines", name="extrapolated", line=dashed))


def panel_grid(names: Sequence[str], columns: int) -> "tuple[go.Figure, float]":
    """Empty panels with their names, left to right, and how high they are together."""
    from plotly.subplots import make_subplots

    rows = max(math.ceil(len(names) / columns), 1)
    height_px = rows * PANEL_PX + (rows - 1) * GAP_PX
    gap = GAP_PX / height_px if rows > 1 else 0
    figure = make_subplots(rows, columns, subplot_titles=names, vertical_spacing=gap, horizontal_spacing=0.09)
    figure.update_annotations(font_size=13, yshift=2)
    if len(names) % columns:
        for column in range(len(names) % columns + 1, columns + 1):
            figure.update_xaxes(visible=False, row=rows, col=column)
            figure.update_yaxes(visible=False, row=rows, col=column)
    return figure, height_px


def finish_grid(figure: "go.Figure", title: str, subtitle: str, height_px: float) -> None:
    """Titles, fonts and margins as in all figures, the legend above the names of the panels."""
    axes = {axis: figure.layout[axis].title.text for axis in figure.layout if axis.startswith("xaxis")}
    suffixes = {axis: figure.layout[axis].ticksuffix for axis in axes}
    styled(figure, title, subtitle, height_px)
    for axis, text in axes.items():
        figure.layout[axis].update(title_text=text or "", ticksuffix=suffixes[axis] or "")
    figure.update_yaxes(gridcolor=GRID, zeroline=False, automargin="left")
    more_px = NAME_PX + LEGEND_ROW_PX * (_legend_rows(figure) - 1)
    figure.update_layout(
        margin_t=figure.layout.margin.t + more_px,
        margin_l=70,
        legend_itemsizing="constant",
        height=figure.layout.height + more_px,
        legend_y=1 + (NAME_PX + 6) / height_px,
    )


def _legend_rows(figure: "go.Figure") -> int:
    """How many rows the legend takes on a narrow page, so that it never covers the subtitle."""
    rows, right_px = 1, 0
    for trace in figure.data:
        if trace.showlegend is not False:
            entry_px = 50 + 7 * len(trace.name)
            rows, right_px = (rows, right_px + entry_px) if right_px + entry_px <= NARROW_PX else (rows + 1, entry_px)
    return rows


def ticks_of(axis: Axis, values: "pd.Series[float]") -> dict[str, Any]:
    """How a plotly axis shows this."""
    known: dict[str, Any] = {"title": {"text": axis.title, "standoff": 6}, "type": "log" if axis.log else "linear"}
    if axis.binary:
        exponents = _every_third(math.log2(values.min()), math.log2(values.max()))
        text = [f"{2 ** (e % 10)} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[e // 10]}" for e in exponents]
        return {**known, "tickvals": [2.0**e for e in exponents], "ticktext": text}
    if axis.unit == "%":
        return {**known, "tickformat": ".0%"}
    if axis.log:
        ticks = _log_ticks(values)
        return {**known, "tickvals": ticks, "ticktext": [_si(value, axis.unit) for value in ticks]}
    return {**known, "exponentformat": "SI", "ticksuffix": axis.unit}


def _every_third(low: float, high: float) -> list[int]:
    """Exponents of 2 for some seven ticks, at even steps of 5 or 10 where the range is wide."""
    step = next(step for step in (1, 2, 5, 10, 20) if (high - low) / step <= 7 or step == 20)
    first = max(math.ceil(low / step), 0) * step
    return [e for e in range(first, math.floor(high) + 1, step) if e < 50]


def _log_ticks(values: "pd.Series[float]") -> list[float]:
    """Powers of ten, at most some seven of them; where they are few, 2 and 5 times them too."""
    low, high = math.log10(values.min()), math.log10(values.max())
    step = max(math.ceil((high - low) / 7), 1)
    first = math.floor(low / step) * step
    between = (1.0, 2.0, 5.0) if high - low < 1.5 else (1.0,)
    return [float(f"{m}e{e}") for e in range(first, math.ceil(high) + 1, step) for m in between]


def _si(value: float, unit: str) -> str:
    """A round number with its prefix: `20 GB/s`; a mere count in full."""
    if not unit and value >= 1:
        return f"{value:,.0f}"
    power = min(max(math.floor(math.log10(value) / 3 + 1e-9), -3), 5)
    return f"{value / 10.0 ** (3 * power):g} {'nµm kMGTP'[power + 3].strip()}{unit}".strip()


def _span(values: "pd.Series[float]", axis: Axis) -> list[float]:
    """The lines fill the panel; a band that gets very wide far outside is cut off."""
    if axis.log:
        return [math.log10(values.min()) - 0.2, math.log10(values.max()) + 0.2]
    return [0.0, max(1.05, 1.1 * float(values.max())) if axis.unit == "%" else 1.2 * float(values.max())]
