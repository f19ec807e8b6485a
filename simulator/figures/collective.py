"""Figures of a collective: seconds, or bus bandwidth, by size, a line for each algorithm."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .profile import Axis, predicted_lines

if TYPE_CHECKING:
    import plotly.graph_objects as go

_SIZE = Axis("size", binary=True)


def time_by_size(rows: Sequence[Any], title: str) -> "go.Figure":
    """Seconds over size with 90 % intervals; dashed: extrapolated.

    `rows` have bytes, algorithm, seconds, low_s, high_s, busbw_bytes_per_s and provenance.
    """
    values = ((row, row.seconds, row.low_s, row.high_s) for row in rows)
    return _lines(values, title, Axis("time", "s"))


def busbw_by_size(rows: Sequence[Any], title: str) -> "go.Figure":
    """Bus bandwidth over size, likewise: what each port carries."""
    each = ((row, row.busbw_bytes_per_s, row.high_s / row.seconds) for row in rows if row.seconds)
    values = ((row, rate, rate / factor, rate * factor) for row, rate, factor in each)
    return _lines(values, title, Axis("bus bandwidth", "B/s"))


def _lines(values: Iterator[tuple[Any, float, float, float]], title: str, axis: Axis) -> "go.Figure":
    import pandas as pd

    points = [
        {
            "panel": "", "line": getattr(row, "job", "") or row.algorithm, "x": row.bytes,
            "y": y, "low": low, "high": high,
            "outside": row.provenance in ("extrapolated", "assumed"),
        }
        for row, y, low, high in values
    ]  # fmt: skip
    return predicted_lines(pd.DataFrame(points), title, "bands: 90 % intervals", _SIZE, axis, columns=1)
