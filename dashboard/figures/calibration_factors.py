"""Factors of a software stack beside 1, each with its 90 % interval."""

import math
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

from ...simulator.figures.profile import GREY
from ...simulator.figures.theme import GRID, colours, styled
from ...simulator.profile import Z90, Parameter

if TYPE_CHECKING:
    import plotly.graph_objects as go

ROW_PX = 24


def factor_dots(factors: Mapping[str, Parameter]) -> "go.Figure":
    """A dot per factor on a logarithmic axis, coloured by provenance; 1 is what the profile of the device says."""
    import plotly.graph_objects as go

    by: dict[str, list[str]] = {}
    for name, of in factors.items():
        by.setdefault(of.provenance, []).append(name)
    colour = colours(by)
    figure = go.Figure([_dots({n: factors[n] for n in names}, kind, colour[kind]) for kind, names in by.items()])
    height_px = ROW_PX * (len(factors) + 1)
    styled(figure, "", "", height_px)
    figure.add_vline(1.0, line={"color": GREY, "width": 1.2, "dash": "dash"})
    ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20]
    figure.update_xaxes(title="factor", ticksuffix="", type="log", tickvals=ticks, ticktext=[f"{t:g}" for t in ticks])
    order = [escape(name, quote=False) for name in factors]
    figure.update_yaxes(categoryorder="array", categoryarray=order[::-1], gridcolor=GRID, automargin="left")
    figure.update_layout(margin={"t": 40}, height=height_px + 110, legend={"y": 1 + 4 / height_px})
    return figure


def _dots(factors: Mapping[str, Parameter], kind: str, colour: str) -> "go.Scatter":
    import plotly.graph_objects as go

    values = [of.value for of in factors.values()]
    reach = [math.exp(Z90 * of.spread) for of in factors.values()]
    ends = [(v / r, v * r) for v, r in zip(values, reach, strict=True)]
    bars = {
        "type": "data", "symmetric": False, "thickness": 1.5, "width": 4,
        "array": [high - v for v, (_, high) in zip(values, ends, strict=True)],
        "arrayminus": [v - low for v, (low, _) in zip(values, ends, strict=True)],
    }  # fmt: skip
    return go.Scatter(
        x=values, y=[escape(name, quote=False) for name in factors], mode="markers", name=kind, error_x=bars,
        marker={"color": colour, "size": 8}, customdata=ends,
        hovertemplate="%{y}: %{x:.3g} (%{customdata[0]:.3g} to %{customdata[1]:.3g})<extra></extra>",
    )  # fmt: skip
