"""Seconds of a weight update by phase: how long anything of it runs, and what of that others wait for."""

from typing import TYPE_CHECKING

from ...simulator.base.units import format_seconds
from ...simulator.figures.theme import PALETTE, styled
from ...simulator.systems.weight_update.report import Report

if TYPE_CHECKING:
    import plotly.graph_objects as go

ROW_PX = 30


def phases(report: Report) -> "go.Figure":
    """Two bars for each phase that takes time; those on the critical path sum to the whole."""
    import plotly.graph_objects as go

    names = [name for name, busy_s in report.busy_s.items() if busy_s > 0 or report.exposed.get(name, 0) > 0]
    exposed = [report.exposed.get(name, 0.0) for name in names]
    figure = go.Figure(
        [
            _bars("on the critical path", names, exposed, PALETTE[0]),
            _bars("busy anywhere", names, [report.busy_s[name] for name in names], PALETTE[4]),
        ]
    )
    subtitle = f"{format_seconds(report.makespan_s)} in all, bound by {report.bound_by}"
    styled(figure, "Seconds by phase", subtitle, ROW_PX * max(len(names), 2), barmode="group", bargap=0.25)
    figure.update_xaxes(title="seconds", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", showgrid=False, ticklabelstandoff=6, fixedrange=True, automargin="left")
    return figure


def _bars(name: str, phases: list[str], seconds: list[float], colour: str) -> "go.Bar":
    import plotly.graph_objects as go

    return go.Bar(
        orientation="h", name=name, x=seconds, y=phases, marker={"color": colour, "line": {"width": 0}},
        hovertext=[f"<b>{one}</b><br>{name}: {format_seconds(s)}" for one, s in zip(phases, seconds, strict=True)],
        hoverinfo="text",
    )  # fmt: skip
