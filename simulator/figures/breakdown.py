"""What a total of seconds is made of: by rank, phase by phase, by what each number is worth, from one total to another.

The seconds come from a report, an explanation or a comparison.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from ..base.units import format_long, format_seconds
from .theme import BLUE, CAUSE, GREY, GRID, PHASE, RED, ROWS, UPDATE, bars, colours, ink, style

if TYPE_CHECKING:
    import plotly.graph_objects as go

ROW_PX, MOVED_PX = 28, 30
SHOWN = 0.03  # of the step: smaller shares have no text
Seconds = Mapping[str, Sequence[float]]


def breakdown(by_rank_s: Seconds, names: Sequence[str] = ()) -> "go.Figure":
    """A bar per pipeline rank, below them their mean, of seconds by phase; the phases of a rank sum to the step."""
    import plotly.graph_objects as go

    used = {name: list(values) for name, values in by_rank_s.items() if max(values, default=0.0) > 0}
    ranks = max((len(values) for values in used.values()), default=0)
    step_s = sum(values[0] for values in used.values())
    ordered = [name for name in PHASE if name in used] + [name for name in used if name not in PHASE]
    labels = [*(names or [f"rank {rank}" for rank in range(ranks)]), *(["mean"] if ranks > 1 else [])]
    means = {name: [sum(values) / ranks] if ranks > 1 else [] for name, values in used.items()}
    figure = go.Figure([_phase(name, used[name] + means[name], labels, step_s) for name in ordered])
    subtitle = f"{format_seconds(step_s)} on each rank: computing in blues, waiting in other colours"
    style(figure, "Where the time goes", subtitle, ROW_PX * max(len(labels), 2), barmode="stack", bargap=0.2)
    figure.update_layout(legend_traceorder="normal", margin_l=72, uniformtext={"minsize": 8, "mode": "hide"})
    figure.update_xaxes(range=[0, step_s or 1.0])
    return figure.update_yaxes(**ROWS, autorange="reversed")


def _phase(name: str, values: Sequence[float], labels: Sequence[str], step_s: float) -> "go.Bar":
    colour = PHASE.get(name, GREY)
    hover = [
        f"<b>{name}</b><br>{label}<br>{format_seconds(value)}, {value / step_s:.1%} of the step"
        for label, value in zip(labels, values, strict=True)
    ]
    text = [f"{value / step_s:.0%}" if value >= SHOWN * step_s else "" for value in values]
    return bars(
        name, values, labels, colour, hover, text=text, textposition="inside", insidetextanchor="middle", textangle=0,
        insidetextfont={"size": 11, "color": ink(colour)},
    )  # fmt: skip


# A tornado chart: by how much a total changes when numbers are a tenth better or worse, the strongest first.

_ROOM = 1.35  # of the longest bar, so that the text behind its end is inside
BEHIND = {"textposition": "outside", "cliponaxis": False}
"""Text of bars stands behind their ends."""


def tornado(changes_s: Mapping[str, tuple[float, float]], total_s: float, what: str) -> "go.Figure":
    """Two bars per number, from no change at all: `changes_s` are seconds of the total, (better, worse)."""
    import plotly.graph_objects as go

    labels = list(changes_s)
    better, worse = ([100 * pair[i] / total_s for pair in changes_s.values()] for i in (0, 1))
    sides = (("10 % better", BLUE, better), ("10 % worse", RED, worse))
    figure = go.Figure([_changes(name, colour, labels, percent, total_s) for name, colour, percent in sides])
    subtitle = f"change of the {what} of {format_seconds(total_s)} when one number changes by a tenth"
    style(figure, "What each number is worth", subtitle, ROW_PX * max(len(labels), 2), barmode="overlay", bargap=0.25)
    reach = _ROOM * max((abs(percent) for percent in (*better, *worse)), default=1.0) or 1.0
    figure.update_xaxes(title=f"change of the {what}", ticksuffix=" %", range=[-reach, reach], zeroline=True,
                        zerolinecolor=GREY, exponentformat="none")  # fmt: skip
    return figure.update_yaxes(**ROWS, autorange="reversed", automargin=True)


def _changes(name: str, colour: str, labels: list[str], percents: list[float], total_s: float) -> "go.Bar":
    """Bars of one direction."""
    hover = [
        f"<b>{label}</b><br>{name}: {percent:+.3f} %, {format_seconds(abs(percent) / 100 * total_s)}"
        for label, percent in zip(labels, percents, strict=True)
    ]
    text = [f"{percent:+.2f} %" if abs(percent) >= 0.005 else "" for percent in percents]
    return bars(name, percents, labels, colour, hover, text=text, **BEHIND)


# A waterfall: phases one behind the other, each from where the last one ends, down to their total.

TOTAL = "#57606a"
_DAY_S = 86_400.0
_ROOM_UP = 1.25  # of the total, so that the text behind the last bar is inside


def waterfall(seconds: Mapping[str, float], what: str) -> "go.Figure":
    """A bar per phase and one for the total, which is their sum; `what` takes it. Weeks are drawn in days."""
    import plotly.graph_objects as go

    total_s = sum(seconds.values())
    unit_s, unit = _unit(total_s)
    colour = {**colours(seconds), **UPDATE, **PHASE, **CAUSE}
    labels, lengths_s = [*seconds, what], [*seconds.values(), total_s]
    starts = [s / unit_s for s in accumulate(seconds.values(), initial=0.0)][:-1]
    lengths = [s / unit_s for s in lengths_s]
    text = [f"{format_long(s)}, {s / total_s:.1%}" if total_s else "" for s in lengths_s]
    shades = [*(colour[phase] for phase in seconds), TOTAL]
    figure = go.Figure(bars("", lengths, labels, shades, base=[*starts, 0.0], text=text, hoverinfo="y+text", **BEHIND))
    subtitle = f"{format_long(total_s)}, phase by phase"
    style(figure, f"What the {what} is made of", subtitle, ROW_PX * len(labels), bargap=0.2, showlegend=False)
    figure.update_xaxes(range=[0, _ROOM_UP * total_s / unit_s or 1.0], ticksuffix=unit)
    return figure.update_yaxes(**ROWS, autorange="reversed", automargin=True)


def _unit(whole_s: float) -> tuple[float, str]:
    """Seconds of an axis's unit, and the unit behind its numbers: days for what takes days."""
    return (_DAY_S, " d") if whole_s >= 2 * _DAY_S else (1.0, "s")


def _exactly(seconds: float, digits: int = 5) -> str:
    unit_s, _ = _unit(seconds)
    return f"{seconds / unit_s:.{digits}g} {'days' if unit_s > 1 else 's'}"


# A waterfall from one total to another: what each term adds or takes away, in seconds.

KINDS = {"total": GREY, "longer": RED, "shorter": BLUE}
SMALL = 0.01  # of all that moves: smaller terms share a bar
OTHERS = "all others"


class Move(NamedTuple):
    """A bar from `start_s` to `end_s`; `moved_s` is None for a total."""

    name: str
    start_s: float
    end_s: float
    moved_s: float | None = None

    @property
    def kind(self) -> str:
        """A key of KINDS."""
        return "total" if self.moved_s is None else "longer" if self.moved_s > 0 else "shorter"

    def label(self, exact: bool) -> str:
        """The label of a bar in seconds; totals that differ little need more digits."""
        if self.moved_s is None:
            return _exactly(self.end_s) if exact else format_long(self.end_s)
        sign = "+" if self.moved_s > 0 else "-" if self.moved_s < 0 else ""
        return f"{sign}{format_long(abs(self.moved_s))}"


def difference(terms: Sequence[tuple[str, float]], a_s: float, b_s: float) -> "go.Figure":
    """Bars of A's total, of each term's difference (B less A, in the order given), and of B's total.

    Where the differences are small beside the totals, the axis leaves out what both have; the subtitle says so.
    """
    import plotly.graph_objects as go

    moves = moves_of(terms, a_s, b_s)
    low, high = reach(moves)
    unit_s, unit = _unit(high)
    links = {
        "x": [end for move in moves[:-1] for end in (move.end_s / unit_s, move.end_s / unit_s, None)],
        "y": [place for row in range(len(moves) - 1) for place in (row, row + 1, None)],
    }
    figure = go.Figure([_moves(kind, moves, low, unit_s) for kind in KINDS])
    line = {"color": GRID, "width": 1}
    figure.add_trace(go.Scatter(**links, mode="lines", line=line, hoverinfo="skip", showlegend=False))
    cut = f"; the axis begins at {_exactly(low, 4)}, so that differences are seen" if low else ""
    subtitle = f"what each term adds or takes away{cut}"
    style(figure, "From A to B", subtitle, MOVED_PX * len(moves), barmode="overlay", margin_l=96)
    figure.update_xaxes(range=[low / unit_s, high / unit_s], ticksuffix=unit)
    return figure.update_yaxes(
        **ROWS, range=[len(moves) - 0.4, -0.6], tickvals=list(range(len(moves))),
        ticktext=[move.name for move in moves], automargin="left",
    )  # fmt: skip


def moves_of(terms: Sequence[tuple[str, float]], a_s: float, b_s: float) -> list[Move]:
    """The bars from top to bottom; terms that hardly move share one."""
    all_s = sum(abs(moved_s) for _, moved_s in terms)
    shown = [(name, moved_s) for name, moved_s in terms if abs(moved_s) > SMALL * all_s]
    small = [moved_s for _, moved_s in terms if 0 < abs(moved_s) <= SMALL * all_s]
    shown += [(OTHERS, sum(small))] if small else []
    ends = list(accumulate((moved_s for _, moved_s in shown), initial=a_s))
    steps = [Move(name, start, end, moved_s)
             for (name, moved_s), start, end in zip(shown, ends[:-1], ends[1:], strict=True)]  # fmt: skip
    return [Move("A", 0.0, a_s), *steps, Move("B", 0.0, b_s)]


def reach(moves: Sequence[Move]) -> tuple[float, float]:
    """(start, end) of the axis, with room for a label at each bar; from 0 unless that hides differences."""
    ends = [move.end_s for move in moves]
    low, high = min(ends), max(ends)
    spread = high - low
    if spread <= 0 or spread > 0.25 * high:
        return 0.0, 1.15 * high
    return max(low - 0.5 * spread, 0.0), high + 0.35 * spread


def _moves(kind: str, moves: Sequence[Move], low_s: float, unit_s: float) -> "go.Bar":
    own = [(row, move) for row, move in enumerate(moves) if move.kind == kind]
    base_s = [max(min(move.start_s, move.end_s), low_s) for _, move in own]
    ends_s = [max(move.start_s, move.end_s) for _, move in own]
    lengths = [(end_s - at_s) / unit_s for at_s, end_s in zip(base_s, ends_s, strict=True)]
    hover = [f"<b>{move.name}</b><br>{move.label(exact=True)}" for _, move in own]
    text = [move.label(exact=low_s > 0) for _, move in own]
    rows, base = [row for row, _ in own], [at_s / unit_s for at_s in base_s]
    return bars(
        kind, lengths, rows, KINDS[kind], hover, base=base, width=0.72, text=text, showlegend=bool(own), **BEHIND
    )
