"""Plans of a search: speed over memory, the Pareto set among them, the winner, and where device memory ends."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...simulator.answers.search import Measured, SearchResult
from ...simulator.answers.search.outputs import plan_text
from ...simulator.base.units import format_bytes, format_seconds, format_usd
from ...simulator.figures.theme import BLUE, CLEAR, GREY, ORANGE, RED, TEXT, mark_across, plain, style

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEIGHT_PX = 320


def plans(found: SearchResult) -> "go.Figure":
    """A dot for each plan that was simulated; crosses do not fit. `customdata` is the number of its row."""
    import plotly.graph_objects as go

    fit, unfit = list[int](), list[int]()
    for number, row in enumerate(found.rows):
        if row.measured is not None:
            (fit if row.measured.fits else unfit).append(number)
    crosses = {"symbol": "x-thin-open", "size": 8, "color": GREY, "line": {"width": 1.5}}
    traces = [
        _dots(found, unfit, "do not fit", "markers", marker=crosses),
        _dots(found, fit, "simulated", "markers", marker={"size": 7, "color": BLUE, "opacity": 0.5}),
        _dots(found, found.pareto, "Pareto set", "lines+markers", line={"color": RED, "width": 1.5, "dash": "dot"},
              marker={"size": 8, "color": RED}),
    ]  # fmt: skip
    if found.winner is not None:
        star = {"symbol": "star", "size": 16, "color": ORANGE, "line": {"width": 1, "color": TEXT}}
        traces.append(_dots(found, [found.winner], "winner", "markers", marker=star))
    others = "the others are refused, too large or proved to be no better" if found.proved else "not all were looked at"
    counted = f"{len(fit) + len(unfit):,} of {len(found.rows):,} plans simulated; {others}"
    figure = style(go.Figure(traces), "Plans by speed and memory", counted, HEIGHT_PX)
    limit = found.question.memory_bytes / 2**30
    figure.update_xaxes(title="memory per device, GiB", ticksuffix="", ticks="outside", ticklen=6, tickcolor=CLEAR)
    tokens = any(row.measured and row.measured.tokens for row in found.rows)
    figure.update_yaxes(title="tokens/s" if tokens else "seconds", exponentformat="SI", rangemode="tozero")
    return mark_across(figure, limit, format_bytes(found.question.memory_bytes))


def _dots(found: SearchResult, numbers: Sequence[int], name: str, mode: str, **look: object) -> "go.Scatter":
    import plotly.graph_objects as go

    shown = [(number, one) for number in numbers if (one := found.rows[number].measured)]
    return go.Scatter(
        x=[one.memory_bytes / 2**30 for _, one in shown],
        y=[one.tokens_per_s if one.tokens else one.time_s for _, one in shown],
        customdata=[number for number, _ in shown], hovertext=[_hover(found, *pair) for pair in shown],
        hoverinfo="text", mode=mode, name=name, **look,
    )  # fmt: skip


def _hover(found: SearchResult, number: int, one: Measured) -> str:
    cost = "" if one.cost_usd is None else f", {format_usd(one.cost_usd)}"
    what = plain(plan_text(found.rows[number].changes))
    return f"<b>{one.speed}</b>, {format_seconds(one.time_s)}{cost}<br>{format_bytes(one.memory_bytes)}<br>{what}"
