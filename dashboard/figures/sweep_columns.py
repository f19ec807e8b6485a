"""Columns of a sweep's table: which are axes, which of two values is better, how a value is said; how figures look."""

from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from ...simulator.base.units import format_named, memory_unit
from ...simulator.figures.theme import FONT, GRID, TEXT

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


def aim(column: str, title: str = "") -> str:
    """`less step_time_s` or `more mfu`, as text of a figure; a title of the column may stand for its name."""
    return f"{'more' if more_is_better(column) else 'less'} {title or text(column)}"


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


def drawn(column: str, values: "pd.Series[Any]") -> tuple[list[Any], str]:
    """A column as an axis has it, and the title of the axis: bytes in the largest unit that one of them reaches, other
    numbers as they are, all else as text that is not HTML.
    """
    if values.dtype.kind not in "iuf":
        return [said("", str(value)) for value in values], said("", column)
    if not column.endswith("bytes") or values.dropna().empty:
        return values.tolist(), said("", column)
    unit, size = memory_unit(values.abs().max())
    return (values / size).tolist(), f"{said('', column)} in {unit}"


def ticks(column: str) -> dict[str, str]:
    """How an axis, or a scale of colours, writes the numbers of a column: those of bytes stand as `drawn` has them."""
    form = next((form for end, form in _TICKS.items() if column.endswith(end)), {})
    return {"exponentformat": "SI", **form}


_TICKS: Mapping[str, dict[str, str]] = {
    "tokens_per_s": {},
    "requests_per_s": {},
    "bytes_per_s": {"ticksuffix": "B/s"},
    "_s": {"ticksuffix": "s"},
    "_usd": {"tickprefix": "$"},
    **{share: {"tickformat": ".3~p"} for share in ("mfu", "_fraction", "_share", "goodput")},
}


def hover(frame: "pd.DataFrame", x: str, y: str, colour: str) -> list[str]:
    """What each point says of itself: its number, its axes and these columns, why it cannot be run if it cannot, and
    which others have the same `x` and `y`, and so the same place.
    """
    shown = list(dict.fromkeys([*axes(frame), x, y, colour]))
    there = {place: group["point"].tolist() for place, group in frame.groupby([x, y], sort=False)}
    return [
        "<br>".join(
            [
                f"<b>point {text(str(row['point']))}</b>",
                *(f"{text(name)} = {said(name, row[name])}" for name in shown),
                *([] if row["status"] == "ok" else [f"{text(str(row['status']))}: {said('', row['reason'])}"]),
                *_others(row["point"], there[row[x], row[y]]),
            ]
        )
        for row in frame.to_dict("records")
    ]


def _others(number: int, there: Sequence[int]) -> list[str]:
    """A line that names the other points of a place, the first few of many."""
    others = [str(one) for one in there if one != number]
    more = f" and {len(others) - FEW} more" if len(others) > FEW else ""
    return [f"here, too: point {', '.join(others[:FEW])}{more}"] if others else []


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
