"""Columns of a sweep's table: which are axes, which of two values is better, how a value is said; how figures look."""

from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from ...simulator.base.units import format_named, memory_unit
from ...simulator.figures.theme import FONT, GRID, PALETTE, TEXT

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


# Points of a sweep in two of its columns, coloured by a third, with the Pareto front of those that can be run.

_ENTRY_PX = 20
"""Of the legend above: names that are long stand below each other."""


def front(frame: "pd.DataFrame", x: str, y: str) -> "pd.DataFrame":
    """The points that can be run of which no other is as good in both columns and better in one, by x.

    Of points with the same two values all are kept. Which way is better is the columns' own (`more_is_better`).
    """
    points = usable(frame).dropna(subset=[x, y])
    ways = [not more_is_better(x), not more_is_better(y)]
    best = float("inf")
    kept: list[Any] = []
    sign = 1 if ways[1] else -1
    for _, group in points.sort_values([x, y], ascending=ways).groupby(x, sort=False):
        lowest = sign * group[y].iloc[0]
        if lowest < best:
            best = lowest
            kept.extend(group.index[group[y] == group[y].iloc[0]])
    return points.loc[kept].sort_values([x, y], kind="stable")


def scatter(frame: "pd.DataFrame", x: str, y: str, colour: str, all_points: bool = True) -> "go.Figure":
    """A figure whose points carry their numbers as `customdata`; crosses cannot be run, and can be left out."""
    import pandas as pd
    import plotly.graph_objects as go

    points = frame.dropna(subset=[x, y])
    points = points if all_points else usable(points)
    (across, x_title), (up, y_title) = drawn(x, points[x]), drawn(y, points[y])
    of = {"point": points["point"], "status": points["status"], "colour": points[colour]}
    dots = pd.DataFrame({**of, "x": across, "y": up, "told": hover(points, x, y, colour)}, index=points.index)
    figure = go.Figure()
    for status, group in dots[dots["status"] != "ok"].groupby("status", sort=True):
        marker = {"symbol": "x-thin-open", "size": 9, "color": GREY, "line": {"width": 1.5}}
        figure.add_trace(_marked(group, said("", words(str(status))), marker))
    _usable(figure, usable(dots), colour, by_name(frame, colour))
    if x != y and {x, y} <= set(numeric(frame)):
        best = dots.loc[front(frame, x, y).index]
        line = {"color": "#D55E00", "width": 1.5, "dash": "dot"}
        name = f"Pareto front: {aim(x)}, {aim(y)}"
        figure.add_trace(go.Scatter(x=best["x"], y=best["y"], mode="lines", line=line, name=name, hoverinfo="skip"))
    laid_out(figure, 380 + _ENTRY_PX * len(figure.data), clickmode="event")
    for update, column, title in ((figure.update_xaxes, x, x_title), (figure.update_yaxes, y, y_title)):
        update(title={"text": title}, **ticks(column))
        if column not in numeric(frame):
            update(type="category", categoryarray=[said("", value) for value in ordered(frame[column].astype(str))])
    return figure


def _usable(figure: "go.Figure", dots: "pd.DataFrame", colour: str, by_name: bool) -> None:
    """One trace with a scale of numbers, or one for each text."""
    if not by_name:
        shades, title = drawn(colour, dots["colour"])
        scale = {"color": shades, "colorscale": SCALE, "colorbar": {"title": {"text": title}, **ticks(colour)}}
        marker = {"size": 9, "line": {"width": 0.5, "color": GREY}, **scale}
        figure.add_trace(_marked(dots, words("ok"), marker))
        return
    for place, value in enumerate(ordered(dots["colour"])):
        marker = {"size": 9, "color": PALETTE[place % len(PALETTE)]}
        called = f"{said('', colour)} {said(colour, value)}" if dots["colour"].dtype.kind in "iuf" else said("", value)
        figure.add_trace(_marked(dots[dots["colour"] == value], called, marker))


def _marked(dots: "pd.DataFrame", name: str, marker: dict[str, Any]) -> "go.Scatter":
    import plotly.graph_objects as go

    return go.Scatter(
        x=dots["x"].tolist(), y=dots["y"].tolist(), mode="markers", name=name, marker=marker,
        customdata=dots["point"].tolist(), hovertext=dots["told"].tolist(), hoverinfo="text",
    )  # fmt: skip


# A value of a sweep's points over two of its axes; where several points share a cell, the best of them.

MOST_TEXT = 48
"""Characters that cells beside each other have room for; what is longer is told under the mouse alone."""
MOST_TICKS = 32
"""Values that an axis names; of more, one in so many."""


def cells(frame: "pd.DataFrame", across: str, up: str, value: str) -> "pd.DataFrame":
    """For each pair of values of two columns the point with the best value among those that can be run.

    Columns `across`, `up`, `point`, `value`, and `of`: how many points that can be run share the cell.
    """
    points = usable(frame).dropna(subset=[across, up, value])
    table = points.assign(across=points[across], up=points[up], value=points[value])
    best = table.sort_values("value", ascending=not more_is_better(value), kind="stable")
    first = best.groupby(["across", "up"], sort=False).first().reset_index()
    counts = table.groupby(["across", "up"], sort=False).size().to_dict()
    of = [counts[row.across, row.up] for row in first.itertuples()]
    return first.assign(of=of)[["across", "up", "point", "value", "of"]]


def heat(frame: "pd.DataFrame", across: str, up: str, value: str) -> "go.Figure":
    """A cell for each pair of values, blank where no point can be run; `customdata` are numbers of points."""
    import plotly.graph_objects as go

    columns, rows = ordered(frame[across]), ordered(frame[up])
    best = cells(frame, across, up, value)
    shades, title = drawn(value, best["value"])
    found = {(row.across, row.up): row for row in best.assign(shade=shades).itertuples()}
    grid = [[found.get((column, row)) for column in columns] for row in rows]
    text = [["" if cell is None else said(value, cell.value) for cell in line] for line in grid]
    across_text, up_text = [said(across, name) for name in columns], [said(up, name) for name in rows]
    fits = len(columns) * max((len(one) for line in text for one in line), default=0) <= MOST_TEXT
    trace = go.Heatmap(
        z=[[None if cell is None else cell.shade for cell in line] for line in grid],
        customdata=[[None if cell is None else cell.point for cell in line] for line in grid],
        text=text if fits else None,
        texttemplate="%{text}" if fits else None,
        textfont={"color": INK},
        hovertext=[
            [f"{column}, {row}<br>{_told(cell, value)}" for column, cell in zip(across_text, line, strict=True)]
            for row, line in zip(up_text, grid, strict=True)
        ],
        hoverinfo="text",
        colorscale=SCALE,
        xgap=2,
        ygap=2,
        colorbar={"title": {"text": aim(value, title)}, **ticks(value)},
    )
    figure = laid_out(go.Figure(trace), 120 + max(240, 40 * len(rows)))
    figure.update_xaxes(title={"text": said("", across)}, showgrid=False, **_ticks(across_text))
    figure.update_yaxes(title={"text": said("", up)}, showgrid=False, **_ticks(up_text))
    return figure


def _ticks(texts: Sequence[str]) -> dict[str, Any]:
    """Values by their places: two that differ may have the same text."""
    step = max(1, -(-len(texts) // MOST_TICKS))
    return {"tickvals": list(range(0, len(texts), step)), "ticktext": texts[::step]}


def _told(cell: Any, value: str) -> str:
    if cell is None:
        return "no point can be run"
    best = f", the best of {cell.of}" if cell.of > 1 else ""
    return f"{said('', value)} = {said(value, cell.value)}<br>point {cell.point}{best}"


# Parallel coordinates: a line for each point of a sweep that can be run, across several of its columns.

_SIDE_PX, _MOST_LEFT_PX, _LETTER_PX = 72, 220, 7
"""Room beside the axes: the names of the first one stand left of it."""


def parallel(frame: "pd.DataFrame", columns: Sequence[str], colour: str) -> "go.Figure":
    """Lines over these columns, texts in order of appearance; numbers of `colour` colour them, texts by their order."""
    import plotly.graph_objects as go

    points = usable(frame).dropna(subset=[name for name in columns if name in numeric(frame)])
    shade = _dimension(points, colour)
    scale: dict[str, Any] = {"color": shade["values"], "colorscale": SCALE} if len(points) else {"color": GREY}
    if colour in numeric(points):
        scale |= {"showscale": True, "colorbar": {"title": {"text": shade["label"]}, **ticks(colour)}}
    lines = go.Parcoords(
        dimensions=[_dimension(points, name) for name in dict.fromkeys(columns)],
        line=scale,
        labelside="top",
        tickfont={"size": 11},
        rangefont={"size": 1, "color": "rgba(0,0,0,0)"},
    )
    figure = laid_out(go.Figure(lines), 420)
    first = lines.dimensions[0].ticktext if lines.dimensions else None
    left_px = min(_MOST_LEFT_PX, max(_SIDE_PX, *(_LETTER_PX * len(text) for text in first))) if first else _SIDE_PX
    return figure.update_layout(margin={"t": 64, "b": 24, "l": left_px, "r": _SIDE_PX})


def _dimension(points: "pd.DataFrame", name: str) -> dict[str, Any]:
    values, label = drawn(name, points[name])
    if name in numeric(points):
        named = {"tickvals": sorted(set(values))} if by_name(points, name) else {}
        return {"label": label, "values": values, **named}
    texts = points[name].fillna("").astype(str)
    known = ordered(texts)
    return {
        "label": label,
        "values": [known.index(text) for text in texts],
        "tickvals": list(range(len(known))),
        "ticktext": [said("", text) or "as is" for text in known],
    }
