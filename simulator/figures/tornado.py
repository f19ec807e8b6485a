"""A tornado chart: by how much a total changes when numbers are a tenth better or worse, the strongest first."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..base.units import format_seconds
from .theme import styled

if TYPE_CHECKING:
    import plotly.graph_objects as go

ROW_PX = 26
BETTER, WORSE = "#0072B2", "#D55E00"
_ROOM = 1.35  # of the longest bar, so that the text behind its end is inside


def tornado(changes_s: Mapping[str, tuple[float, float]], total_s: float, what: str) -> "go.Figure":
    """Two bars per number, from no change at all: `changes_s` are seconds of the total, (better, worse)."""
    import plotly.graph_objects as go

    labels = list(changes_s)
    better, worse = ([100 * pair[i] / total_s for pair in changes_s.values()] for i in (0, 1))
    figure = go.Figure(
        [_bars("10 % better", BETTER, labels, better, total_s), _bars("10 % worse", WORSE, labels, worse, total_s)]
    )
    subtitle = f"change of the {what} of {format_seconds(total_s)} when one number changes by a tenth"
    styled(figure, "What each number is worth", subtitle, ROW_PX * max(len(labels), 2), barmode="overlay", bargap=0.25)
    reach = _ROOM * max((abs(share) for share in (*better, *worse)), default=1.0) or 1.0
    figure.update_xaxes(title=f"change of the {what}", ticksuffix=" %", range=[-reach, reach], zeroline=True)
    figure.update_xaxes(zerolinecolor="#8C8C8C", exponentformat="none")
    figure.update_yaxes(autorange="reversed", showgrid=False, ticklabelstandoff=6, fixedrange=True, automargin=True)
    return figure


def _bars(name: str, colour: str, labels: list[str], shares: list[float], total_s: float) -> "go.Bar":
    """Of one direction; shares are percent."""
    import plotly.graph_objects as go

    return go.Bar(
        orientation="h",
        name=name,
        x=shares,
        y=labels,
        marker={"color": colour, "line": {"width": 0}},
        text=[f"{share:+.2f} %" if abs(share) >= 0.005 else "" for share in shares],
        textposition="outside",
        cliponaxis=False,
        hovertext=[
            f"<b>{label}</b><br>{name}: {share:+.3f} %, {format_seconds(abs(share) / 100 * total_s)}"
            for label, share in zip(labels, shares, strict=True)
        ],
        hoverinfo="text",
    )
