"""A sweep's table: which columns are axes, which of two values is better, how they are said; and its figures."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...simulator.base.units import format_named, memory_unit
from ...simulator.figures.theme import CLEAR, GREY, GRID, LOOK, PALETTE, RED, plain
from ...simulator.systems.registry import SYSTEMS

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

SCALE = ((0.0, "#2F7BD9"), (0.5, GREY), (1.0, "#D07A00"))
"""Of numbers: told apart with any colour vision, on light pages and on dark ones."""
INK = "#000000"
"""Of text on `SCALE`: its contrast is at least 4.9 everywhere on it."""
FEW = 8
"""Values of a column that are told apart one by one."""


def axes(frame: "pd.DataFrame") -> list[str]:
    """What the points of a sweep vary: the columns between `point` and `status`."""
    names = [str(name) for name in frame.columns]
    return names[names.index("point") + 1 : names.index("status")]


def number_columns(frame: "pd.DataFrame") -> list[str]:
    """Columns of the report that hold numbers, less those that hold none at all."""
    return [
        str(name)
        for name in frame.columns
        if name != "point" and frame[name].dtype.kind in "iuf" and frame[name].notna().any()
    ]


def is_named(frame: "pd.DataFrame", column: str) -> bool:
    """Whether a column holds names, or a few values of an axis, rather than amounts."""
    return column not in number_columns(frame) or (column in axes(frame) and frame[column].nunique() <= FEW)


def runnable(frame: "pd.DataFrame") -> "pd.DataFrame":
    """The points that can be run: nothing refused, within memory and constraints."""
    return frame[frame["status"] == "ok"]


_HIGHER = {one.name for system in SYSTEMS.values() for one in system.report.metrics if one.better == "higher"}


def more_is_better(column: str) -> bool:
    """Whether a larger value of a column is the better one, as its metric says; of all else, less is."""
    return column.removeprefix("update_") in _HIGHER


STATUS = {
    "ok": "can be run",
    "infeasible": "are refused",
    "memory": "do not fit in memory",
    "constraint": "break a constraint",
}
"""What is said of the points of a status."""


def _aim(column: str, title: str = "") -> str:
    """`less step_time_s` or `more mfu`, as text of a figure; a title of the column may stand for its name."""
    return f"{'more' if more_is_better(column) else 'less'} {title or plain(column)}"


def cell_text(column: str, value: Any) -> str:
    """A cell as people read it: with its unit, `-` where there is none."""
    if value is None or value != value:
        return "-"
    return value if isinstance(value, str) else format_named(column, value.item() if hasattr(value, "item") else value)


def _safe(column: str, value: Any) -> str:
    """A cell as text of a figure, which must not be taken for HTML."""
    return plain(cell_text(column, value))


def _drawn(column: str, values: "pd.Series[Any]") -> tuple[list[Any], str]:
    """A column as an axis has it, and the title of the axis: bytes in the largest unit that one of them reaches, other
    numbers as they are, all else as text that is not HTML.
    """
    if values.dtype.kind not in "iuf":
        return [plain(str(value)) for value in values], plain(column)
    if not column.endswith("bytes") or values.dropna().empty:
        return values.tolist(), plain(column)
    unit, size = memory_unit(values.abs().max())
    return (values / size).tolist(), f"{plain(column)} in {unit}"


def _number_format(column: str) -> dict[str, str]:
    """How an axis, or a scale of colours, writes the numbers of a column: those of bytes stand as `_drawn` has them."""
    form = next((form for end, form in _FORMATS.items() if column.endswith(end)), {})
    return {"exponentformat": "SI", **form}


_FORMATS: Mapping[str, dict[str, str]] = {
    "tokens_per_s": {},
    "requests_per_s": {},
    "bytes_per_s": {"ticksuffix": "B/s"},
    "_s": {"ticksuffix": "s"},
    "_usd": {"tickprefix": "$"},
    **{share: {"tickformat": ".3~p"} for share in ("mfu", "_fraction", "_share", "goodput")},
}


def _hover(frame: "pd.DataFrame", x: str, y: str, colour: str) -> list[str]:
    """What each point says of itself: its number, its axes and these columns, why it cannot be run if it cannot, and
    which others have the same `x` and `y`, and so the same place.
    """
    shown = list(dict.fromkeys([*axes(frame), x, y, colour]))
    there = {place: group["point"].tolist() for place, group in frame.groupby([x, y], sort=False)}
    return [
        "<br>".join(
            [
                f"<b>point {row['point']}</b>",
                *(f"{plain(name)} = {_safe(name, row[name])}" for name in shown),
                *([] if row["status"] == "ok" else [f"{plain(str(row['status']))}: {plain(str(row['reason']))}"]),
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


def _distinct(values: "pd.Series[Any]") -> list[Any]:
    """The different values of a column: numbers by size, texts as they first come."""
    found = values.dropna()
    return sorted(found.unique().tolist()) if found.dtype.kind in "iufb" else list(dict.fromkeys(found.tolist()))


def _lay_out(figure: "go.Figure", height_px: int, **layout: Any) -> "go.Figure":
    """The figure with the look of all figures, and no title."""
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}
    margin = {"t": 40, "b": 48, "l": 16, "r": 16}
    figure.update_layout(height=height_px, margin=margin, legend=legend, **LOOK, **layout)
    figure.update_xaxes(gridcolor=GRID, zeroline=False, automargin=True)
    return figure.update_yaxes(gridcolor=GRID, zeroline=False, automargin=True)


# Points of a sweep in two of its columns, coloured by a third, with the Pareto front of those that can be run.

_ENTRY_PX = 20
"""Of the legend above: names that are long stand below each other."""


def front(frame: "pd.DataFrame", x: str, y: str) -> "pd.DataFrame":
    """The points that can be run of which no other is as good in both columns and better in one, by x.

    Of points with the same two values all are kept. Which way is better is the columns' own (`more_is_better`).
    """
    points = runnable(frame).dropna(subset=[x, y])
    cost_x, cost_y = (-points[name] if more_is_better(name) else points[name] for name in (x, y))
    least = cost_y.groupby(cost_x).min()
    best = least[least < least.cummin().shift(fill_value=float("inf"))]
    return points[cost_y == cost_x.map(best)].sort_values([x, y], kind="stable")


def scatter(frame: "pd.DataFrame", x: str, y: str, colour: str, all_points: bool = True) -> "go.Figure":
    """A figure whose points carry their numbers as `customdata`; crosses cannot be run, and can be left out."""
    import pandas as pd
    import plotly.graph_objects as go

    points = frame.dropna(subset=[x, y])
    points = points if all_points else runnable(points)
    (across, x_title), (up, y_title) = _drawn(x, points[x]), _drawn(y, points[y])
    of = {"point": points["point"], "status": points["status"], "colour": points[colour]}
    dots = pd.DataFrame({**of, "x": across, "y": up, "hover": _hover(points, x, y, colour)}, index=points.index)
    figure = go.Figure()
    for status, group in dots[dots["status"] != "ok"].groupby("status", sort=True):
        marker = {"symbol": "x-thin-open", "size": 9, "color": GREY, "line": {"width": 1.5}}
        _add(figure, group, plain(STATUS.get(str(status), str(status))), marker)
    _add_runnable(figure, runnable(dots), colour, is_named(frame, colour))
    if x != y and {x, y} <= set(number_columns(frame)):
        best = dots.loc[front(frame, x, y).index]
        line = {"color": RED, "width": 1.5, "dash": "dot"}
        name = f"Pareto front: {_aim(x)}, {_aim(y)}"
        figure.add_scatter(x=best["x"], y=best["y"], mode="lines", line=line, name=name, hoverinfo="skip")
    _lay_out(figure, 380 + _ENTRY_PX * len(figure.data), clickmode="event")
    for update, column, title in ((figure.update_xaxes, x, x_title), (figure.update_yaxes, y, y_title)):
        update(title={"text": title}, **_number_format(column))
        if column not in number_columns(frame):
            update(type="category", categoryarray=[plain(value) for value in _distinct(frame[column].astype(str))])
    return figure


def _add_runnable(figure: "go.Figure", dots: "pd.DataFrame", colour: str, by_name: bool) -> None:
    """One trace with a scale of numbers, or one for each text."""
    if not by_name:
        shades, title = _drawn(colour, dots["colour"])
        colorbar = {"title": {"text": title}, **_number_format(colour)}
        scale = {"color": shades, "colorscale": SCALE, "colorbar": colorbar}
        _add(figure, dots, STATUS["ok"], {"size": 9, "line": {"width": 0.5, "color": GREY}, **scale})
        return
    amounts = dots["colour"].dtype.kind in "iuf"
    for place, value in enumerate(_distinct(dots["colour"])):
        name = f"{plain(colour)} {_safe(colour, value)}" if amounts else _safe("", value)
        _add(figure, dots[dots["colour"] == value], name, {"size": 9, "color": PALETTE[place % len(PALETTE)]})


def _add(figure: "go.Figure", dots: "pd.DataFrame", name: str, marker: dict[str, Any]) -> None:
    """A trace of points that carry their numbers."""
    figure.add_scatter(
        x=dots["x"].tolist(), y=dots["y"].tolist(), mode="markers", name=name, marker=marker,
        customdata=dots["point"].tolist(), hovertext=dots["hover"].tolist(), hoverinfo="text",
    )  # fmt: skip


# A value of a sweep's points over two of its axes; where several points share a cell, the best of them.

MOST_TEXT = 48
"""Characters that cells beside each other have room for; what is longer is told under the mouse alone."""
MOST_TICKS = 32
"""Values that an axis names; of more, one in so many."""


def best_cells(frame: "pd.DataFrame", across: str, up: str, value: str) -> "pd.DataFrame":
    """For each pair of values of two columns the point with the best value among those that can be run.

    Columns `across`, `up`, `point`, `value`, and `of`: how many points that can be run share the cell.
    """
    points = runnable(frame).dropna(subset=[across, up, value])
    table = points.assign(across=points[across], up=points[up], value=points[value])
    cells = table.sort_values("value", ascending=not more_is_better(value), kind="stable").groupby(["across", "up"])
    return cells.first().assign(of=cells.size()).reset_index()[["across", "up", "point", "value", "of"]]


def heat(frame: "pd.DataFrame", across: str, up: str, value: str) -> "go.Figure":
    """A cell for each pair of values, blank where no point can be run; `customdata` are numbers of points."""
    import plotly.graph_objects as go

    columns, rows = _distinct(frame[across]), _distinct(frame[up])
    best = best_cells(frame, across, up, value)
    shades, title = _drawn(value, best["value"])
    found = {(row.across, row.up): row for row in best.assign(shade=shades).itertuples()}
    grid = [[found.get((column, row)) for column in columns] for row in rows]
    text = [["" if cell is None else _safe(value, cell.value) for cell in line] for line in grid]
    across_text, up_text = [_safe(across, name) for name in columns], [_safe(up, name) for name in rows]
    fits = len(columns) * max((len(one) for line in text for one in line), default=0) <= MOST_TEXT
    hover = [
        [f"{column}, {row}<br>{_cell_hover(cell, value)}" for column, cell in zip(across_text, line, strict=True)]
        for row, line in zip(up_text, grid, strict=True)
    ]
    trace = go.Heatmap(
        z=[[None if cell is None else cell.shade for cell in line] for line in grid],
        customdata=[[None if cell is None else cell.point for cell in line] for line in grid],
        text=text if fits else None, texttemplate="%{text}" if fits else None, textfont={"color": INK},
        hovertext=hover, hoverinfo="text", colorscale=SCALE, xgap=2, ygap=2,
        colorbar={"title": {"text": _aim(value, title)}, **_number_format(value)},
    )  # fmt: skip
    figure = _lay_out(go.Figure(trace), 120 + max(240, 40 * len(rows)))
    figure.update_xaxes(title={"text": plain(across)}, showgrid=False, **_ticks(across_text))
    return figure.update_yaxes(title={"text": plain(up)}, showgrid=False, **_ticks(up_text))


def _ticks(texts: Sequence[str]) -> dict[str, Any]:
    """Values by their places: two that differ may have the same text."""
    step = max(1, -(-len(texts) // MOST_TICKS))
    return {"tickvals": list(range(0, len(texts), step)), "ticktext": texts[::step]}


def _cell_hover(cell: Any, value: str) -> str:
    if cell is None:
        return "no point can be run"
    best = f", the best of {cell.of}" if cell.of > 1 else ""
    return f"{plain(value)} = {_safe(value, cell.value)}<br>point {cell.point}{best}"


# Parallel coordinates: a line for each point of a sweep that can be run, across several of its columns.

_SIDE_PX, _MOST_LEFT_PX, _LETTER_PX = 72, 220, 7
"""Room beside the axes: the names of the first one stand left of it."""


def parallel(frame: "pd.DataFrame", columns: Sequence[str], colour: str) -> "go.Figure":
    """Lines over these columns, texts in order of appearance; numbers of `colour` colour them, texts by their order."""
    import plotly.graph_objects as go

    points = runnable(frame).dropna(subset=[name for name in columns if name in number_columns(frame)])
    shade = _dimension(points, colour)
    scale: dict[str, Any] = {"color": shade["values"], "colorscale": SCALE} if len(points) else {"color": GREY}
    if colour in number_columns(points):
        scale |= {"showscale": True, "colorbar": {"title": {"text": shade["label"]}, **_number_format(colour)}}
    lines = go.Parcoords(
        dimensions=[_dimension(points, name) for name in dict.fromkeys(columns)],
        line=scale, labelside="top", tickfont={"size": 11}, rangefont={"size": 1, "color": CLEAR},
    )  # fmt: skip
    figure = _lay_out(go.Figure(lines), 420)
    first = lines.dimensions[0].ticktext if lines.dimensions else None
    left_px = min(_MOST_LEFT_PX, max(_SIDE_PX, *(_LETTER_PX * len(text) for text in first))) if first else _SIDE_PX
    return figure.update_layout(margin={"t": 64, "b": 24, "l": left_px, "r": _SIDE_PX})


def _dimension(points: "pd.DataFrame", name: str) -> dict[str, Any]:
    values, label = _drawn(name, points[name])
    if name in number_columns(points):
        named = {"tickvals": sorted(set(values))} if is_named(points, name) else {}
        return {"label": label, "values": values, **named}
    texts = points[name].fillna("").astype(str)
    known = _distinct(texts)
    named = {"tickvals": list(range(len(known))), "ticktext": [plain(text) or "as is" for text in known]}
    return {"label": label, "values": [known.index(text) for text in texts], **named}
