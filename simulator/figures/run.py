"""Figures of a run: its course, with lanes down and weeks across, and how stale gradients were.

The time axis of a course is one of dates, as only those have ticks that fit weeks and milliseconds alike: a run begins
on day 1 of year 1, at 00:00:00.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ..base.units import format_long
from ..systems.run.history import CAUSES
from ..timeline import Timeline
from .spans import Seconds, thin_bars
from .theme import BLUE, CAUSE, GREY, LEGEND_PX, RED, ROWS, axis_ends, band, bars, buttons, plain, style

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

ROW_PX, LEFT_PX, BUTTONS_PX = 22, 104, 40
MOST_LANES, MOST_BARS = 40, 2000
MOST_OF_LANE = 250  # bars: narrower than two pixels, those that are drawn last would hide all others
EVENTS = "events"
MARKS = 2000
"""Into how many bins of the width events go; those of one bin share a mark."""
SYMBOLS = ("x-thin", "diamond", "triangle-down", "circle", "square", "star", "cross", "hexagon")
_START = datetime(2001, 1, 1)  # written without its century: year 1
_START_MS = (_START - datetime(1970, 1, 1)) / timedelta(milliseconds=1)
_YEAR_S = 365 * 86_400.0
_LAST_S = (datetime.max - _START).total_seconds() - _YEAR_S
_PARTS = {"a week": 604_800.0, "a day": 86_400.0, "an hour": 3600.0, "a minute": 60.0}
_LEAST_PART = 4  # shortest spans: a part with fewer shows too little


def course(timeline: Timeline, title: str = "Course", window_s: Seconds | None = None) -> "go.Figure":
    """Bars of what each lane of a run did, one trace per cause, and a mark per event.

    Short spans are drawn together where there are thousands of them. With `window_s` (from, to) that is what is seen,
    and fewer are together there.
    """
    import plotly.graph_objects as go

    spans = timeline.spans().rename(columns={"kind": "label"}).assign(lane=lambda table: table.place)
    ran, events = spans[spans.lane != EVENTS], spans[spans.lane == EVENTS]
    lanes = _by_number(dict.fromkeys(ran.lane))
    shown, most = ran[ran.lane.isin(lanes[:MOST_LANES])], min(MOST_BARS, MOST_OF_LANE * len(lanes))
    drawn, shared_s = thin_bars(shown, most, window_s, where=("lane",), room=1)
    names = [*([EVENTS] if len(events) else []), *lanes[:MOST_LANES]]
    rows = {name: float(row) for row, name in enumerate(names)}
    whole_s = timeline.makespan_s or 1.0
    seen = window_s or (0.0, whole_s)
    figure = go.Figure([*_bars(drawn, rows), *_marks(events, rows, seen)])
    subtitle, height_px = _subtitle(ran, len(lanes), whole_s, shared_s), ROW_PX * max(len(rows), 2)
    style(figure, title, subtitle, height_px, barmode="overlay", showlegend=True, margin_l=LEFT_PX)
    _add_buttons(figure, _parts(ran, events, whole_s))
    head = "day %-j, year %-y" if whole_s > _YEAR_S else "day %-j"
    ends = axis_ends(dates((0.0, whole_s)), dates(seen))
    figure.update_xaxes(type="date", ticksuffix="", tickformatstops=_ticks(head), **ends)
    _name_rows(figure, rows)
    return figure


def _by_number(lanes: Iterable[str]) -> list[str]:
    """Lanes as they come, but those that differ by numbers by these: `worker 9` before `worker 10`."""
    words = {lane: re.sub(r"\d+", "", lane) for lane in lanes}
    first = {word: i for i, word in enumerate(dict.fromkeys(words.values()))}
    return sorted(words, key=lambda lane: (first[words[lane]], [*map(int, re.findall(r"\d+", lane))]))


def _add_buttons(figure: "go.Figure", parts: Mapping[str, Seconds]) -> None:
    """Buttons on a line of their own, between subtitle and legend."""
    here = {"x": 0, "xanchor": "left", "pad": {"b": LEGEND_PX + 6}}
    found = [one | here for one in buttons({name: dates(part) for name, part in parts.items()})]
    figure.update_layout(updatemenus=found)
    figure.layout.margin.t += BUTTONS_PX * len(found)
    figure.layout.height += BUTTONS_PX * len(found)


def _name_rows(figure: "go.Figure", rows: Mapping[str, float]) -> None:
    """The names of lanes, and a shade behind each second one."""
    for row in list(rows.values())[::2]:
        band(figure, row - 0.5, row + 0.5)
    figure.update_yaxes(
        **ROWS, range=[max(len(rows), 2) - 0.5, -0.5], tickvals=list(rows.values()), ticktext=[*map(plain, rows)],
        tickfont={"size": 11}, automargin="left",
    )  # fmt: skip


def dates(window_s: Seconds) -> list[str]:
    """The ends of a part of a run as its axis has them, which ends before year 8000."""
    return [(_START + timedelta(seconds=min(max(end_s, 0.0), _LAST_S))).isoformat(" ") for end_s in window_s]


def second_of(date: str) -> float:
    """The second of a run that a date of its axis is.

    Raises:
        ValueError: it is no date.
    """
    return (datetime.fromisoformat(date).replace(tzinfo=None) - _START).total_seconds()


def _ticks(head: str) -> list[dict[str, object]]:
    """How ticks are written by how far they are apart; what follows a line break stands where it changes."""
    clocks = ((None, 1000, "%H:%M:%S.%3f"), (1000, 60_000, "%H:%M:%S"), (60_000, 86_400_000, "%H:%M"))
    stops: list[dict[str, object]] = [
        {"dtickrange": [least, most], "value": f"{clock}\n{head}"} for least, most, clock in clocks
    ]
    return [*stops, {"dtickrange": [86_400_000, None], "value": head}]


def _subtitle(ran: "pd.DataFrame", lanes: int, whole_s: float, shared_s: float) -> str:
    end_s = float(ran.end_s.max()) if len(ran) else 0.0
    parts = [f"{format_long(whole_s)} in all"]
    if lanes > MOST_LANES:
        parts.append(f"the first {MOST_LANES} of {lanes:,} lanes")
    if 0 < end_s < 0.98 * whole_s:
        parts.append(f"lanes are recorded for the first {format_long(end_s)}")
    if shared_s:
        parts.append(f"spans shorter than {format_long(shared_s)} are drawn together")
    return "; ".join(parts)


def _parts(ran: "pd.DataFrame", events: "pd.DataFrame", whole_s: float) -> Mapping[str, Seconds]:
    """Parts of a run to look at: all of it, its beginning closer and closer, and around its first event."""
    shortest_s = float((ran.end_s - ran.start_s).quantile(0.05)) if len(ran) else whole_s
    begin_s = float(ran.start_s.min()) if len(ran) else 0.0
    found = {"all": (0.0, whole_s)}
    for name, length_s in _PARTS.items():
        if _LEAST_PART * shortest_s < length_s < 0.5 * whole_s:
            found[name] = (begin_s, begin_s + length_s)
    if len(events):
        at_s = float(events.start_s.min())
        found["first event"] = (max(at_s - 0.002 * whole_s, 0.0), at_s + 0.003 * whole_s)
    return found


def _bars(drawn: "pd.DataFrame", rows: Mapping[str, float]) -> "Iterator[go.Bar]":
    """One trace per cause."""
    present = set(drawn.label)
    for cause in (cause for cause in CAUSES if cause in present):
        own = drawn[drawn.label == cause]
        start_ms, length_ms = _START_MS + 1000 * own.start_s.to_numpy(), 1000 * (own.end_s - own.start_s).to_numpy()
        yield bars(cause, length_ms, own.lane.map(rows), CAUSE.get(cause, GREY), _hovers(own), base=start_ms, width=0.8)


def _hovers(own: "pd.DataFrame") -> list[str]:
    columns = ["label", "lane", "name", "start_s", "end_s", "count"]
    return [_hover(*row) for row in own[columns].itertuples(index=False)]


def _hover(cause: str, lane: str, name: str, start_s: float, end_s: float, count: int) -> str:
    several = f"<b>{count:,} short spans of {cause}</b>, the first: " if count > 1 else f"<b>{cause}</b>: "
    when = f"from {format_long(start_s)} for {format_long(end_s - start_s)}"
    return f"{several}{plain(name)}<br>lane {plain(lane)}<br>{when}<br>{CAUSES.get(cause, '')}"


def _marks(events: "pd.DataFrame", rows: Mapping[str, float], seen: Seconds) -> "list[go.Scatter]":
    """One trace per kind of event."""
    import plotly.graph_objects as go

    bin_s = (seen[1] - seen[0]) / MARKS
    kinds = list(dict.fromkeys(events.label))
    return [
        go.Scatter(
            x=_START_MS + 1000 * own.at_s.to_numpy(), y=[rows[EVENTS]] * len(own), mode="markers", name=plain(kind),
            hovertext=_hover_texts(own), hoverinfo="text", marker=_mark(i),
        )
        for i, kind in enumerate(kinds)
        if len(own := _together(events[events.label == kind], bin_s))
    ]  # fmt: skip


def _mark(number: int) -> dict[str, object]:
    symbol = SYMBOLS[number % len(SYMBOLS)]
    colour = RED if number == 0 else GREY
    return {"symbol": symbol, "size": 8, "color": colour, "line": {"width": 1.5, "color": colour}}


def _together(events: "pd.DataFrame", bin_s: float) -> "pd.DataFrame":
    """Events of one bin as one, the first of them, with how many there are."""
    bins = events.assign(at_s=events.start_s, count=1).groupby(events.start_s // bin_s)
    return bins.agg({"at_s": "first", "name": "first", "count": "sum"})


def _hover_texts(events: "pd.DataFrame") -> Sequence[str]:
    return [
        f"<b>{plain(name)}</b><br>at {format_long(at_s)}" + (f"<br>and {count - 1:,} close to it" if count > 1 else "")
        for at_s, name, count in events[["at_s", "name", "count"]].itertuples(index=False)
    ]


COUNTS_PX = 220


def staleness(counts: Mapping[int, int]) -> "go.Figure":
    """A bar per number of updates that gradients were behind: the share of gradients."""
    import plotly.graph_objects as go

    ages, total = sorted(counts), sum(counts.values()) or 1
    shares = [100 * counts[age] / total for age in ages]
    hover = [f"<b>{age} updates behind</b><br>{counts[age]:,} gradients, {share:.2f} %"
             for age, share in zip(ages, shares, strict=True)]  # fmt: skip
    mean = sum(age * counts[age] for age in ages) / total
    figure = go.Figure(go.Bar(x=ages, y=shares, marker={"color": BLUE, "line": {"width": 0}}, hovertext=hover,
                              hoverinfo="text"))  # fmt: skip
    subtitle = f"{total:,} gradients, {mean:.2f} updates behind on average, at most {max(ages, default=0):,}"
    style(figure, "How stale gradients are", subtitle, COUNTS_PX, showlegend=False, bargap=0.1)
    what = "updates of the model while a gradient was computed"
    figure.update_xaxes(title=what, ticksuffix="", exponentformat="none")
    return figure.update_yaxes(title="gradients", ticksuffix=" %", rangemode="tozero", automargin="left")
