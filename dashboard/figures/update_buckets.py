"""The time of a weight update over the size of its buckets, with the sizes that are refused at both ends."""

from typing import TYPE_CHECKING

from ...simulator.base.units import format_bytes, format_seconds
from ...simulator.figures.theme import GRID, PALETTE, styled
from ..buckets import Curve

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEIGHT_PX = 260
REFUSED, EDGE = "rgba(213,94,0,0.13)", "#D55E00"
_MARGIN = 1.6
"""How far the axis goes beyond what was tried, as a factor."""


def bucket_curve(curve: Curve, asked_bytes: int, asked_s: float) -> "go.Figure":
    """Update time by bucket size; what was asked is marked, sizes that cannot be are shaded."""
    import plotly.graph_objects as go

    figure = go.Figure([_line(curve), _asked(asked_bytes, asked_s)])
    low, high = _ends(curve, asked_bytes)
    styled(figure, "Update time by bucket size", _subtitle(curve), HEIGHT_PX, showlegend=False)
    ticks = [2**power for power in range(10, 50) if low <= 2**power <= high]
    ticks = ticks[:: max(1, len(ticks) // 8)]
    figure.update_xaxes(type="log", title="bucket", ticksuffix="", tickvals=ticks, ticktext=[*map(format_bytes, ticks)])
    figure.update_layout(xaxis_range=_logs(low, high))
    figure.update_yaxes(title="update", ticksuffix="s", rangemode="tozero", gridcolor=GRID, zeroline=False,
                        exponentformat="SI", automargin="left")  # fmt: skip
    if curve.sizes.most_bytes is not None:
        _refuse(figure, curve.sizes.most_bytes, high, "out of memory →", "right")
    if curve.sizes.least_bytes is not None:
        _refuse(figure, low, curve.sizes.least_bytes, "← smaller than a tensor", "left")
    return figure


def _ends(curve: Curve, asked_bytes: int) -> tuple[float, float]:
    limits = (curve.sizes.least_bytes, curve.sizes.most_bytes)
    sizes = [*curve.sizes.tried, asked_bytes, *(limit for limit in limits if limit is not None)]
    return min(sizes) / _MARGIN, max(sizes) * _MARGIN


def _logs(low: float, high: float) -> list[float]:
    from math import log10

    return [log10(low), log10(high)]


def _line(curve: Curve) -> "go.Scatter":
    import plotly.graph_objects as go

    sizes, seconds = [size for size, _ in curve.known], [s for _, s in curve.known]
    said = [f"{format_bytes(size)}: {format_seconds(s)}" for size, s in curve.known]
    return go.Scatter(x=sizes, y=seconds, mode="lines+markers", name="update time", line_color=PALETTE[0],
                      hovertext=said, hoverinfo="text")  # fmt: skip


def _asked(size: int, seconds: float) -> "go.Scatter":
    import plotly.graph_objects as go

    marker = {"size": 13, "symbol": "diamond", "color": PALETTE[1], "line": {"width": 1, "color": "#24292f"}}
    said = f"this bucket, {format_bytes(size)}: {format_seconds(seconds)}"
    return go.Scatter(x=[size], y=[seconds], mode="markers", name="this bucket", marker=marker, hovertext=[said],
                      hoverinfo="text")  # fmt: skip


def _refuse(figure: "go.Figure", low: float, high: float, why: str, side: str) -> None:
    """A shade over sizes, with a line where they begin and a note beside it, where nothing is cut off.

    The axis is logarithmic, and so are places of notes on it.
    """
    from math import log10

    edge = low if side == "right" else high
    figure.add_shape(type="rect", x0=low, x1=high, y0=0, y1=1, yref="paper", fillcolor=REFUSED, line_width=0,
                     layer="below")  # fmt: skip
    figure.add_shape(type="line", x0=edge, x1=edge, y0=0, y1=1, yref="paper", line={"color": EDGE, "dash": "dash"})
    figure.add_annotation(x=log10(edge), y=0, yref="paper", text=why, showarrow=False, xanchor=side, yanchor="bottom")


def _subtitle(curve: Curve) -> str:
    known, most = curve.known, curve.sizes.most_bytes
    trying = "" if curve.done else f"trying {len(curve.sizes.tried)} sizes, {len(curve.update_s)} done; "
    best = ""
    if known:
        size, seconds = min(known, key=lambda point: point[1])
        best = f"best tried: {format_bytes(size)} with {format_seconds(seconds)}; "
    return trying + best + (f"at most {format_bytes(most)} fit" if most is not None else "engines have no buffers")
