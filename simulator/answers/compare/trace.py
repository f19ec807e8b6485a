"""Both sides of a comparison op by op as one trace for Perfetto: a process per side, a thread per rank and lane."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from ...timeline.trace import Event, named, save_trace
from .spans import Joined


def write_trace(found: Joined, path: Path) -> None:
    """Write the trace to a `.json` or `.json.gz` file; a UserError if it cannot be written, or has another suffix."""
    events = [event for number, (side, spans) in enumerate(found.sides.items()) for event in _side(number, side, spans)]
    save_trace({"traceEvents": events, "displayTimeUnit": "ms"}, path)


def _side(number: int, side: str, spans: pd.DataFrame) -> Iterator[Event]:
    """The events of one side; spans of a file without lanes have a thread per rank and kind."""
    lane = spans["lane"] if "lane" in spans else spans["kind"]
    tracks = "rank " + spans["rank"].astype(str).str.zfill(len(str(spans["rank"].max()))) + ", " + lane
    names = sorted(set(tracks))
    yield from named("process", number, 0, side)
    for at, name in enumerate(names):
        yield from named("thread", number, at, name)
    columns = zip(tracks, spans["name"], spans["kind"], spans["start_s"], spans["end_s"], strict=True)
    for track, name, kind, start_s, end_s in columns:
        yield {"ph": "X", "name": name, "cat": kind, "pid": number, "tid": names.index(track), "ts": start_s * 1e6,
               "dur": (end_s - start_s) * 1e6}  # fmt: skip
