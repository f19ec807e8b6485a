"""Two training steps on one time axis, by the phases that both are split into: what is measured has no actions.

Per rank a row of kernels and a row of exchanges; the ranks of the first step are above those of the second.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..base.units import format_seconds
from ..costs import PHASES, phase_of_op
from ..costs.phases import COMPUTE
from ..timeline import Timeline, few_ranks, spans_of_ranks
from .bars import hover, thinned
from .theme import BAND, PHASE, styled

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

ROW_PX, GAP = 17, 0.6
KERNELS, EXCHANGES = "kernels", "exchanges"
Place = tuple[str, int, str]  # step, rank, row
Steps = Mapping[str, tuple[Timeline, Sequence[int] | None]]


def steps_beside(
    steps: Steps, title: str = "When what ran", window_s: tuple[float, float] | None = None
) -> "go.Figure":
    """Bars by phase; `steps` are Timelines by name, each with the ranks to show (None: the first few).

    With `window_s` (from, to) that is what is seen, and fewer are drawn together there.
    """
    import pandas as pd
    import plotly.graph_objects as go

    thin = {name: thinned(_spans(timeline, ranks), window_s=window_s) for name, (timeline, ranks) in steps.items()}
    places = _places({name: bars for name, (bars, _) in thin.items()})
    figure = go.Figure()
    both = pd.concat([bars.assign(step=name) for name, (bars, _) in thin.items()], ignore_index=True)
    busy_s = (both.end_s - both.start_s).groupby(both.label).sum().sort_values()
    for phase in busy_s.index:  # a bar is a pixel wide at least, and what takes longest shall not be hidden by that
        figure.add_trace(_bars(phase, both[both.label == phase], places))
    bottom = max(places.values(), default=0.0) + 0.5
    styled(figure, title, _subtitle(steps, max(shared_s for _, shared_s in thin.values())),
           ROW_PX * (bottom + GAP), barmode="overlay")  # fmt: skip
    figure.update_layout(margin_l=176)
    figure.update_xaxes(range=window_s or [0, max(timeline.makespan_s for timeline, _ in steps.values())])
    figure.update_yaxes(range=[bottom + GAP / 2, -GAP / 2], tickvals=list(places.values()),
                        ticktext=[row for _, _, row in places], tickfont={"size": 10}, ticklabelstandoff=6,
                        showgrid=False, zeroline=False, fixedrange=True)  # fmt: skip
    _name_ranks(figure, places)
    return figure


def _spans(timeline: Timeline, ranks: Sequence[int] | None) -> "pd.DataFrame":
    """What kernels and exchanges do on the ranks; hosts only issue, and are left out."""
    spans = spans_of_ranks(timeline, few_ranks(timeline.program) if ranks is None else ranks)
    labels = np.array(PHASES, object)[phase_of_op(timeline.program)][spans.op]
    rows = np.where(spans.lane == COMPUTE, KERNELS, EXCHANGES)
    spans = spans.assign(label=labels, row=rows)[spans.lane != "host"]
    return spans.drop_duplicates(["rank", "op", "row"], ignore_index=True)


def _places(bars: "Mapping[str, pd.DataFrame]") -> dict[Place, float]:
    """The middle of each row, downwards."""
    places, top = dict[Place, float](), 0.0
    for name, own in bars.items():
        used = set(zip(own["rank"], own.row, strict=True))
        for rank in sorted(set(own["rank"])):
            for row in (row for row in (KERNELS, EXCHANGES) if (rank, row) in used):
                places[name, rank, row] = top + 0.5
                top += 1
            top += GAP
        top += GAP
    return places


def _bars(phase: str, own: "pd.DataFrame", places: Mapping[Place, float]) -> "go.Bar":
    """The bars of a phase on both steps as one trace."""
    import plotly.graph_objects as go

    return go.Bar(
        orientation="h",
        name=phase,
        legendrank=PHASES.index(phase),
        base=own.start_s,
        x=own.end_s - own.start_s,
        y=[places[key] for key in zip(own.step, own["rank"], own.row, strict=True)],
        width=0.86,
        marker={"color": PHASE.get(phase, "#444444"), "line": {"width": 0}},
        hovertext=hover(own),
        hoverinfo="text",
    )


def _subtitle(steps: Steps, shared_s: float) -> str:
    took = ", ".join(f"{name} {format_seconds(timeline.makespan_s)}" for name, (timeline, _) in steps.items())
    return took + (f"; ops shorter than {format_seconds(shared_s)} are drawn together" if shared_s else "")


def _name_ranks(figure: "go.Figure", places: Mapping[Place, float]) -> None:
    for name, rank in dict.fromkeys((name, rank) for name, rank, _ in places):
        own = [at for (one, other, _), at in places.items() if (one, other) == (name, rank)]
        figure.add_shape(type="rect", xref="paper", x0=0, x1=1, y0=own[0] - 0.6, y1=own[-1] + 0.6, fillcolor=BAND,
                         line_width=0, layer="below")  # fmt: skip
        figure.add_annotation(text=f"<b>{name} rank {rank}</b>", xref="paper", x=0, xanchor="right", xshift=-72,
                              y=sum(own) / len(own), showarrow=False)  # fmt: skip
