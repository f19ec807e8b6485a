"""Where the time of a training step goes, per pipeline rank; the seconds come from the report."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from ..base.units import format_seconds
from .pipeline import ink
from .theme import PHASE, colours, styled

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


# A tornado chart: by how much a total changes when numbers are a tenth better or worse, the strongest first.

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


# A waterfall: phases one behind the other, each from where the last one ends, down to their total.

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
_ROOM_UP = 1.25  # of the total, so that the text behind the last bar is inside


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
    figure.update_xaxes(range=[0, _ROOM_UP * total_s or 1.0])
    figure.update_yaxes(autorange="reversed", showgrid=False, ticklabelstandoff=6, fixedrange=True, automargin=True)
    return figure
