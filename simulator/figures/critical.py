"""The critical path over the bars of a timeline: a line through the rows of its ops, from the first to the last."""

from collections.abc import Callable
from itertools import groupby
from typing import TYPE_CHECKING

from ..insight import critical_path
from ..timeline import Timeline
from .theme import FULL

if TYPE_CHECKING:
    import plotly.graph_objects as go

CRITICAL_PATH = "critical path"


def add_critical_line(figure: "go.Figure", timeline: Timeline, height_of: Callable[[int], float | None]) -> None:
    """Add the line; `height_of` an op is where its bar stands, or None where it is not shown, which breaks the line.

    It is drawn once one asks for it in the legend.
    """
    import plotly.graph_objects as go

    x, y = list[float | None](), list[float | None]()
    ops = critical_path(timeline).ops.tolist()
    for height, same in groupby(ops, height_of):
        first, *others = same
        last = others[-1] if others else first
        ends = (float(timeline.start_s[first]), float(timeline.end_s[last])) if height is not None else (None, None)
        x += ends
        y += (height, height)
    if not ops:
        return
    figure.add_trace(go.Scatter(
        x=x, y=y, mode="lines", name=CRITICAL_PATH, line={"color": FULL, "width": 2.5, "simplify": False},
        visible="legendonly", uid=CRITICAL_PATH, hovertemplate="critical path at %{x:.4s}s<extra></extra>",
    ))  # fmt: skip
