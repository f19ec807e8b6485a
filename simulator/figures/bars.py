"""Bars of a Gantt chart as data: spans, and short ones drawn together so that a large Program stays fluid."""

from html import escape
from typing import TYPE_CHECKING

from ..base.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    import pandas as pd

MOST_BARS = 5000
BINS = (1600, 800, 400, 200, 100)
WHERE = ["rank", "row"]


def thinned(
    spans: "pd.DataFrame", most: int = MOST_BARS, window_s: tuple[float, float] | None = None
) -> tuple["pd.DataFrame", float]:
    """Bars for the rows of a chart, and the duration in seconds below which spans share one (0: none do).

    Spans that take no time are left out. Up to `most` spans are a bar each. Otherwise those shorter than a pixel-sized
    bin that start in the same bin of the same row are one bar per label, as long as they are together. With a window,
    pixels are those of the window: what is in it is told apart further, what is outside is not, and the duration is
    that of the window.
    """
    spans = spans[spans.end_s > spans.start_s].assign(count=1)
    if window_s is None or len(spans) <= most:
        return _thinned(spans, spans.end_s.max(), most)
    import pandas as pd

    begin, end = window_s
    seen = (spans.end_s > begin) & (spans.start_s < end)
    near, shared_s = _thinned(spans[seen], end - begin, most)
    far, _ = _thinned(spans[~seen], spans.end_s.max(), most)
    return pd.concat([near, far], ignore_index=True), shared_s


def _thinned(spans: "pd.DataFrame", shown_s: float, most: int) -> tuple["pd.DataFrame", float]:
    """The same for spans of which `shown_s` seconds are as wide as the chart."""
    if len(spans) <= most:
        return spans, 0.0
    for bins in BINS:
        bars = _binned(spans, shown_s / bins)
        if len(bars) <= 3 * most:
            break
    return bars, shown_s / bins


def hover(bars: "pd.DataFrame") -> list[str]:
    """What a reader sees when pointing at each bar."""
    columns = ["name", "kind", "rank", "lane", "start_s", "busy_s", "queued_s", "bytes", "count"]
    return [_hover(*row) for row in bars.assign(busy_s=bars.end_s - bars.start_s)[columns].itertuples(index=False)]


def _binned(spans: "pd.DataFrame", bin_s: float) -> "pd.DataFrame":
    import pandas as pd

    long = spans.end_s - spans.start_s >= bin_s
    short = spans[~long].assign(bin=spans.start_s // bin_s, busy_s=spans.end_s - spans.start_s)
    sums = {"count": "sum", "bytes": "sum", "busy_s": "sum", "queued_s": "max", "start_s": "min"}
    first = dict.fromkeys(("name", "kind", "lane"), "first")
    together = short.groupby([*WHERE, "bin", "label"], as_index=False, sort=False).agg(sums | first)
    return pd.concat([spans[long], _one_after_another(together)], ignore_index=True)


def _one_after_another(bars: "pd.DataFrame") -> "pd.DataFrame":
    """Bars of one bin, the first at its time, the others behind it, so that none hides another."""
    bars = bars.sort_values([*WHERE, "bin", "start_s"], ignore_index=True)
    group = bars.groupby([*WHERE, "bin"])
    end = group.start_s.transform("min") + group.busy_s.cumsum()
    return bars.assign(start_s=end - bars.busy_s, end_s=end)


def _hover(
    name: str, kind: str, rank: int, lane: str, start_s: float, busy_s: float, queued_s: float, size: float, count: int
) -> str:
    name, kind, lane = (escape(text, quote=False) for text in (name, kind, lane))  # plotly shows quotes as they are
    what = f"<b>{name}</b>" if count == 1 else f"<b>{count} short ops</b>, the first: {name}"
    lines = [what, f"{kind}, rank {rank}, lane {lane}"]
    lines.append(f"from {format_seconds(start_s)} for {format_seconds(busy_s)}")
    if size > 0:
        lines.append(f"{format_bytes(size)} at {format_rate(size / busy_s)}")
    if queued_s > 0:
        lines.append(f"queued for {format_seconds(queued_s)}" + (" at most" if count > 1 else ""))
    return "<br>".join(lines)
