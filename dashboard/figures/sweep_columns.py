"""Columns of a sweep's table: which are axes, which of two values is better, how a value is said; how figures look."""

from collections.abc import Iterable
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from ...simulator.figures.theme import FONT, GRID, TEXT
from ...simulator.units import format_named

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

text = partial(escape, quote=False)
"""What must not be taken for HTML, as text of a figure, which shows quotes only as they are."""

GREY = "#8C8C8C"
SCALE = ((0.0, "#2F7BD9"), (0.5, "#8C8C8C"), (1.0, "#D07A00"))
"""Of numbers: told apart with any colour vision, on light pages and on dark ones."""
INK = "#000000"
"""Of text on `SCALE`: its contrast is at least 4.9 everywhere on it."""
FEW = 8
"""Values of a column that are told apart one by one."""


def axes(frame: "pd.DataFrame") -> list[str]:
    """What the points of a sweep vary: the columns between `point` and `status`."""
    names = [str(name) for name in frame.columns]
    return names[names.index("point") + 1 : names.index("status")]


def numeric(frame: "pd.DataFrame") -> list[str]:
    """Columns of the report that hold numbers, less those that hold none at all."""
    return [
        str(name)
        for name in frame.columns
        if name != "point" and frame[name].dtype.kind in "iuf" and frame[name].notna().any()
    ]


def by_name(frame: "pd.DataFrame", column: str) -> bool:
    """Whether a column holds names, or a few values of an axis, rather than amounts."""
    return column not in numeric(frame) or (column in axes(frame) and frame[column].nunique() <= FEW)


def usable(frame: "pd.DataFrame") -> "pd.DataFrame":
    """The points that can be run: nothing refused, within memory and constraints."""
    return frame[frame["status"] == "ok"]


def more_is_better(column: str) -> bool:
    """Whether a larger value of a column is the better one: rates and utilization; of all else, less is."""
    return column.endswith("_per_s") or "_per_s_" in column or column.startswith(("mfu", "hfu", "goodput"))


def words(status: str) -> str:
    """What is said of the points of a status."""
    return _WORDS.get(status, status)


_WORDS = {
    "ok": "can be run",
    "infeasible": "are refused",
    "memory": "do not fit in memory",
    "constraint": "break a constraint",
}


def aim(column: str) -> str:
    """`less step_time_s` or `more mfu`, as text of a figure."""
    return f"{'more' if more_is_better(column) else 'less'} {text(column)}"


def plain(column: str, value: Any) -> str:
    """A cell as people read it: with its unit, `-` where there is none."""
    if value is None or value != value:
        return "-"
    if isinstance(value, str):
        return value
    return format_named(column, value.item() if hasattr(value, "item") else value)


def said(column: str, value: Any) -> str:
    """A cell as text of a figure, which must not be taken for HTML."""
    return text(plain(column, value))


def hover(frame: "pd.DataFrame", columns: Iterable[str]) -> list[str]:
    """What each point says of itself: its number, these columns, and why it cannot be run if it cannot."""
    shown = list(dict.fromkeys(columns))
    return [
        "<br>".join(
            [
                f"<b>point {text(str(row['point']))}</b>",
                *(f"{text(name)} = {said(name, row[name])}" for name in shown),
                *([] if row["status"] == "ok" else [f"{text(str(row['status']))}: {said('', row['reason'])}"]),
            ]
        )
        for row in frame.to_dict("records")
    ]


def ordered(values: "pd.Series[Any]") -> list[Any]:
    """The different values of a column: numbers by size, texts as they first come."""
    found = values.dropna()
    return sorted(found.unique().tolist()) if found.dtype.kind in "iufb" else list(dict.fromkeys(found.tolist()))


def laid_out(figure: "go.Figure", height_px: int, **layout: Any) -> "go.Figure":
    """The figure with the fonts, margins and clear background of all figures."""
    figure.update_layout(
        font={"family": FONT, "size": 12, "color": TEXT},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        height=height_px,
        margin={"t": 40, "b": 48, "l": 16, "r": 16},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": GREY, "activecolor": "#0072B2"},
        hoverlabel={"align": "left", "font": {"family": FONT}},
        **layout,
    )
    figure.update_xaxes(gridcolor=GRID, zeroline=False, automargin=True)
    figure.update_yaxes(gridcolor=GRID, zeroline=False, automargin=True)
    return figure
