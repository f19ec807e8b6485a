"""Colours, bars, rows and layout that all figures share; what they show is decided beside it.

Colours are those of Okabe and Ito (jfly.uni-koeln.de/color), told apart with any colour vision. Backgrounds are clear
and grid lines half transparent, so that a page may be light or dark; only the text colour depends on it.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from html import escape
from itertools import cycle
from typing import TYPE_CHECKING, Any

from ..base.op_kinds import KINDS

if TYPE_CHECKING:
    import plotly.graph_objects as go

TEXT, TEXT_ON_DARK = "#24292f", "#e6e8eb"
GRID, BAND, CLEAR = "rgba(128,128,128,0.25)", "rgba(128,128,128,0.08)", "rgba(0,0,0,0)"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A800", "#8C8C8C")
BLUE, ORANGE, GREEN, PINK, SKY, RED, OLIVE, GREY = PALETTE
NAVY, ICE, INDIGO, PEACH, ROSE, WINE, TEAL = "#003F66", "#B5DBF0", "#6F83D1", "#F2A27A", "#E8BBD3", "#882255", "#44AA99"
DARK_GREY, LIGHT_GREY = "#444444", "#D9D9D9"
COLOUR = {
    "H2D": BLUE,
    "broadcast (source)": RED,
    "broadcast (destination)": "#F0C36A",
    "set-up, sync, clean-up": GREY,
    **{name: kind.colour for name, kind in KINDS.items() if kind.colour},
}
"""By label of a chart; where rows are lanes, labels are kinds."""
PHASE = {
    "gemm": BLUE, "attention": SKY, "experts": NAVY, "memory": ICE, "loss": INDIGO, "optimizer": GREY,
    "tp": RED, "cp": PEACH, "ep": ORANGE, "dp": PINK, "fsdp": ROSE, "host": OLIVE, "offload": WINE,
    "pipeline": LIGHT_GREY,
}  # fmt: skip
"""Where the time of a training step goes: computing in blues, exchanges in warm colours, the bubble in light grey."""
UPDATE = {
    "calls": INDIGO, "init": GREY, "gather": PINK, "export": WINE, "h2d": BLUE, "broadcast": RED, "write": RED,
    "reload": GREEN, "sync": OLIVE, "release": PINK, "post_hook": SKY,
}  # fmt: skip
"""Where the time of a weight update goes."""
CAUSE = {
    "compute": BLUE, "exchange": RED, "wait": PEACH, "encode": ORANGE, "input": OLIVE, "checkpoint": GREEN,
    "pause": ROSE, "lost": WINE, "unfinished": DARK_GREY, "detect": PINK, "restart": INDIGO, "start": NAVY,
    "resize": TEAL, "repair": GREY, "setup": SKY, "idle": LIGHT_GREY,
}  # fmt: skip
"""Where the time of a run goes (`systems.run.history.CAUSES`)."""
MEMORY = {"weights": NAVY, "gradients": BLUE, "master weights": SKY, "optimizer moments": ICE}
"""What is held all the time; activations have the colours of ACTIVATIONS, small owners together that of OTHERS."""
ACTIVATIONS = (ORANGE, GREEN, PINK, RED, OLIVE, WINE, TEAL, PEACH)
OTHERS, FULL = "#BFBFBF", "#DC3A40"
MARK = ORANGE
"""Of what somebody looked for."""
ACTION = {
    "F": (BLUE, "#A9D3EC"),
    "B": ("#00795A", "#9ADBC5"),
    "I": ("#B8860B", "#F3DC8A"),
    "W": ("#7B3F98", "#D9BCE6"),
}
"""Of the actions of a pipeline, from a rank's first chunk to its last."""
LANE = {
    "tp, cp": PHASE["tp"],
    "ep": PHASE["ep"],
    "sends": DARK_GREY,
    "dp": PHASE["dp"],
    "offload": PHASE["offload"],
    "onload": TEAL,
}
TITLE_PX, LEGEND_PX, BOTTOM_PX, NOTE_PX = 78, 42, 56, 16  # a legend has two rows where a page is narrow
ROWS: dict[str, Any] = {"showgrid": False, "zeroline": False, "fixedrange": True, "ticklabelstandoff": 6}
"""Of an axis that names rows: zooming is along time."""

plain = partial(escape, quote=False)
"""Text that must not be taken for HTML, as figures have it: they show quotes as they are."""


def colours(labels: Iterable[str]) -> dict[str, str]:
    """The colour of each label: its own, or the next of the palette."""
    following = cycle(PALETTE)
    return {label: COLOUR.get(label) or next(following) for label in labels}


def rgb(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of `#rrggbb`, each from 0 to 255."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return red, green, blue


def ink(colour: str) -> str:
    """White or dark, whichever is read on this colour."""
    red, green, blue = rgb(colour)
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 140 else TEXT


def digits(values: Iterable[float], count: int = 4) -> list[float]:
    """Values with as many digits as can be seen, which keeps pages small."""
    return [float(f"{value:.{count}g}") for value in values]


def bars(name: str, x: Any, y: Any, colour: Any, hover: Any = None, **more: Any) -> "go.Bar":
    """Bars from left to right without edges, `x` long, or from `base` on; `hover` is what each says of itself."""
    import plotly.graph_objects as go

    look = {"marker": {"color": colour, "line": {"width": 0}}, "hovertext": hover, "hoverinfo": "text"}
    return go.Bar(orientation="h", name=name, x=x, y=y, **(look | more))


def band(figure: "go.Figure", top: float, bottom: float, **more: Any) -> None:
    """A shade across the figure, behind what stands on rows from `top` to `bottom`."""
    where = {"xref": "paper", "x0": 0, "x1": 1, "y0": top, "y1": bottom} | more
    figure.add_shape(type="rect", **where, fillcolor=BAND, line_width=0, layer="below")


def mark_across(figure: "go.Figure", x: float, text: str) -> "go.Figure":
    """The figure with a dashed line from top to bottom and a note on its end, below the legend."""
    layout = figure.layout
    plot_px = layout.height - layout.margin.t - layout.margin.b
    figure.add_vline(x, line={"color": RED, "dash": "dash", "width": 1.5})
    figure.add_annotation(x=x, y=1, yref="paper", text=text, showarrow=False, xanchor="right", yanchor="bottom")
    return figure.update_layout(legend_y=layout.legend.y + NOTE_PX / plot_px)


def axis_ends(whole: Sequence[Any], seen: Sequence[Any] | None = None) -> dict[str, Any]:
    """Of a time axis: where it ends, beyond which nobody moves it, and what is seen of it (None: the whole)."""
    return {"range": list(seen or whole), "minallowed": whole[0], "maxallowed": whole[1]}


def buttons(ranges: Mapping[str, Sequence[Any]], seen: Sequence[Any] = ()) -> list[dict[str, Any]]:
    """Buttons beside the title that show a range of the time axis each; the first is the whole. None for it alone.

    That of what is `seen` is pressed, else the first.
    """
    if len(ranges) < 2:
        return []
    where = {"direction": "right", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom", "pad": {"b": 84}}
    look = {"font": {"size": 11, "color": TEXT}, "bgcolor": "#F3F4F6", "bordercolor": "#D0D7DE", "showactive": True}
    each = [
        {"label": name, "method": "relayout", "args": [{"xaxis.range": list(ends)}]} for name, ends in ranges.items()
    ]
    ends = [tuple(one) for one in ranges.values()]
    pressed = ends.index(tuple(seen)) if tuple(seen) in ends else 0
    return [{"type": "buttons", **where, **look, "active": pressed, "buttons": each}]


def style(figure: "go.Figure", title: str, subtitle: str, plot_height_px: float, **layout: Any) -> "go.Figure":
    """The figure with its titles, time axis, fonts, margins, and a legend between title and plot.

    The title is text, as it may hold a name that someone chose; the subtitle may hold markup.
    """
    above = {"text": plain(title), "subtitle": {"text": subtitle}}
    top_px = TITLE_PX + (LEGEND_PX if layout.get("showlegend", True) else 0)
    figure.update_layout(
        title={**above, "x": 0, "xref": "paper", "yref": "container", "y": 1, "yanchor": "top", "pad": {"t": 14}},
        height=plot_height_px + top_px + BOTTOM_PX,
        margin={"t": top_px, "b": BOTTOM_PX, "l": 16, "r": 24},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1 + 6 / plot_height_px, "yanchor": "bottom"},
        **LOOK,
        **layout,
    )
    figure.update_xaxes(title="time", ticksuffix="s", exponentformat="SI", gridcolor=GRID, zeroline=False)
    return figure.update_yaxes(gridcolor=GRID, zeroline=False)


LOOK: dict[str, Any] = {
    "font": {"family": FONT, "size": 12, "color": TEXT},
    "paper_bgcolor": CLEAR,
    "plot_bgcolor": CLEAR,
    "modebar": {"bgcolor": CLEAR, "color": GREY, "activecolor": BLUE},
    "hoverlabel": {"align": "left", "font": {"family": FONT}},
}
"""Fonts and backgrounds of all figures."""
