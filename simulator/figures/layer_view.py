"""Inside the actions of one pipeline rank, kernel by kernel: warm-up, a pair (or a forward and a backward), cool-down.

`panels` chooses what is shown, `kernels` says what runs then; drawing is below them.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..base.units import format_bytes, format_seconds
from ..schedules import Grid
from ..systems.train_step.lower import ACTIONS
from ..timeline import Timeline
from .actions import COMPUTE, UPPER, boxes, cell_ids, drop_replicas
from .pipeline import INSIDE, KIND
from .spans import Window, time_text
from .theme import ACTION, LANE, ROWS, band, bars, ink, style

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

MOST_KERNELS = 48
WAITED = 0.3  # a panel starts behind a gap that is longer than this share of it
ROW_PX, PANEL_GAP_PX, HEAD_PX = 24, 62, 20
LANES = (COMPUTE, "tp", "cp", "ep", "etp", "fsdp", "dp", "edp", "dp_replicate", "edp_replicate", "d2h", "h2d")
LANE_NAME = {
    "d2h": "offload", "h2d": "onload", "edp": "dp of experts", "etp": "tp of experts", "dp_replicate": "dp of replicas",
    "edp_replicate": "dp of replicas of experts",
}  # fmt: skip
NETWORK = frozenset({
    "mlp_norm", "up", "down", "activation", "ffn_sub_norm", "post_norm", "router", "topk", "permute", "unpermute",
    "sort", "unsort", "experts", "expert_norm", "shared_gate", "add_shared", "latent_down", "latent_up",
    "ffn_streams",
})  # fmt: skip
"""Kernels of a layer's FFN or experts; all others are of attention, or of what replaces it."""
ENDS = frozenset({"embed", "final_norm", "logits", "loss"})
EXCHANGE, COPY = "exchange", "copy"
COLOUR = {
    "forward": ACTION["F"][0],
    "backward": ACTION["B"][0],
    "weight gradient": ACTION["W"][0],
    "computed again": ACTION["F"][1],
    EXCHANGE: LANE["ep"],
    COPY: LANE["offload"],
}
SHORT = {
    "dispatch": "EP-D", "combine": "EP-C", "dispatch_back": "EP-D B", "combine_back": "EP-C B", "tp all_gather": "AG",
    "tp reduce_scatter": "RS", "tp all_reduce": "AR",
}  # fmt: skip
_TAGS = re.compile(r"( L\d+)?( s\d+)?( m\d+)?$")


def is_in_network(kernel: str) -> bool:
    """Whether a kernel of this name is of an FFN, of experts, or of a tower's projector."""
    return kernel in NETWORK or kernel.startswith("projector")


def panels(found: "pd.DataFrame", rank: int) -> dict[str, Window]:
    """The cell of each panel, given all `boxes`: for each phase of the rank, the cell with the median time.

    Warm-up is before the first backward, cool-down behind the last forward. In between it is an overlapped pair, or a
    forward and the cell that follows it or that it follows, with the least idle time. Phases that the rank does not
    have are left out.
    """
    own = found[(found["rank"] == rank) & (found.half <= UPPER)].reset_index(drop=True)
    back = own.index[(own.kind != "F") | (own.half == UPPER)]
    ahead = own.index[own.kind == "F"]
    first, last = (back.min() if len(back) else len(own)), (ahead.max() if len(ahead) else -1)
    steady = own.loc[first:last]
    pairs = steady[steady.half == UPPER]
    shown = {"warm-up": _median(own.loc[: first - 1]), "cool-down": _median(own.loc[last + 1 :])}
    turns = own.index[(own.kind == "F").astype(int).diff().abs() == 1]
    turns = turns[(turns >= first) & (turns <= last + 1)]
    if len(pairs):
        shown["steady"] = _median(pairs)
    elif len(turns):
        turn = turns.to_list()[own.idle_s[turns].to_numpy().argmin()]
        shown["steady"] = Window(float(own.start_s[turn - 1]), float(own.end_s[turn]))
    return {name: window for name in ("warm-up", "steady", "cool-down") if (window := shown.get(name))}


def kernels(timeline: Timeline, grid: Grid, rank: int, window: Window) -> "pd.DataFrame":
    """The ops of a rank that run in the window, but for its host's.

    Columns: lane, cell (which of the rank's), name, label, layer, kind (a key of COLOUR), part (the piece of a layer
    that a kernel belongs to, empty on other lanes), start_s, end_s, bytes.
    """
    import pandas as pd

    program, cells, found = timeline.program, cell_ids(timeline.program, grid), []
    for lane, at in enumerate(program.lanes):
        if at.place != rank or at.name == "host" or " from " in at.name:
            continue
        ops = program.order[lane]
        inside = (timeline.end_s[ops] > window.start_s) & (timeline.start_s[ops] < window.end_s)
        ops = ops[inside & (timeline.end_s[ops] > timeline.start_s[ops])]
        for op in ops.tolist():
            label, layer = _TAGS.sub("", program.names[op]), int(program.tags["layer"][op])
            kind = _kind(at.name, label, int(program.tags["action"][op]))
            part = _part(label, layer, kind) if at.name == COMPUTE else ""
            found.append((_row(at.name), int(cells[op]), program.names[op], label, layer, kind, part,
                          timeline.start_s[op], timeline.end_s[op], int(program.bytes[op])))  # fmt: skip
    columns = ["lane", "cell", "name", "label", "layer", "kind", "part", "start_s", "end_s", "bytes"]
    return pd.DataFrame(found, columns=columns)


def parts(found: "pd.DataFrame") -> "pd.DataFrame":
    """Kernels of the same part of a layer that follow each other, as one: part, kind, start_s, end_s."""
    own = found[found.lane == COMPUTE].sort_values("start_s")
    run = (own.part != own.part.shift()).cumsum()
    rows = {"part": "first", "kind": "first", "start_s": "min", "end_s": "max"}
    return own.groupby(run, sort=False).agg(rows).reset_index(drop=True)


def first_part(found: "pd.DataFrame", window: Window) -> Window:
    """The part of a window to show first: at most MOST_KERNELS kernels, around the end of its first cell if there are
    two, else behind a long wait."""
    own = found[found.lane == COMPUTE].sort_values("start_s")
    start, end = own.start_s.to_numpy(), own.end_s.to_numpy()
    if not len(own):
        return window
    turn = np.flatnonzero(np.diff(own.cell.to_numpy()))
    gaps = start[1:] - end[:-1]
    first = 0
    if len(turn):
        first = max(int(turn[0]) + 1 - MOST_KERNELS // 2, 0)
    elif len(gaps) and gaps.max() > WAITED * (end[-1] - start[0]):
        first = int(gaps.argmax()) + 1
    begin, until = start[first], end[min(first + MOST_KERNELS, len(end)) - 1]
    margin = 0.01 * (until - begin)
    return Window(float(begin - margin), float(until + margin))


def layer_view(timeline: Timeline, grid: Grid, rank: int) -> "go.Figure":
    """A panel per phase; times count from the start of what it shows."""
    from plotly.subplots import make_subplots

    timeline = drop_replicas(timeline, grid)
    cells = boxes(timeline, grid)
    shown = panels(cells, rank)
    data = [kernels(timeline, grid, rank, window) for window in shown.values()]
    rows = [_rows(found) for found in data]
    heights = [ROW_PX * len(own) for own in rows]
    height = max(sum(heights) + PANEL_GAP_PX * (len(heights) - 1), ROW_PX)
    figure = make_subplots(
        rows=max(len(heights), 1), cols=1, row_heights=heights or None, vertical_spacing=PANEL_GAP_PX / height,
        subplot_titles=[f"{name}: {_says(cells, rank, window)}" for name, window in shown.items()] or None,
    )  # fmt: skip
    subtitle = f"rank {rank}: parts of layers, and the kernels and exchanges that they are made of"
    style(figure, "Kernels", subtitle, height, barmode="overlay", bargap=0, margin_l=110)
    figure.update_layout(margin_t=figure.layout.margin.t + HEAD_PX, height=figure.layout.height + HEAD_PX)
    figure.update_layout(uniformtext={"minsize": 8, "mode": "hide"}, legend_traceorder="normal",
                         legend_y=1 + (HEAD_PX + 6) / height)  # fmt: skip
    figure.update_annotations(x=0, xanchor="left", font_size=13)
    legend: set[str] = set()
    for i, (window, found, own) in enumerate(zip(shown.values(), data, rows, strict=True), start=1):
        figure.add_traces(_traces(found, own, legend, window.start_s), rows=i, cols=1)
        _panel(figure, i, own, first_part(found, window), window.start_s)
    return figure


def _panel(figure: "go.Figure", i: int, rows: Sequence[str], first: Window, zero_s: float) -> None:
    """Axes and bands of a panel."""
    figure.update_xaxes(range=[(time - zero_s) * 1e3 for time in first], title="", ticksuffix=" ms", row=i, col=1)
    figure.update_yaxes(**ROWS, range=[len(rows) - 0.5, -0.5], tickvals=list(range(len(rows))), ticktext=list(rows),
                        row=i, col=1)  # fmt: skip
    for at in range(len(rows)):
        band(figure, at - 0.42, at + 0.42, xref="x domain", row=i, col=1)


def _median(cells: "pd.DataFrame") -> Window | None:
    if not len(cells):
        return None
    order = np.argsort((cells.end_s - cells.start_s).to_numpy(), kind="stable")
    one = cells.iloc[int(order[(len(order) - 1) // 2])]
    return Window(float(one.start_s), float(one.end_s))


def _says(cells: "pd.DataFrame", rank: int, window: Window) -> str:
    """The cells that run in a window, in words."""
    own = cells[(cells["rank"] == rank) & (cells.start_s >= window.start_s) & (cells.end_s <= window.end_s)]
    columns = zip(own.kind, own.microbatch, own.stage, strict=True)
    what = [f"{KIND[kind]} of micro-batch {microbatch}, stage {stage}" for kind, microbatch, stage in columns]
    link = " beside " if (own.half > 0).any() else ", then "
    return f"{link.join(what)} ({format_seconds(window.end_s - window.start_s)})"


def _row(lane: str) -> str:
    return "sends" if " to " in lane else LANE_NAME.get(lane, lane)


def _kind(lane: str, label: str, action: int) -> str:
    """Forward kernels of an action that is no forward are computed again."""
    if lane in ("d2h", "h2d"):
        return COPY
    if lane != COMPUTE:
        return EXCHANGE
    if label.endswith("_wgrad"):
        return "weight gradient"
    if label.endswith("_dgrad") or label in ("B", "I"):
        return "backward"
    return "computed again" if action >= 0 and ACTIONS[action] in "BIW" else "forward"


def _part(label: str, layer: int, kind: str) -> str:
    base = label.removesuffix("_dgrad").removesuffix("_wgrad")
    piece = "MLP" if is_in_network(base) else base if base in ENDS or layer < 0 else "Attn"
    suffix = {"weight gradient": "W", "backward": "B", "forward": "F", "computed again": "again"}[kind]
    return f"{piece} {suffix}" + (f" L{layer}" if layer >= 0 else "")


def _rows(found: "pd.DataFrame") -> list[str]:
    """Rows of a panel, top down."""
    names = ["parts", *dict.fromkeys(_row(lane) for lane in LANES)]
    names.insert(2, "sends")
    used = {"parts", *found.lane}
    return [name for name in names if name in used] + sorted(used - set(names))


def _traces(found: "pd.DataFrame", rows: Sequence[str], legend: set[str], zero_s: float) -> "list[go.Bar]":
    """A trace per kind; times count from the start of the window."""
    import pandas as pd

    blocks = parts(found).assign(lane="parts", bytes=0)
    blocks = blocks.assign(label=blocks.part, name=blocks.part)
    every = pd.concat([blocks, found], ignore_index=True)
    traces = []
    for kind, colour in COLOUR.items():
        own = every[every.kind == kind]
        if len(own):
            y = [rows.index(lane) for lane in own.lane]
            start, length = (own.start_s - zero_s).to_numpy() * 1e3, (own.end_s - own.start_s).to_numpy() * 1e3
            traces.append(
                bars(
                    kind, length, y, None, _hovers(own), base=start, width=0.84,
                    marker={"color": colour, "line": {"color": "white", "width": 0.5}},
                    text=[SHORT.get(label, label) for label in own.label], **INSIDE,
                    insidetextfont={"size": 11, "color": ink(colour)}, legendgroup=kind, showlegend=kind not in legend,
                )
            )  # fmt: skip
            legend.add(kind)
    return traces


def _hovers(own: "pd.DataFrame") -> list[str]:
    columns = own[["name", "lane", "start_s", "end_s", "bytes"]].itertuples(index=False)
    return [
        "<br>".join([f"<b>{name}</b>", lane, time_text(start_s, end_s), *([format_bytes(size)] if size else [])])
        for name, lane, start_s, end_s, size in columns
    ]
