"""Figures about a Profile: errors by band of sizes, predictions over size, samples beside those, factors of a stack.

All are pure functions from tables; what stands in them is decided in `calibrate.report`, or the page of profiles.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..profile import Z90, Parameter
from .theme import BLUE, GREY, RED, ROWS, bars, colours, digits, plain, rgb, style

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

ROW_PX, PANEL_PX, GAP_PX, NAME_PX, COLUMNS = 17, 300, 84, 24, 2
FACTOR_PX = 24  # a row of factors
FAINT = 0.65
DASHED = "5px,4px"
"""What lies beyond the measured range, of which `extrapolated` speaks."""


class Axis(NamedTuple):
    """An axis: `unit` follows numbers with SI prefixes, `binary` puts ticks at KiB, MiB, ..."""

    title: str
    unit: str = ""
    log: bool = True
    binary: bool = False


def residual_bands(table: "pd.DataFrame", title: str) -> "go.Figure":
    """Errors of each band of sizes as bars: median in p90, with bias and the 90 % interval that predictions state.

    The table has a row per band, those of a model together: `model`, `band`, `rows`, and as fractions `median`, `p90`,
    `bias` and `reach` (of the interval).
    """
    import plotly.graph_objects as go

    places, names = _places(table)
    figure = go.Figure()
    for name, column, width, colour in (
        ("p90 of |error|", "p90", 0.8, "rgba(86,180,233,0.55)"), ("median of |error|", "median", 0.4, BLUE),
    ):  # fmt: skip
        said = f"{name} %{{x:.1%}}<extra></extra>"
        figure.add_trace(bars(name, list(table[column]), places, colour, hovertemplate=said, width=width))
    reach = {"symbol": "line-ns", "size": 11, "line": {"width": 2, "color": GREY}}
    for name, column, marker in (
        ("bias (median error)", "bias", {"symbol": "diamond", "size": 7, "color": RED}),
        ("stated 90 % interval", "reach", reach),
    ):
        said = f"{name} %{{x:.1%}}<extra></extra>"
        figure.add_scatter(
            x=list(table[column]), y=places, mode="markers", name=name, marker=marker, hovertemplate=said
        )
    bottom = max(places, default=0) + 0.7
    subtitle = "held out from the fit; rows in brackets; the tick is the 90 % interval that predictions state"
    style(figure, title, subtitle, ROW_PX * (bottom + 0.7), barmode="overlay")
    figure.update_xaxes(title="error", ticksuffix="", tickformat=".0%", zeroline=True, zerolinecolor=GREY)
    return figure.update_yaxes(**ROWS, range=[bottom, -0.7], tickvals=list(range(len(names))), ticktext=names,
                               automargin="left")  # fmt: skip


def _places(table: "pd.DataFrame") -> tuple[list[int], list[str]]:
    """(positions of bands, labels at the left); bands follow the name of their model."""
    places: list[int] = []
    names: list[str] = []
    for model, rows in table.groupby("model", sort=False):
        names.append(f"<b>{plain(str(model))}</b>")
        for band, count in zip(rows["band"], rows["rows"], strict=True):
            places.append(len(names))
            names.append(f"{band} ({count:,})")
    return places, names


def predicted_lines(
    table: "pd.DataFrame", title: str, subtitle: str, x: Axis, y: Axis, columns: int = COLUMNS
) -> "go.Figure":
    """A panel per `panel` with a line per `line`: `y` over `x` (logarithmic), in a band from `low` to `high`.

    Where `outside` is true the line is dashed and faint: it lies beyond what was measured.
    """
    panels = list(dict.fromkeys(table["panel"]))
    figure, height_px = _panels([plain(panel) for panel in panels], columns, title, subtitle)
    colour = colours(dict.fromkeys(table["line"]))
    for i, panel in enumerate(panels):
        where = {"row": i // columns + 1, "col": i % columns + 1}
        rows = table[table["panel"] == panel]
        for name in dict.fromkeys(rows["line"]):
            for trace in _line(rows[rows["line"] == name], plain(str(name)), colour[name]):
                figure.add_trace(trace, **where)
        ends = [math.log10(rows["x"].min()), math.log10(rows["x"].max())]
        figure.update_xaxes(**ticks_of(x, rows["x"]), range=ends, **where)
        figure.update_yaxes(**ticks_of(y, rows["y"]), range=_span(rows["y"], y), **where)
    _one_legend(figure, outside=bool(table["outside"].any()))
    return _with_room(figure, height_px)


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
    points = common | {"x": rows["x"], "customdata": rows[["low", "high"]].to_numpy()}
    edge = {"x": [*rows["x"], *rows["x"][::-1]], "y": [*rows["high"], *rows["low"][::-1]]}
    fill = f"rgba({','.join(map(str, rgb(colour)))},0.13)"
    return [
        go.Scatter(**edge, **common, mode="lines", line_width=0, fill="toself", fillcolor=fill, hoverinfo="skip"),
        go.Scatter(**points, y=rows["y"].where(~outside), mode=inside, line={"color": colour, "width": 2},
                   hovertemplate=f"{hover}<extra></extra>"),
        go.Scatter(**points, y=rows["y"].where(beyond), mode="lines", opacity=FAINT,
                   line={"color": colour, "width": 1.5, "dash": DASHED},
                   hovertemplate=f"{hover}<br>extrapolated<extra></extra>"),
    ]  # fmt: skip


def _one_legend(figure: "go.Figure", outside: bool) -> None:
    """Each line once in the legend, in full colour, and what dashes mean."""
    nothing = {"x": [None], "y": [None], "mode": "lines"}
    for name, colour in {trace.name: trace.line.color for trace in figure.data if trace.line.color}.items():
        figure.add_scatter(**nothing, name=name, legendgroup=name, line_color=colour)
    if outside:
        figure.add_scatter(**nothing, name="extrapolated", line={"color": GREY, "dash": DASHED, "width": 1.5})


def _panels(names: Sequence[str], columns: int, title: str, subtitle: str) -> "tuple[go.Figure, float]":
    """Empty panels with their names, left to right, and how high they are together."""
    from plotly.subplots import make_subplots

    rows = max(math.ceil(len(names) / columns), 1)
    height_px = rows * PANEL_PX + (rows - 1) * GAP_PX
    gap = GAP_PX / height_px if rows > 1 else 0
    figure = make_subplots(rows, columns, subplot_titles=names, vertical_spacing=gap, horizontal_spacing=0.09)
    style(figure, title, subtitle, height_px)
    for i, one in enumerate(figure.layout.annotations):
        left = figure.layout[f"xaxis{i + 1 if i else ''}"].domain[0]
        one.update(x=left, xanchor="left", font_size=13, yshift=2)
    figure.update_yaxes(automargin="left")
    if len(names) % columns:
        for column in range(len(names) % columns + 1, columns + 1):
            figure.update_xaxes(visible=False, row=rows, col=column)
            figure.update_yaxes(visible=False, row=rows, col=column)
    return figure, height_px


def _with_room(figure: "go.Figure", height_px: float) -> "go.Figure":
    """The legend stands above the names of the panels, which are so high together."""
    return figure.update_layout(
        margin_t=figure.layout.margin.t + NAME_PX, margin_l=70, legend_itemsizing="constant",
        height=figure.layout.height + NAME_PX, legend_y=1 + (NAME_PX + 6) / height_px,
    )  # fmt: skip


def ticks_of(axis: Axis, values: "pd.Series[float]") -> dict[str, Any]:
    """The plotly settings of an axis."""
    known: dict[str, Any] = {"title": {"text": axis.title, "standoff": 6}, "type": "log" if axis.log else "linear"}
    known["ticksuffix"] = ""
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


# Samples beside what a Profile predicts of them: predicted over measured, and error over size.

MOST_POINTS = 2000
IN_SAMPLE = "in-sample"


def scored_samples(table: "pd.DataFrame", title: str, subtitle: str, size: Axis) -> "go.Figure":
    """Left predicted over measured seconds with lines at equality and ±10 %, right the error over size.

    The table has a row per sample: `library`, `measured_s`, `predicted_s`, `size`, `text` and `seen`, which is
    `IN_SAMPLE` or says otherwise. Points are coloured by library, filled where they are in-sample, else open, and
    thinned to `MOST_POINTS` of each kind.
    """
    figure, height_px = _panels(["predicted over measured", "error over size"], 2, title, subtitle)
    table = table.assign(error=table["predicted_s"] / table["measured_s"] - 1)
    colour, drawn = colours(dict.fromkeys(table["library"].astype(str))), 0
    for (library, seen), rows in table.groupby(["library", "seen"], sort=False):
        shown = draw_rows(rows)
        drawn += len(shown)
        name, symbol = plain(f"{library}, {seen}"), "circle" if seen == IN_SAMPLE else "circle-open"
        marker = {"color": colour[str(library)], "size": 4, "opacity": 0.6, "symbol": symbol}
        common = {"mode": "markers", "name": name, "legendgroup": name, "marker": marker,
                  "hovertext": shown["text"], "hoverinfo": "text"}  # fmt: skip
        for col, x, y in ((1, "measured_s", "predicted_s"), (2, "size", "error")):
            legend = None if col == 1 else False
            figure.add_scatter(x=digits(shown[x]), y=digits(shown[y]), showlegend=legend, **common, row=1, col=col)
    _guides(figure, table)
    reach = min(max(float(table["error"].abs().quantile(0.99)) * 1.15, 0.15), 4.0)
    figure.update_xaxes(**ticks_of(Axis("measured", "s"), table["measured_s"]), row=1, col=1)
    figure.update_yaxes(**ticks_of(Axis("predicted", "s"), table["predicted_s"]), row=1, col=1)
    figure.update_xaxes(**ticks_of(size, table["size"]), row=1, col=2)
    error = ticks_of(Axis("error", "%", log=False), table["error"])
    figure.update_yaxes(**error, range=[max(-reach, -1.05), reach], row=1, col=2)
    few = f"{drawn:,} of {len(table):,} samples drawn" if drawn < len(table) else f"{len(table):,} samples"
    figure.layout.title.subtitle.text = f"{subtitle}; {few}"
    return _with_room(figure, height_px)


def draw_rows(rows: "pd.DataFrame", most: int = MOST_POINTS) -> "pd.DataFrame":
    """At most `most` rows, sampled with a fixed seed, in their order."""
    if len(rows) <= most:
        return rows
    chosen = np.random.default_rng(0).choice(len(rows), most, replace=False)
    return rows.iloc[np.sort(chosen)]


def _guides(figure: "go.Figure", table: "pd.DataFrame") -> None:
    """Draw the lines of predicted = measured, and of an error of 10 %."""
    both = table[["measured_s", "predicted_s"]].to_numpy(float)
    ends = np.array([both.min(), both.max()])
    sizes = [float(table["size"].min()), float(table["size"].max())]
    for off, dash, name in ((0.0, "solid", "equal"), (0.1, "dot", "±10 %"), (-0.1, "dot", "±10 %")):
        line = {"color": GREY, "width": 1.2, "dash": dash}
        common = {"mode": "lines", "line": line, "legendgroup": name, "name": name, "hoverinfo": "skip"}
        figure.add_scatter(x=ends, y=ends * (1 + off), showlegend=off >= 0, **common, row=1, col=1)
        figure.add_scatter(x=sizes, y=[off, off], showlegend=False, **common, row=1, col=2)


# Factors of a software stack beside 1, each with its 90 % interval.


def factor_dots(factors: Mapping[str, Parameter]) -> "go.Figure":
    """A dot per factor on a logarithmic axis, coloured by provenance; 1 is what the profile of the device says."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for kind, colour in colours(dict.fromkeys(of.provenance for of in factors.values())).items():
        own = {plain(name): of for name, of in factors.items() if of.provenance == kind}
        values = np.array([of.value for of in own.values()])
        reach = np.exp(Z90 * np.array([of.spread for of in own.values()]))
        low, high = values / reach, values * reach
        ends = {"type": "data", "symmetric": False, "thickness": 1.5, "width": 4}
        figure.add_scatter(
            x=values, y=list(own), mode="markers", name=kind, marker={"color": colour, "size": 8},
            error_x=ends | {"array": high - values, "arrayminus": values - low}, customdata=np.stack([low, high], 1),
            hovertemplate="%{y}: %{x:.3g} (%{customdata[0]:.3g} to %{customdata[1]:.3g})<extra></extra>",
        )  # fmt: skip
    height_px = FACTOR_PX * (len(factors) + 1)
    style(figure, "", "", height_px)
    figure.add_vline(1.0, line={"color": GREY, "width": 1.2, "dash": "dash"})
    ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20]
    figure.update_xaxes(title="factor", ticksuffix="", type="log", tickvals=ticks, ticktext=[f"{t:g}" for t in ticks])
    order = [plain(name) for name in factors][::-1]
    figure.update_yaxes(categoryorder="array", categoryarray=order, automargin="left")
    return figure.update_layout(margin_t=40, height=height_px + 110, legend_y=1 + 4 / height_px)
