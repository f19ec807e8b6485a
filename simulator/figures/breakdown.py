"""Where the time of a training step goes, per pipeline rank; the seconds come from the report."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..base.units import format_seconds
from .pipeline import ink
from .theme import PHASE, styled

if TYPE_CHECKING:
    import plotly.graph_objects as go

ROW_PX, SHOWN = 26, 0.03
Seconds = Mapping[str, Sequence[float]]


def breakdown(by_rank_s: Seconds, title: str = "Where the time goes", names: Sequence[str] = ()) -> "go.Figure":
    """A bar per pipeline rank, below them their mean, of seconds by phase; the phases of a rank sum to the step."""
    import plotly.graph_objects as go

    used = {name: list(values) for name, values in by_rank_s.items() if max(values, default=0.0) > 0}
    ranks = max((len(values) for values in used.values()), default=0)
    step_s = sum(values[0] for values in used.values())
    ordered = [name for name in PHASE if name in used] + [name for name in used if name not in PHASE]
    labels = [*(names or [f"rank {rank}" for rank in range(ranks)]), *(["mean"] if ranks > 1 else [])]
    figure = go.Figure([_phase(name, _with_mean(used[name]), labels, step_s) for name in ordered])
    subtitle = f"{format_seconds(step_s)} on each rank: computing in blues, waiting in other colours"
    styled(figure, title, subtitle, ROW_PX * max(len(labels), 2), barmode="stack", bargap=0.2)
    figure.update_layout(legend_traceorder="normal", margin_l=72, uniformtext={"minsize": 8, "mode": "hide"})
    figure.update_xaxes(range=[0, step_s or 1.0])
    figure.update_yaxes(autorange="reversed", showgrid=False, ticklabelstandoff=6, fixedrange=True)
    return figure


def _with_mean(values: Sequence[float]) -> list[float]:
    return [*values, sum(values) / len(values)] if len(values) > 1 else list(values)


def _phase(name: str, values: Sequence[float], labels: Sequence[str], step_s: float) -> "go.Bar":
    import plotly.graph_objects as go

    colour = PHASE.get(name, "#8C8C8C")
    return go.Bar(
        orientation="h",
        name=name,
        x=list(values),
        y=list(labels),
        marker={"color": colour, "line": {"width": 0}},
        text=[f"{value / step_s:.0%}" if value >= SHOWN * step_s else "" for value in values],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        insidetextfont={"size": 11, "color": ink(colour)},
        hovertext=[
            f"<b>{name}</b><br>{label}<br>{format_seconds(value)}, {value / step_s:.1%} of the step"
            for label, value in zip(labels, values, strict=True)
        ],
        hoverinfo="text",
    )
