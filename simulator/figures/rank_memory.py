"""Memory of a training step: by owner on one pipeline rank, and the total of all; the bytes come from the caller.

Tables are step functions: `time_s`, a column of bytes per owner from then on, and `total`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.units import format_bytes, format_seconds
from .theme import ACTIVATIONS, FULL, MEMORY, OTHERS, PALETTE, TITLE_PX, style

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

MOST_OWNERS, MOST_TIMES, MOST_OF_MANY = 9, 1500, 300
PLOT_PX = 340
NEAR, LIFT = 0.85, 0.06  # of the device: peaks whose text would lie on its line, and how far above a line text stands


def memory_by_owner(table: "pd.DataFrame", capacity_bytes: float, end_s: float, rank: int) -> "go.Figure":
    """Stacked areas of what a pipeline rank holds, the peak marked, against what its device has."""
    import plotly.graph_objects as go

    rows, owners = _rows(table), _owners(table)
    colours = [
        MEMORY.get(name) or (OTHERS if name.endswith(" others") else ACTIVATIONS[i % len(ACTIVATIONS)])
        for i, name in enumerate(owners)
    ]
    figure = go.Figure(
        [
            _line(name, rows, columns, end_s, 0, stackgroup="held", fillcolor=colour)
            for (name, columns), colour in zip(owners.items(), colours, strict=True)
        ]
    )
    peak_bytes, at_s = _peak(table)
    peak = f"peak {format_bytes(peak_bytes)} at {format_seconds(at_s)} of {format_bytes(capacity_bytes)}"
    style(figure, "Memory by owner", f"pipeline rank {rank}, which holds most: {peak}", PLOT_PX)
    return _with_limits(figure, at_s, peak_bytes, capacity_bytes, end_s)


def memory_by_rank(tables: "Mapping[int, pd.DataFrame]", capacity_bytes: float, end_s: float) -> "go.Figure":
    """The total of every pipeline rank as a line, the highest peak marked, against what a device has."""
    import plotly.graph_objects as go
    from plotly.colors import sample_colorscale

    many = len(tables) > len(PALETTE)
    most = MOST_OF_MANY if many else MOST_TIMES
    # of many, a scale from dark blue to orange, as neighbours hold about the same
    colours = sample_colorscale("Cividis", len(tables)) if many else PALETTE
    figure = go.Figure(
        [
            _line(f"rank {rank}", _rows(table, most), ["total"], end_s, 1.5, line_color=colour)
            for (rank, table), colour in zip(tables.items(), colours, strict=False)
        ]
    )
    peaks = [_peak(table) for table in tables.values()]
    sizes = [size for size, _ in peaks]
    peak_bytes, at_s = max(peaks, key=lambda peak: peak[0])
    over = sum(size > capacity_bytes for size in sizes)
    fits = f"{over} of {len(peaks)} do not fit" if over else "all fit"
    between = f"peaks from {format_bytes(min(sizes))} to {format_bytes(peak_bytes)} of {format_bytes(capacity_bytes)}"
    style(figure, "Memory of all pipeline ranks", f"{between}: {fits}", PLOT_PX)
    return _with_limits(figure, at_s, peak_bytes, capacity_bytes, end_s)


def _rows(table: "pd.DataFrame", most: int = MOST_TIMES) -> "pd.DataFrame":
    """At most `most` rows; of consecutive rows the one with the largest total, so that peaks stay."""
    if len(table) <= most:
        return table
    group = np.arange(len(table)) * most // len(table)
    kept = table.groupby(group).total.idxmax().to_numpy()
    return table.loc[np.unique(np.concatenate([table.index[:1], kept, table.index[-1:]]))]


def _owners(table: "pd.DataFrame") -> dict[str, list[str]]:
    """Columns by area, from the bottom: what is there all the time, activations, and small ones together."""
    names = [name for name in table.columns if name not in ("time_s", "total")]
    largest = sorted(names, key=lambda name: -table[name].max())
    shown = set(largest[:MOST_OWNERS]) if len(largest) > MOST_OWNERS + 1 else set(names)
    ordered = [name for name in (*MEMORY, *(name for name in names if name not in MEMORY)) if name in shown]
    rest = [name for name in names if name not in shown]
    return {name: [name] for name in ordered} | ({f"{len(rest)} others": rest} if rest else {})


def _line(
    name: str, rows: "pd.DataFrame", columns: Sequence[str], end_s: float, width: float, **look: Any
) -> "go.Scatter":
    """GiB in steps, the last of them until the end."""
    import plotly.graph_objects as go

    times, held = rows.time_s.to_numpy(np.float64), rows[columns].sum(axis=1).to_numpy(np.float64) / 2**30
    return go.Scatter(
        x=np.append(times, max(end_s, times.max())), y=np.append(held, held[-1]), mode="lines", name=name,
        line_shape="hv", line_width=width, hovertemplate=f"{name}: %{{y:.2f}} GiB<extra></extra>", **look,
    )  # fmt: skip


def _peak(table: "pd.DataFrame") -> tuple[float, float]:
    at = int(table.total.to_numpy().argmax())
    return float(table.total.iloc[at]), float(table.time_s.iloc[at])


def _with_limits(
    figure: "go.Figure", at_s: float, peak_bytes: float, capacity_bytes: float, end_s: float
) -> "go.Figure":
    """The peak with its size, to the side where there is room, and above the line of the device where that is near."""
    near = NEAR * capacity_bytes < peak_bytes <= capacity_bytes
    text_bytes = (capacity_bytes if near else peak_bytes) + LIFT * max(capacity_bytes, peak_bytes)
    figure.add_annotation(
        x=at_s, y=peak_bytes / 2**30, text=f"peak {format_bytes(peak_bytes)}", ax=0, ay=text_bytes / 2**30, ayref="y",
        xanchor="left" if at_s < end_s / 2 else "right", arrowhead=2, arrowsize=0.8, name="peak",
    )  # fmt: skip
    figure.add_hline(
        y=capacity_bytes / 2**30, line={"color": FULL, "width": 1.5, "dash": "dash"}, name="capacity",
        annotation_text=f"device {format_bytes(capacity_bytes)}", annotation_position="bottom right",
    )  # fmt: skip
    top = max(capacity_bytes, peak_bytes) / 2**30 * 1.14
    figure.update_layout(legend={"orientation": "v", "x": 1.01, "y": 1, "yanchor": "top"}, margin_t=TITLE_PX)
    figure.update_xaxes(range=[0, end_s or 1.0])
    return figure.update_yaxes(title="GiB", range=[0, top], automargin="left", ticklabelstandoff=6)
