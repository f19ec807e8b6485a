"""Gantt charts of Timelines: devices down, time across. Which op stands where comes from `timeline.chart`."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..base.op_kinds import op_kind
from ..base.units import format_count, format_seconds
from ..costs import PHASES, phase_of_op
from ..costs.phases import COMPUTE, phase_of_lane
from ..timeline import Timeline, chart, few_ranks, spans_of_ranks
from ..timeline.chart import STEPS, labels, row_names
from ..timeline.ranks import all_alike
from .critical import add_critical_line
from .spans import Seconds, hover, thin_bars
from .theme import DARK_GREY, PHASE, ROWS, UPDATE, axis_ends, band, bars, colours, style

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

ROW_PX, LEFT_PX, NAME_PX = 17, 176, 92  # the names of devices stand so far left of the rows
SLIM = 0.55  # height of the row of other steps
GAP = 0.6  # between devices
KERNELS, EXCHANGES = "kernels", "exchanges"
Place = tuple[str, int, str]  # of whom, rank, row
Rows = Mapping[Place, tuple[float, float]]  # centre and height, downwards
Steps = Mapping[str, tuple[Timeline, Sequence[int] | None]]


def gantt(
    timeline: Timeline, ranks: Sequence[int] | None = None, title: str = "Timeline", window_s: Seconds | None = None
) -> "go.Figure":
    """Bars of what runs when: on the rows of a weight update's buffers, or on lanes for any other Program.

    Without `ranks`, all are shown if they are few, else the first ones, and those that are alike once. Very short ops
    are drawn together where there are thousands of them; the subtitle says so. With `window_s` (from, to) that is what
    is seen, and fewer are together there.
    """
    shown, alike = _distinct(timeline) if ranks is None else (sorted(set(ranks)), "")
    every, world = chart(timeline, shown), timeline.program.ranks
    drawn, shared_s = thin_bars(every, window=window_s)
    devices = format_count(world, "device") if len(shown) == world else f"{len(shown)} of {world} devices shown"
    subtitle = f"{format_seconds(timeline.makespan_s)} in all; {devices}{alike}{_together(shared_s)}"
    rows = _rows(drawn.assign(of="device"), row_names(timeline.program))
    figure = _draw(drawn.assign(of="device"), rows, colours(labels(timeline.program)), title, subtitle)
    add_critical_line(figure, timeline, _height_of(every, rows))
    return figure.update_xaxes(**axis_ends((0, timeline.makespan_s or 1.0), window_s))


def _distinct(timeline: Timeline) -> tuple[list[int], str]:
    """Few ranks, and what is said of them: one where all are alike, and one of those that do the same at one time."""
    program = timeline.program
    first = list(few_ranks(program))
    if len(first) < program.ranks and all_alike(program):
        return first[:1], ", all alike"
    every, done = chart(timeline, first), dict[str, int]()
    for rank in first:
        own = every.loc[every["rank"] == rank, ["row", "label", "start_s", "end_s"]]
        done.setdefault(own.to_csv(index=False), rank)
    return list(done.values()), ", alike ones once" if len(done) < len(first) else ""


def _height_of(every: "pd.DataFrame", rows: Rows) -> Callable[[int], float | None]:
    """The middle of the first row of an op; None of an op that is not shown."""
    first = every.drop_duplicates("op")
    height = {
        op: rows["device", rank, row][0]
        for op, rank, row in zip(first.op, first["rank"], first.row, strict=True)
        if ("device", rank, row) in rows
    }
    return height.get


def compare_steps(steps: Steps, window_s: Seconds | None = None) -> "go.Figure":
    """Training steps on one time axis, by the phases that all are split into: what is measured has no actions.

    `steps` are Timelines by name, each with the ranks to show (None: the first few), those of the first above those of
    the second: per rank a row of kernels and one of exchanges. `window_s` is as in `gantt`.
    """
    import pandas as pd

    thin = {name: thin_bars(_spans(timeline, ranks), window=window_s) for name, (timeline, ranks) in steps.items()}
    drawn = pd.concat([few.assign(of=f"{name} rank") for name, (few, _) in thin.items()], ignore_index=True)
    time_text = ", ".join(f"{name} {format_seconds(timeline.makespan_s)}" for name, (timeline, _) in steps.items())
    subtitle = time_text + _together(max(shared_s for _, shared_s in thin.values()))
    busy_s = (drawn.end_s - drawn.start_s).groupby(drawn.label).sum().sort_values()
    # a bar is a pixel wide at least, and what takes longest shall not be hidden by that
    colour = {phase: PHASE.get(phase, DARK_GREY) for phase in busy_s.index}
    figure = _draw(drawn, _rows(drawn, (KERNELS, EXCHANGES)), colour, "Timelines", subtitle)
    figure.for_each_trace(lambda trace: trace.update(legendrank=PHASES.index(trace.name)))
    whole_s = max(timeline.makespan_s for timeline, _ in steps.values())
    return figure.update_xaxes(**axis_ends((0, whole_s), window_s))


def overlay(sides: "Mapping[str, pd.DataFrame]", title: str = "Op by op") -> "go.Figure":
    """Spans of one Program from several runs, on one time axis: per rank and lane a row of each side.

    `sides` are spans by name, with the columns rank, lane, name, kind, start_s and end_s; all begin at 0.
    """
    import pandas as pd

    lanes = list(dict.fromkeys(lane for spans in sides.values() for lane in spans.lane))
    thin = {name: thin_bars(_of_side(name, spans)) for name, spans in sides.items()}
    drawn = pd.concat([few for few, _ in thin.values()], ignore_index=True)
    busy_s = (drawn.end_s - drawn.start_s).groupby(drawn.label).sum().sort_values(ascending=False)
    text = ", ".join(f"{name} {format_seconds(spans.end_s.max())}" for name, spans in sides.items())
    rows = _rows(drawn, [f"{lane}, {name}" for lane in lanes for name in sides])
    colour = {label: (PHASE | UPDATE).get(label, DARK_GREY) for label in busy_s.index}
    subtitle = text + _together(max(shared_s for _, shared_s in thin.values()))
    figure = _draw(drawn, rows, colour, title, subtitle, name_px=2 * NAME_PX)
    return figure.update_xaxes(**axis_ends((0, max(spans.end_s.max() for spans in sides.values()))))


def _of_side(name: str, spans: "pd.DataFrame") -> "pd.DataFrame":
    """Spans as bars of one side; host lanes only issue and are left out."""
    spans = spans[spans.lane != "host"]
    queued_s = spans.start_s - spans.ready_s if "ready_s" in spans else 0.0
    size = spans.get("bytes", 0)
    kinds = map(op_kind, spans.kind)
    label = [kind.phase or kind.step or phase_of_lane(lane) for kind, lane in zip(kinds, spans.lane, strict=True)]
    return spans.assign(of="rank", row=spans.lane + f", {name}", label=label, queued_s=queued_s, bytes=size)


def _spans(timeline: Timeline, ranks: Sequence[int] | None) -> "pd.DataFrame":
    """The spans of kernels and exchanges on the ranks; host lanes only issue and are left out."""
    spans = spans_of_ranks(timeline, ranks)
    phases = np.array(PHASES, object)[phase_of_op(timeline.program)][spans.op]
    rows = np.where(spans.lane == COMPUTE, KERNELS, EXCHANGES)
    spans = spans.assign(label=phases, row=rows)[spans.lane != "host"]
    return spans.drop_duplicates(["rank", "op", "row"], ignore_index=True)


def _together(shared_s: float) -> str:
    return f"; ops shorter than {format_seconds(shared_s)} are drawn together" if shared_s else ""


def _rows(drawn: "pd.DataFrame", names: Sequence[str]) -> Rows:
    """The positions of rows from the top: the rows with bars of each rank, then a gap."""
    rows, top = dict[Place, tuple[float, float]](), 0.0
    used = dict.fromkeys(zip(drawn.of, drawn["rank"], drawn.row, strict=True))
    for of in dict.fromkeys(drawn.of):
        for rank in sorted({rank for one, rank, _ in used if one == of}):
            for name in (name for name in names if (of, rank, name) in used):
                height = SLIM if name == STEPS else 1.0
                rows[of, rank, name] = (top + height / 2, height)
                top += height
            top += GAP
        top += GAP
    return rows


def _draw(
    drawn: "pd.DataFrame", rows: Rows, colour: Mapping[str, str], title: str, subtitle: str, name_px: int = NAME_PX
) -> "go.Figure":
    """One trace per label, in the order of their colours: thousands of bars in each, not thousands of traces."""
    import plotly.graph_objects as go

    present = set(drawn.label)
    traces = [_bars(drawn[drawn.label == label], rows, label, of) for label, of in colour.items() if label in present]
    bottom = max((centre + height / 2 for centre, height in rows.values()), default=1.0)
    figure = style(
        go.Figure(traces),
        title,
        subtitle,
        ROW_PX * (bottom + GAP),
        barmode="overlay",
        margin_l=LEFT_PX - NAME_PX + name_px,
    )
    figure.update_yaxes(
        **ROWS, range=[bottom + GAP / 2, -GAP / 2], tickvals=[centre for centre, _ in rows.values()],
        ticktext=[name for _, _, name in rows], tickfont={"size": 10}, automargin="left",
    )  # fmt: skip
    for of, rank in dict.fromkeys((of, rank) for of, rank, _ in rows):
        own = [place for (one, other, _), place in rows.items() if (one, other) == (of, rank)]
        top, end = own[0][0] - own[0][1] / 2, own[-1][0] + own[-1][1] / 2
        band(figure, top - 0.1, end + 0.1)
        figure.add_annotation(text=f"<b>{of} {rank}</b>", xref="paper", x=0, xanchor="right", xshift=-name_px,
                              y=(top + end) / 2, showarrow=False)  # fmt: skip
    return figure


def _bars(own: "pd.DataFrame", rows: Rows, label: str, colour: str) -> "go.Bar":
    places = [rows[key] for key in zip(own.of, own["rank"], own.row, strict=True)]
    y, width = [centre for centre, _ in places], [height * 0.86 for _, height in places]
    return bars(label, own.end_s - own.start_s, y, colour, hover(own), base=own.start_s, width=width)
