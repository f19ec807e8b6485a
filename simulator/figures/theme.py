"""Colours and layout that all figures share; what they show is decided beside it.

Colours are those of Okabe and Ito (jfly.uni-koeln.de/color), told apart with any colour vision. Backgrounds are clear
and grid lines half transparent, so that a page may be light or dark; only the text colour depends on it.
"""

from collections.abc import Iterable
from html import escape
from itertools import cycle
from typing import TYPE_CHECKING, Any

from ..base.op_kinds import KINDS

if TYPE_CHECKING:
    import plotly.graph_objects as go

TEXT, TEXT_ON_DARK = "#24292f", "#e6e8eb"
GRID, BAND = "rgba(128,128,128,0.25)", "rgba(128,128,128,0.08)"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
COLOUR = {
    "H2D": "#0072B2",
    "broadcast (source)": "#D55E00",
    "broadcast (destination)": "#F0C36A",
    "set-up, sync, clean-up": "#8C8C8C",
    **{name: kind.colour for name, kind in KINDS.items() if kind.colour},
}
"""By label of a chart; where rows are lanes, labels are kinds."""
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A800", "#8C8C8C")
PHASE = {
    "gemm": "#0072B2",
    "attention": "#56B4E9",
    "experts": "#003F66",
    "memory": "#B5DBF0",
    "loss": "#6F83D1",
    "optimizer": "#8C8C8C",
    "tp": "#D55E00",
    "cp": "#F2A27A",
    "ep": "#E69F00",
    "dp": "#CC79A7",
    "fsdp": "#E8BBD3",
    "host": "#B8A800",
    "offload": "#882255",
    "pipeline": "#D9D9D9",
}
"""Where the time of a training step goes: computing in blues, exchanges in warm colours, the bubble in light grey."""
ACTION = {
    "F": ("#0072B2", "#A9D3EC"),
    "B": ("#00795A", "#9ADBC5"),
    "I": ("#B8860B", "#F3DC8A"),
    "W": ("#7B3F98", "#D9BCE6"),
}
"""Of the actions of a pipeline, from a rank's first chunk to its last."""
LANE = {
    "tp, cp": PHASE["tp"],
    "ep": PHASE["ep"],
    "sends": "#444444",
    "dp": PHASE["dp"],
    "offload": PHASE["offload"],
    "onload": "#44AA99",
    "host": PHASE["host"],
}
TITLE_PX, LEGEND_PX, BOTTOM_PX = 78, 42, 56  # a legend has two rows where a page is narrow


def colours(labels: Iterable[str]) -> dict[str, str]:
    """The colour of each label: its own, or the next of the palette."""
    following = cycle(PALETTE)
    return {label: COLOUR.get(label) or next(following) for label in labels}


def styled(figure: "go.Figure", title: str, subtitle: str, plot_height_px: float, **layout: Any) -> "go.Figure":
    """The figure with its titles, time axis, fonts, margins, and a legend between title and plot.

    The title is text, as it may hold a name that someone chose; the subtitle may hold markup.
    """
    above = {"text": escape(title, quote=False), "subtitle": {"text": subtitle}}
    top_px = TITLE_PX + (LEGEND_PX if layout.get("showlegend", True) else 0)
    figure.update_layout(
        title={**above, "x": 0, "xref": "paper", "yref": "container", "y": 1, "yanchor": "top", "pad": {"t": 14}},
        font={"family": FONT, "size": 12, "color": TEXT},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        height=plot_height_px + top_px + BOTTOM_PX,
        margin={"t": top_px, "b": BOTTOM_PX, "l": 16, "r": 24},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1 + 6 / plot_height_px, "yanchor": "bottom"},
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": "#8C8C8C", "activecolor": "#0072B2"},
        hoverlabel={"align": "left", "font": {"family": FONT}},
        **layout,
    )  # fmt: skip
    figure.update_xaxes(title="time", ticksuffix="s", exponentformat="SI", gridcolor=GRID, zeroline=False)
    return figure
