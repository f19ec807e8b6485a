"""A waterfall: phases one behind the other, each from where the last one ends, down to their total."""

from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from ..base.units import format_seconds
from .theme import PHASE, colours, styled

if TYPE_CHECKING:
    import plotly.graph_objects as go

ROW_PX, TOTAL = 28, "#57606a"
_UPDATE = {
    "calls": "#6F83D1",
    "init": "#8C8C8C",
    "gather": "#CC79A7",
    "export": "#882255",
    "h2d": "#0072B2",
    "broadcast": "#D55E00",
    "write": "#D55E00",
    "reload": "#009E73",
    "sync": "#B8A800",
    "release": "#CC79A7",
    "post_hook": "#56B4E9",
}
_ROOM = 1.25  # of the total, so that the text behind the last bar is inside


def waterfall(seconds: Mapping[str, float], what: str) -> "go.Figure":
    """A bar per phase and one for the total, which is their sum; `what` takes it."""
    import plotly.graph_objects as go

    total_s = sum(seconds.values())
    starts = list(accumulate(seconds.values(), initial=0.0))[:-1]
    colour = {**colours(seconds), **_UPDATE, **PHASE}
    labels, lengths = [*seconds, what], [*seconds.values(), total_s]
    figure = go.Figure(
        go.Bar(
            orientation="h",
            x=lengths,
            y=labels,
            base=[*starts, 0.0],
            marker={"color": [*(colour[phase] for phase in seconds), TOTAL], "line": {"width": 0}},
            text=[f"{format_seconds(s)}, {s / total_s:.1%}" if total_s else "" for s in lengths],
            textposition="outside",
            cliponaxis=False,
            hoverinfo="y+text",
        )
    )
    subtitle = f"{format_seconds(total_s)}, phase by phase"
    styled(figure, f"What the {what} is made of", subtitle, ROW_PX * len(labels), bargap=0.2, showlegend=False)
    figure.update_xaxes(range=[0, _ROOM * total_s or 1.0])
    figure.update_yaxes(autorange="reversed", showgrid=False, ticklabelstandoff=6, fixedrange=True, automargin=True)
    return figure
