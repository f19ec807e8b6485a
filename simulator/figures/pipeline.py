"""The pipeline of a training step as papers draw it: ranks down, time across, a box per action with its micro-batch.

What stands where comes from `actions`. Chunks of a rank go from dark to light; the two actions of an overlapped pair
share its box, the forward above. Thin lines below a rank are its exchanges and copies.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.units import format_count, format_seconds
from ..schedules import Grid
from ..timeline import Timeline
from . import actions
from .actions import LOWER, UPPER
from .critical import add_critical_line
from .spans import Window, time_text
from .theme import ACTION, GREY, LANE, ROWS, axis_ends, band, bars, buttons, ink, rgb, style

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

KIND = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
LANE_NAME = {
    "tp, cp": "TP and CP", "ep": "EP", "sends": "sends to other ranks", "dp": "DP", "offload": "offload",
    "onload": "onload",
}  # fmt: skip
ACTION_PX, HALVED_PX, LANE_PX, GAP_PX = 30, 40, 7, 10  # a box, one that is halved, a line, between ranks
LINE_PX = 17
HALF_DIGIT = "\u2004"  # a space that plots keep
MANY_RANKS, FLAT = 16, 0.6  # beyond so many, rows are flatter by this factor
PALE = "rgba(255,255,255,0.72)"
BUBBLE = "rgba(128,128,128,0.3)"
LEAST_BUBBLE = 400
"""Shorter ones than such a part of what is seen are not told apart."""
LEAST_DIGIT_PX = 2  # a digit is wider also on a screen that is twice as wide
WIDE = 1400  # pixels across: boxes narrower than one of them have no edge
INSIDE = {"textposition": "inside", "insidetextanchor": "middle", "textangle": 0, "constraintext": "inside"}
"""Text of boxes stands in them, where it has room."""


def pipeline(
    timeline: Timeline,
    grid: Grid,
    title: str = "Pipeline",
    window_s: Window | None = None,
    most_spans: int | None = None,
    opens_near: bool = False,
) -> "go.Figure":
    """The whole step, with buttons that show parts of it (see `actions.windows`).

    With `window_s` that is what is seen, and there actions are told apart that share a box in the whole. `opens_near`
    shows a part of a step with very many actions at first. `most_spans` is the most exchanges that are drawn apart, of
    a figure that is drawn anew when it is zoomed; without it all that it may show is in it.
    """
    import plotly.graph_objects as go

    whole, timeline = timeline, actions.drop_replicas(timeline, grid)
    found = actions.boxes(timeline, grid)
    window_s = window_s or (actions.first_look(found, timeline.makespan_s) if opens_near else None)
    drawn, cells = actions.few_boxes(found, window=window_s)
    spans, bin_s = actions.traffic(timeline, most_spans or actions.MOST_SPANS, window_s)
    lanes = [name for name in actions.TRAFFIC if name in set(spans.lane)]
    rows = _Rows(grid.ranks, lanes, HALVED_PX if grid.pairs else ACTION_PX)
    parts = actions.windows(found, timeline.makespan_s)
    seen = window_s or parts["all"]
    gaps = actions.waits(timeline, grid, seen.length_s / 100 if cells > 1 else 0.0)
    ends = actions.endings(timeline, grid)
    idle = actions.bubbles(found, ends, seen.length_s / LEAST_BUBBLE)
    traces = [
        *_actions(drawn, rows, seen, drawn_anew=most_spans is not None),
        *_others(ends, gaps, idle, rows),
        *_traffic(spans, rows),
    ]
    subtitle = _subtitle(found, grid, timeline.makespan_s, cells, bin_s, len(gaps) > 0)
    figure = style(go.Figure(traces), title, subtitle, rows.height, barmode="overlay", bargap=0, margin_l=72)
    add_critical_line(figure, whole, rows.of_op(whole))
    figure.update_layout(uniformtext={"minsize": 8, "mode": "hide"})
    figure.layout.margin.t += LINE_PX  # a second line below the title
    figure.layout.height += LINE_PX
    figure.update_layout(updatemenus=buttons(parts, seen))
    figure.update_xaxes(**axis_ends(parts["all"], seen))
    figure.update_yaxes(
        **ROWS, range=[rows.height, 0], tickvals=[rows.action(rank) for rank in range(grid.ranks)],
        ticktext=[f"rank {rank}" for rank in range(grid.ranks)],
    )  # fmt: skip
    for rank in range(grid.ranks):
        band(figure, rows.top(rank), rows.top(rank) + rows.action_px)
    return figure


class _Rows:
    """The positions of rows in pixels from the top: for each rank a row of actions, then a thin line per lane."""

    def __init__(self, ranks: int, lanes: list[str], action_px: float):
        self._ranks = ranks
        scale = 1.0 if ranks <= MANY_RANKS else FLAT
        self.action_px, self.lane_px, self.gap_px = (px * scale for px in (action_px, LANE_PX, GAP_PX))
        self._lane = {lane: i for i, lane in enumerate(lanes)}
        self._each = self.action_px + len(lanes) * self.lane_px + self.gap_px
        self.height = ranks * self._each

    def top(self, rank: int) -> float:
        """The upper edge of a rank's actions."""
        return rank * self._each + self.gap_px / 2

    def action(self, rank: int, half: int = 0) -> float:
        """The middle of a box."""
        return self.top(rank) + self.action_px * {UPPER: 0.25, LOWER: 0.75}.get(half, 0.5)

    def of_op(self, timeline: Timeline) -> Callable[[int], float | None]:
        """The middle of the actions of an op's rank; None of a rank that is not drawn."""

        def height(op: int) -> float | None:
            first = timeline.program.places_of(op)[0]
            return self.action(first) if first < self._ranks else None

        return height

    def lane(self, rank: int, lane: str) -> float:
        """The middle of a thin line."""
        return self.top(rank) + self.action_px + (self._lane[lane] + 0.6) * self.lane_px


def _subtitle(found: "pd.DataFrame", grid: Grid, makespan_s: float, cells: int, bin_s: float, paled: bool) -> str:
    ranks, steps = format_count(grid.ranks, "pipeline rank"), format_count(grid.microbatches, "micro-batch")
    chunks = ", chunks from dark to light" if found.chunk.nunique() > 1 else ""
    pairs = ", overlapped pairs as halves of a box" if (found.half > 0).any() else ""
    waiting = ", pale where they wait" if paled else ""
    together = f"; up to {cells} actions of a kind drawn as one box" if cells > 1 else ""
    bins = f"; exchanges within {format_seconds(bin_s)} drawn together" if bin_s else ""
    head = f"{format_seconds(makespan_s)}; {grid.name or 'grid'}, {ranks}, {steps}"
    return f"{head}<br>{''.join([chunks, pairs, waiting, together, bins]).lstrip(',; ') or 'micro-batches by number'}"


def _actions(drawn: "pd.DataFrame", rows: _Rows, seen: Window, drawn_anew: bool) -> "Iterator[go.Bar]":
    """One trace per kind."""
    chunks = int(drawn.chunk.max()) + 1 if len(drawn) else 1
    typical = float(drawn.length_s.median()) / seen.length_s * WIDE
    edge = {"color": "white", "width": 1 if typical > 8 else 0.4 if typical > 3 else 0}
    for kind in (kind for kind in ACTION if kind in set(drawn.kind)):
        own = drawn[drawn.kind == kind].sort_values(["chunk", "start_s"])
        colours = [shade(kind, chunk, chunks) for chunk in own.chunk]
        y = [rows.action(*place) for place in zip(own["rank"], own.half, strict=True)]
        yield bars(
            KIND[kind], own.length_s.to_numpy(), y, None, _hovers(own), base=own.start_s.to_numpy(),
            width=[rows.action_px * (0.5 if half else 1.0) * 0.96 for half in own.half],
            marker={"color": colours, "line": edge}, text=_texts(own, seen if drawn_anew else None), **INSIDE,
            insidetextfont={"size": 11, "color": [ink(colour) for colour in colours]},
        )  # fmt: skip


def shade(kind: str, chunk: int, chunks: int) -> str:
    """The colour of an action: the first chunk dark, the last one light."""
    dark, light = (np.array(rgb(colour)) for colour in ACTION[kind])
    mixed = dark + (light - dark) * (chunk / max(chunks - 1, 1))
    return "#" + "".join(f"{round(value):02X}" for value in mixed)


def _texts(own: "pd.DataFrame", seen: Window | None = None) -> list[str]:
    """Micro-batches; single ones all as wide as the longest, so that equal boxes show all their numbers or none.

    With `seen`, boxes that are far from it, or too narrow there for any text, have none: a browser measures each.
    """
    pairs = zip(own.microbatch.tolist(), own["last"].tolist(), strict=True)
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in pairs]
    widest = max(map(len, texts), default=0) if (own["count"] == 1).all() else 0
    full = [f"{HALF_DIGIT * (widest - len(text))}{text}{HALF_DIGIT * (widest - len(text))}" for text in texts]
    if seen is None:
        return full
    near = (own.start_s < seen.end_s + seen.length_s) & (own.end_s > seen.start_s - seen.length_s)
    room = own.length_s / seen.length_s * WIDE > [LEAST_DIGIT_PX * max(len(text), widest) for text in texts]
    return [text if legible else "" for text, legible in zip(full, near & room, strict=True)]


def _hovers(own: "pd.DataFrame") -> list[str]:
    columns = ["rank", "stage", "kind", "microbatch", "last", "count", "start_s", "length_s", "busy_s", "idle_s"]
    return [_hover(*row) for row in own[columns].itertuples(index=False)]


def _hover(
    rank: int, stage: int, kind: str, first: int, last: int, count: int, start_s: float, length_s: float,
    busy_s: float, idle_s: float,
) -> str:  # fmt: skip
    several = f"<b>{count} x {KIND[kind]}</b>, micro-batches {first} to {last}"
    what = f"<b>{KIND[kind]} of micro-batch {first}</b>" if count == 1 else several
    lines = [what, f"stage {stage} on rank {rank}", time_text(start_s, start_s + length_s)]
    lines.append(f"kernels {format_seconds(busy_s)}")
    if idle_s > 0:
        lines.append(f"idle before {format_seconds(idle_s)}")
    return "<br>".join(lines)


def _others(ends: "pd.DataFrame", gaps: "pd.DataFrame", idle: "pd.DataFrame", rows: _Rows) -> "Iterator[go.Bar]":
    """Boxes without a number: what is no part of an action, waits inside of actions, and waits between them."""
    ended = [
        f"<b>{name}</b><br>rank {rank}<br>{time_text(start, end)}"
        for rank, name, start, end in ends.itertuples(index=False)
    ]
    waited = [
        f"<b>waits {format_seconds(end - start)}</b> inside an action on rank {rank}<br>for {name or 'its start'}"
        for rank, start, end, name in gaps.itertuples(index=False)
    ]
    bubble = [
        f"<b>bubble: {format_seconds(end - start)}</b><br>rank {rank} waits<br>{time_text(start, end)}"
        for rank, start, end in idle.itertuples(index=False)
    ]
    for name, own, colour, text in (
        ("norm, optimizer", ends, GREY, ended), ("waits inside", gaps, PALE, waited), ("bubble", idle, BUBBLE, bubble)
    ):  # fmt: skip
        if len(own):
            start, length = own.start_s.to_numpy(np.float64), (own.end_s - own.start_s).to_numpy(np.float64)
            y = [rows.action(rank) for rank in own["rank"]]
            width = rows.action_px * 0.96
            yield bars(name, length, y, colour, text, base=start, width=width, showlegend=colour != PALE)


def _traffic(spans: "pd.DataFrame", rows: _Rows) -> "list[go.Scatter]":
    """One area per lane: thousands of spans are then one thing to draw, which lines with breaks are not."""
    import plotly.graph_objects as go

    return [
        go.Scatter(
            x=_corners(own.start_s, own.start_s, own.end_s, own.end_s),
            y=_corners(*_edges([rows.lane(rank, lane) for rank in own["rank"]], rows.lane_px - 2)),
            mode="none",
            name=LANE_NAME[lane],
            fill="toself",
            fillcolor=LANE[lane],
            hoveron="points",
            hovertemplate=f"{LANE_NAME[lane]} at %{{x:.4s}}s<extra></extra>",
        )
        for lane in LANE
        if len(own := spans[spans.lane == lane])
    ]


def _edges(middles: Sequence[float], height: float) -> "list[np.ndarray[Any, Any]]":
    """The heights of the corners of rectangles."""
    top, bottom = (np.array(middles) + side * height / 2 for side in (-1, 1))
    return [top, bottom, bottom, top]


def _corners(*places: Iterable[float]) -> "np.ndarray[Any, Any]":
    """A coordinate of all corners of each rectangle, and a break."""
    four = np.array([list(place) for place in places], np.float32)  # a microsecond in 10 s, at half the size of a page
    return np.vstack([four, np.full(four.shape[1], np.nan, np.float32)]).T.ravel()
