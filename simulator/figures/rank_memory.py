"""Memory of a training step: by owner on one pipeline rank, and the total of all; the bytes come from the caller.

Tables are step functions: `time_s`, a column of bytes per owner from then on, and `total`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..base.units import format_bytes, format_seconds
from .theme import GRID, PALETTE, TITLE_PX, styled

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

MOST_OWNERS, MOST_TIMES, MOST_OF_MANY = 9, 1500, 300
FIXED = ("weights", "gradients", "master weights", "optimizer moments")
COLOUR = {"weights": "#003F66", "gradients": "#0072B2", "master weights": "#56B4E9", "optimizer moments": "#B5DBF0"}
MORE = ("#E69F00", "#009E73", "#CC79A7", "#D55E00", "#B8A800", "#882255", "#44AA99", "#F2A27A")
REST = "#BFBFBF"
FULL = "#C1272D"
NEAR, LIFT = 0.85, 0.06  # of the device: peaks whose text would lie on its line, and how far above a line text stands
Floats = NDArray[np.float64]


def memory_by_owner(
    table: "pd.DataFrame", capacity_bytes: float, end_s: float, rank: int, title: str = "Memory"
) -> "go.Figure":
    """Stacked areas of what a pipeline rank holds, the peak marked, against what its device has."""
    import plotly.graph_objects as go

    rows = _rows(table)
    owners = _owners(table)
    figure = go.Figure(
        [
            _area(name, _steps(rows.time_s, end_s), _held(sum_of, rows), _colour(name, i))
            for i, (name, sum_of) in enumerate(owners.items())
        ]
    )
    peak_bytes, at_s = _peak(table)
    subtitle = (
        f"pipeline rank {rank}, which holds most: peak {format_bytes(peak_bytes)} at {format_seconds(at_s)} "
        f"of {format_bytes(capacity_bytes)}"
    )
    styled(figure, f"{title} by owner", subtitle, 340)
    _mark(figure, at_s, peak_bytes, capacity_bytes, end_s)
    return _axes(figure, capacity_bytes, peak_bytes, end_s)


def memory_by_rank(
    tables: "Mapping[int, pd.DataFrame]", capacity_bytes: float, end_s: float, title: str = "Memory"
) -> "go.Figure":
    """The total of every pipeline rank as a line, the highest peak marked, against what a device has."""
    import plotly.graph_objects as go

    figure = go.Figure()
    many = len(tables) > len(PALETTE)
    for i, (rank, table) in enumerate(tables.items()):
        rows = _rows(table, MOST_OF_MANY if many else MOST_TIMES)
        figure.add_trace(
            go.Scatter(
                x=_steps(rows.time_s, end_s),
                y=_held(["total"], rows),
                mode="lines",
                name=f"rank {rank}",
                line={"shape": "hv", "width": 1.5, "color": _of_rank(i, len(tables))},
                hovertemplate=f"rank {rank}: %{{y:.2f}} GiB<extra></extra>",
            )
        )
    peaks = {rank: _peak(table) for rank, table in tables.items()}
    fullest = max(peaks, key=lambda rank: peaks[rank][0])
    peak_bytes, at_s = peaks[fullest]
    low = min(size for size, _ in peaks.values())
    over = [rank for rank, (size, _) in peaks.items() if size > capacity_bytes]
    fits = "all fit" if not over else f"{len(over)} of {len(peaks)} do not fit"
    subtitle = f"peaks from {format_bytes(low)} to {format_bytes(peak_bytes)} of {format_bytes(capacity_bytes)}: {fits}"
    styled(figure, f"{title} of all pipeline ranks", subtitle, 340)
    _mark(figure, at_s, peak_bytes, capacity_bytes, end_s)
    return _axes(figure, capacity_bytes, peak_bytes, end_s)


def _rows(table: "pd.DataFrame", most: int = MOST_TIMES) -> "pd.DataFrame":
    """At most so many rows: of many that follow each other, that of the largest total, so that peaks stay."""
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
    ordered = [name for name in (*FIXED, *(name for name in names if name not in FIXED)) if name in shown]
    rest = [name for name in names if name not in shown]
    return {name: [name] for name in ordered} | ({f"{len(rest)} others": rest} if rest else {})


def _colour(name: str, i: int) -> str:
    return COLOUR.get(name) or (REST if name.endswith(" others") else MORE[i % len(MORE)])


def _steps(times: "pd.Series[float]", end_s: float) -> Floats:
    return np.append(times.to_numpy(np.float64), max(end_s, float(times.max())))


def _held(columns: list[str], rows: "pd.DataFrame") -> Floats:
    """GiB, the last of them until the end."""
    held = rows[columns].sum(axis=1).to_numpy(np.float64) / 2**30
    return np.append(held, held[-1])


def _area(name: str, times: Floats, held: Floats, colour: str) -> "go.Scatter":
    import plotly.graph_objects as go

    return go.Scatter(
        x=times,
        y=held,
        mode="lines",
        name=name,
        stackgroup="held",
        line={"shape": "hv", "width": 0},
        fillcolor=colour,
        hovertemplate=f"{name}: %{{y:.2f}} GiB<extra></extra>",
    )


def _of_rank(i: int, ranks: int) -> str:
    """A palette for few; for many, a scale from dark blue to orange, as neighbours hold about the same."""
    if ranks <= len(PALETTE):
        return PALETTE[i]
    from plotly.colors import sample_colorscale

    return str(sample_colorscale("Cividis", [i / (ranks - 1)])[0])


def _peak(table: "pd.DataFrame") -> tuple[float, float]:
    at = int(table.total.to_numpy().argmax())
    return float(table.total.iloc[at]), float(table.time_s.iloc[at])


def _mark(figure: "go.Figure", at_s: float, peak_bytes: float, capacity_bytes: float, end_s: float) -> None:
    """The peak with its size, to the side where there is room, and above the line of the device where that is near."""
    near = NEAR * capacity_bytes < peak_bytes <= capacity_bytes
    text_bytes = (capacity_bytes if near else peak_bytes) + LIFT * max(capacity_bytes, peak_bytes)
    figure.add_annotation(
        x=at_s, y=peak_bytes / 2**30, text=f"peak {format_bytes(peak_bytes)}", ax=0, ay=text_bytes / 2**30, ayref="y",
        xanchor="left" if at_s < end_s / 2 else "right", arrowhead=2, arrowsize=0.8, name="peak",
    )  # fmt: skip


def _axes(figure: "go.Figure", capacity_bytes: float, peak_bytes: float, end_s: float) -> "go.Figure":
    size: dict[str, Any] = {"line": {"color": FULL, "width": 1.5, "dash": "dash"}, "name": "capacity"}
    figure.add_hline(
        y=capacity_bytes / 2**30, **size, annotation_text=f"device {format_bytes(capacity_bytes)}",
        annotation_position="bottom right", annotation_font_color=FULL,
    )  # fmt: skip
    top = max(capacity_bytes, peak_bytes) / 2**30 * 1.14
    figure.update_layout(legend={"orientation": "v", "x": 1.01, "y": 1, "yanchor": "top"}, margin_t=TITLE_PX)
    figure.update_xaxes(range=[0, end_s or 1.0])
    figure.update_yaxes(title="GiB", range=[0, top], gridcolor=GRID, zeroline=False, automargin="left",
                        ticklabelstandoff=6)  # fmt: skip
    return figure
