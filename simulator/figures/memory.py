"""Memory over time as a figure; the numbers come from `timeline.memory`."""

from typing import TYPE_CHECKING

from ..timeline import Timeline, peaks
from ..timeline import memory as memory_of
from ..timeline.memory import Peak, Static
from ..units import format_bytes, format_seconds
from .theme import COLOUR, GRID, styled

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST_NAMED = 6


def memory_figure(
    timeline: Timeline, rank: int, memory: str = "device", static_bytes: Static | None = None
) -> "go.Figure":
    """What a rank holds over time as a step line; the subtitle says what it holds at the peak."""
    import plotly.graph_objects as go

    steps = memory_of(timeline, rank, memory, static_bytes)
    line = {"shape": "hv", "color": COLOUR["H2D"], "width": 2}
    times = [*steps.time_s, max(timeline.makespan_s, steps.time_s.max())]
    held = [value / 2**30 for value in (*steps.bytes, steps.bytes.iloc[-1])]
    hover = "%{y:.3f} GiB from %{x:.4s}s<extra></extra>"
    figure = go.Figure(
        go.Scatter(
            x=times,
            y=held,
            mode="lines",
            line=line,
            fill="tozeroy",
            fillcolor="rgba(0,114,178,0.2)",
            hovertemplate=hover,
        )
    )
    peak = peaks(timeline, memory, static_bytes)[rank]
    styled(figure, f"{memory.capitalize()} memory of rank {rank}", _subtitle(peak), 260, showlegend=False)
    figure.update_xaxes(range=[0, timeline.makespan_s or 1.0])
    figure.update_yaxes(
        title="GiB", range=[0, max(held) * 1.08 or 1.0], gridcolor=GRID, zeroline=False, automargin="left"
    )
    return figure


def _subtitle(peak: Peak) -> str:
    named = [f"{name} {format_bytes(size)}" for name, size in peak.held[:MOST_NAMED]]
    more = [f"{len(peak.held) - MOST_NAMED} more"] if len(peak.held) > MOST_NAMED else []
    return f"peak {format_bytes(peak.bytes)} at {format_seconds(peak.time_s)}: {', '.join(named + more) or 'nothing'}"
