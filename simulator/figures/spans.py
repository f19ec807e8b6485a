"""Spans as figures draw them: short ones together, so that a large Program stays fluid; and what each says."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..base.units import format_bytes, format_rate, format_seconds
from .theme import plain

if TYPE_CHECKING:
    import pandas as pd

    Thinner = Callable[[pd.DataFrame, float], Iterable[tuple[pd.DataFrame, float]]]

MOST_BARS = 5000
BINS = [4096 >> i for i in range(10)]
"""Into how many bins the width of a chart is cut, from some pixels each to a few in all."""
Seconds = tuple[float, float]


class Window(NamedTuple):
    """A part of the time axis, in seconds."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """The length of the window in seconds."""
        return self.end_s - self.start_s


def thin(
    spans: "pd.DataFrame", most: int, whole_s: float, thinner: "Thinner", window: Seconds | None = None, room: int = 1
) -> tuple["pd.DataFrame", float]:
    """Spans, fewer of them where there are more than `most`, and how coarse they are then (0: all are left).

    `thinner` takes spans and how many seconds are as wide as the chart, and yields fewer and fewer, each time with how
    coarse they are; the first are taken that are at most `room` times `most`. With a window, spans in it are thinned
    for its width, and the others for that of the whole; the number is that of the window.
    """
    if len(spans) <= most:
        return spans, 0.0
    if window is None:
        for found in thinner(spans, whole_s):
            if len(found[0]) <= room * most:
                break
        return found
    import pandas as pd

    begin_s, end_s = window
    seen = (spans.end_s > begin_s) & (spans.start_s < end_s)
    near, coarse = thin(spans[seen], most, end_s - begin_s, thinner, room=room)
    far, _ = thin(spans[~seen], most, whole_s, thinner, room=room)
    return pd.concat([near, far], ignore_index=True), coarse


def thin_bars(
    spans: "pd.DataFrame",
    most: int = MOST_BARS,
    window: Seconds | None = None,
    where: Sequence[str] = ("rank", "row"),
    room: int = 3,
) -> tuple["pd.DataFrame", float]:
    """Bars for the rows of a chart, which `where` tells apart, with a `count` of spans; and the duration in seconds
    below which spans share one (0: none do).

    Spans that take no time are left out. Where there are more than `most`, those shorter than a bin that start in the
    same bin of the same row are one bar per `label`, as long as they are together.
    """
    spans = spans[spans.end_s > spans.start_s]
    spans = spans if "count" in spans else spans.assign(count=1)

    def binned(some: "pd.DataFrame", shown_s: float) -> Iterator[tuple["pd.DataFrame", float]]:
        return ((_binned(some, shown_s / bins, [*where, "bin"]), shown_s / bins) for bins in BINS)

    return thin(spans, most, spans.end_s.max(), binned, window, room)


_SUMS = {"start_s": "min", "length_s": "sum", "count": "sum", "bytes": "sum", "queued_s": "max"}
_SUMS |= dict.fromkeys(("name", "kind", "lane"), "first")


def _binned(spans: "pd.DataFrame", bin_s: float, where: list[str]) -> "pd.DataFrame":
    """Place the spans of one bin one after another, so that none hides another."""
    import pandas as pd

    length_s = spans.end_s - spans.start_s
    short = spans.assign(bin=spans.start_s // bin_s, length_s=length_s)[length_s < bin_s]
    sums = {column: how for column, how in _SUMS.items() if column in short and column not in where}
    together = short.groupby([*where, "label"], as_index=False, sort=False).agg(sums)
    together = together.sort_values([*where, "start_s"], ignore_index=True)
    rows = together.groupby(where)
    end_s = rows.start_s.transform("min") + rows.length_s.cumsum()
    together = together.assign(start_s=end_s - together.length_s, end_s=end_s).drop(columns="length_s")
    return pd.concat([spans[length_s >= bin_s], together], ignore_index=True)


def hover(bars: "pd.DataFrame") -> list[str]:
    """The hover text of each bar."""
    columns = ["name", "kind", "rank", "lane", "start_s", "end_s", "queued_s", "bytes", "count"]
    return [_hover(*row) for row in bars[columns].itertuples(index=False)]


def _hover(
    name: str, kind: str, rank: int, lane: str, start_s: float, end_s: float, queued_s: float, size: float, count: int
) -> str:
    name, kind, lane = map(plain, (name, kind, lane))
    lines = [
        f"<b>{name}</b>" if count == 1 else f"<b>{count} short ops</b>, the first: {name}",
        f"{kind}, rank {rank}, lane {lane}",
        time_text(start_s, end_s),
    ]
    if size > 0:
        lines.append(f"{format_bytes(size)} at {format_rate(size / (end_s - start_s))}")
    if queued_s > 0:
        lines.append(f"queued for {format_seconds(queued_s)}" + (" at most" if count > 1 else ""))
    return "<br>".join(lines)


def time_text(start_s: float, end_s: float) -> str:
    """When something began, and for how long it ran."""
    return f"from {format_seconds(start_s)} for {format_seconds(end_s - start_s)}"
