"""A waterfall from one total to another: what each term adds or takes away, in seconds."""

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from ..base.units import format_seconds
from .theme import GRID, styled

if TYPE_CHECKING:
    import plotly.graph_objects as go

ROW_PX, THICK = 30, 0.72
TOTAL, MORE, LESS = "#8C8C8C", "#D55E00", "#0072B2"
KINDS = (("total", TOTAL), ("longer", MORE), ("shorter", LESS))
SMALL = 0.01  # of all that moves: smaller terms share a bar
OTHERS = "all others"


class Bar(NamedTuple):
    """A bar from `start_s` to `end_s`; `moved_s` is None for a total."""

    name: str
    start_s: float
    end_s: float
    moved_s: float | None = None


def difference(terms: Sequence[tuple[str, float]], a_s: float, b_s: float, title: str = "From A to B") -> "go.Figure":
    """Bars of A's total, of each term's difference (B less A, in the order given), and of B's total.

    Where the differences are small beside the totals, the axis leaves out what both have; the subtitle says so.
    """
    import plotly.graph_objects as go

    bars = bars_of(terms, a_s, b_s)
    low, high = reach(bars)
    figure = go.Figure([_trace(*kind, bars, low) for kind in KINDS])
    figure.add_trace(_links(bars))
    subtitle = "what each term adds or takes away"
    subtitle += f"; the axis begins at {low:.4g} s, so that differences are seen" if low else ""
    styled(figure, title, subtitle, ROW_PX * len(bars), barmode="overlay")
    figure.update_layout(margin_l=96)
    figure.update_xaxes(range=[low, high])
    figure.update_yaxes(range=[len(bars) - 0.4, -0.6], tickvals=list(range(len(bars))),
                        ticktext=[bar.name for bar in bars], showgrid=False, zeroline=False,
                        ticklabelstandoff=6, automargin="left", fixedrange=True)  # fmt: skip
    return figure


def bars_of(terms: Sequence[tuple[str, float]], a_s: float, b_s: float) -> list[Bar]:
    """The bars from top to bottom; terms that hardly move share one."""
    all_s = sum(abs(moved_s) for _, moved_s in terms)
    shown = [(name, moved_s) for name, moved_s in terms if abs(moved_s) > SMALL * all_s]
    small = [moved_s for _, moved_s in terms if 0 < abs(moved_s) <= SMALL * all_s]
    shown += [(OTHERS, sum(small))] if small else []
    ends = list(accumulate((moved_s for _, moved_s in shown), initial=a_s))
    steps = [Bar(name, start, end, moved_s)
             for (name, moved_s), start, end in zip(shown, ends[:-1], ends[1:], strict=True)]  # fmt: skip
    return [Bar("A", 0.0, a_s), *steps, Bar("B", 0.0, b_s)]


def reach(bars: Sequence[Bar]) -> tuple[float, float]:
    """Both ends of the axis, with room for a label at each bar; from 0 unless that hides the differences."""
    ends = [bar.end_s for bar in bars]
    low, high = min(ends), max(ends)
    spread = high - low
    if spread <= 0 or spread > 0.25 * high:
        return 0.0, 1.15 * high
    return max(low - 0.5 * spread, 0.0), high + 0.35 * spread


def _trace(name: str, colour: str, bars: Sequence[Bar], low_s: float) -> "go.Bar":
    import plotly.graph_objects as go

    own = [(row, bar) for row, bar in enumerate(bars) if _kind(bar) == name]
    base = [max(min(bar.start_s, bar.end_s), low_s) for _, bar in own]
    return go.Bar(
        orientation="h",
        name=name,
        base=base,
        x=[max(bar.start_s, bar.end_s) - at for (_, bar), at in zip(own, base, strict=True)],
        y=[row for row, _ in own],
        width=THICK,
        marker={"color": colour, "line": {"width": 0}},
        text=[_label(bar, low_s > 0) for _, bar in own],
        textposition="outside",
        cliponaxis=False,
        hovertext=[f"<b>{bar.name}</b><br>{_label(bar, True)}" for _, bar in own],
        hoverinfo="text",
        showlegend=bool(own),
    )


def _links(bars: Sequence[Bar]) -> "go.Scatter":
    """Thin lines from the end of each bar down to the next."""
    import plotly.graph_objects as go

    x = [value for bar in bars[:-1] for value in (bar.end_s, bar.end_s, None)]
    y = [value for row in range(len(bars) - 1) for value in (row, row + 1, None)]
    return go.Scatter(x=x, y=y, mode="lines", line={"color": GRID, "width": 1}, hoverinfo="skip", showlegend=False)


def _kind(bar: Bar) -> str:
    return "total" if bar.moved_s is None else "longer" if bar.moved_s > 0 else "shorter"


def _label(bar: Bar, exactly: bool) -> str:
    """Totals that differ little need more digits."""
    if bar.moved_s is None:
        return f"{bar.end_s:.5g} s" if exactly else format_seconds(bar.end_s)
    return f"{'+' if bar.moved_s > 0 else ''}{format_seconds(bar.moved_s)}"
