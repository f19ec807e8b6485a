"""The Gantt chart of a Timeline: devices down, time across. Which op stands where comes from `timeline.chart`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base.units import format_seconds
from ..timeline import Timeline, chart, few_ranks
from ..timeline.chart import STEPS, labels, row_names
from ..timeline.ranks import all_alike
from .bars import hover, thinned
from .theme import BAND, colours, styled

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

ROW_PX = 17
SLIM = 0.55  # height of the row of other steps
GAP = 0.6  # between devices
Rows = Mapping[tuple[int, str], tuple[float, float]]  # centre and height of each (rank, row), downwards


def gantt(
    timeline: Timeline,
    ranks: Sequence[int] | None = None,
    title: str = "Timeline",
    window_s: tuple[float, float] | None = None,
) -> "go.Figure":
    """Bars of what runs when: on the rows of a weight update's buffers, or on lanes for any other Program.

    Without `ranks`, all are shown if they are few, else the first ones. Very short ops are drawn together where there
    are thousands of them; the subtitle says so. With `window_s` (from, to) that is what is seen, and fewer are together
    there.
    """
    import plotly.graph_objects as go

    shown = sorted(set(few_ranks(timeline.program) if ranks is None else ranks))
    bars, shared_s = thinned(chart(timeline, shown), window_s=window_s)
    rows = _rows(bars, row_names(timeline.program))
    figure = go.Figure(_traces(bars, rows, labels(timeline.program)))
    bottom = max((centre + height / 2 for centre, height in rows.values()), default=1.0)
    styled(figure, title, _subtitle(timeline, shown, shared_s), ROW_PX * (bottom + GAP), barmode="overlay")
    figure.update_xaxes(range=window_s or [0, timeline.makespan_s or 1.0])
    figure.update_yaxes(**_row_axis(rows), range=[bottom + GAP / 2, -GAP / 2])
    _name_devices(figure, rows)
    return figure


def _subtitle(timeline: Timeline, shown: Sequence[int], shared_s: float) -> str:
    world = timeline.program.ranks
    devices = f"{world} devices" if len(shown) == world else f"{len(shown)} of {world} devices shown"
    alike = ", all alike" if len(shown) < world and all_alike(timeline.program) else ""
    together = f"; ops shorter than {format_seconds(shared_s)} are drawn together" if shared_s else ""
    return f"{format_seconds(timeline.makespan_s)} in all; {devices}{alike}{together}"


def _rows(bars: "pd.DataFrame", names: Sequence[str]) -> Rows:
    """Where the rows go, top down: those of each rank that hold a bar, then a gap."""
    rows: dict[tuple[int, str], tuple[float, float]] = {}
    used, top = set(zip(bars["rank"], bars.row, strict=True)), 0.0
    for rank in sorted(set(bars["rank"])):
        for name in (name for name in names if (rank, name) in used):
            height = SLIM if name == STEPS else 1.0
            rows[rank, name] = (top + height / 2, height)
            top += height
        top += GAP
    return rows


def _traces(bars: "pd.DataFrame", rows: Rows, labels: Sequence[str]) -> "list[go.Bar]":
    """One trace per label: thousands of bars in each, not thousands of traces."""
    colour = colours(labels)
    present = set(bars.label)
    return [_trace(bars[bars.label == label], rows, label, colour[label]) for label in labels if label in present]


def _trace(bars: "pd.DataFrame", rows: Rows, label: str, colour: str) -> "go.Bar":
    import plotly.graph_objects as go

    places = [rows[key] for key in zip(bars["rank"], bars.row, strict=True)]
    return go.Bar(
        orientation="h",
        name=label,
        base=bars.start_s,
        x=bars.end_s - bars.start_s,
        y=[centre for centre, _ in places],
        width=[height * 0.86 for _, height in places],
        marker={"color": colour, "line": {"width": 0}},
        hovertext=hover(bars),
        hoverinfo="text",
    )


def _row_axis(rows: Rows) -> dict[str, Any]:
    return {
        "tickvals": [centre for centre, _ in rows.values()],
        "ticktext": [name for _, name in rows],
        "tickfont": {"size": 10},
        "ticklabelstandoff": 6,
        "showgrid": False,
        "zeroline": False,
        "automargin": "left",
        "fixedrange": True,  # zooming is along time
    }


def _name_devices(figure: "go.Figure", rows: Rows) -> None:
    """A band behind the rows of each device, with its number at the left."""
    for rank in dict.fromkeys(rank for rank, _ in rows):
        own = [place for (one, _), place in rows.items() if one == rank]
        top, bottom = own[0][0] - own[0][1] / 2, own[-1][0] + own[-1][1] / 2
        figure.add_shape(type="rect", xref="paper", x0=0, x1=1, y0=top - 0.1, y1=bottom + 0.1, fillcolor=BAND,
                         line_width=0, layer="below")  # fmt: skip
        figure.add_annotation(text=f"<b>device {rank}</b>", xref="paper", x=0, xanchor="right", xshift=-92,
                              y=(top + bottom) / 2, showarrow=False)  # fmt: skip
    figure.update_layout(margin_l=176)
