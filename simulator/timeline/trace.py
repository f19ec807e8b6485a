"""The trace that chrome://tracing and ui.perfetto.dev open: Chrome's JSON event format.

A process is a rank and a thread is a lane; one op at a time per thread, as Perfetto asks. Times are whole nanoseconds,
written in microseconds. Flow arrows lead from the op whose end let another start, where that is on another lane.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import UserError
from ..base.files import write_by_suffix
from .memory import memory
from .ranks import few_ranks, spans_of_ranks
from .timeline import Timeline

if TYPE_CHECKING:
    import pandas as pd

MOST_FLOWS = 20_000
Event = dict[str, Any]


def write_trace(timeline: Timeline, path: Path | str, ranks: Sequence[int] | None = None, kind: str = "") -> None:
    """Write the trace to a `.json` or `.json.gz` file; `kind` is that of the scenario.

    Raises:
        UserError: another suffix, a rank that does not exist, or a file that cannot be written.
    """
    save_trace(trace(timeline, ranks, kind), path)


def save_trace(events: dict[str, Any], path: Path | str) -> None:
    """Write a trace to a `.json` or `.json.gz` file; a UserError for another suffix, or if it cannot be written."""
    if not str(path).endswith((".json", ".json.gz")):
        raise UserError(f"{path}: a trace is a .json or .json.gz file")
    write_by_suffix(path, json.dumps(events, separators=(",", ":")).encode())


def trace(timeline: Timeline, ranks: Sequence[int] | None = None, kind: str = "") -> dict[str, Any]:
    """The trace of the given ranks (default: the first few) of a scenario of this kind as a value."""
    shown = sorted(set(few_ranks(timeline.program) if ranks is None else ranks))
    rows = _tracks(timeline, shown)
    flows = _flows(timeline, rows)
    return {
        "traceEvents": [
            *_names(rows),
            *_slices(timeline, rows),
            *_arrows(flows.head(MOST_FLOWS)),
            *(event for rank in shown for event in _counters(timeline, rank)),
        ],
        "displayTimeUnit": "ms",
        "distributedInfo": {"rank": shown[0] if shown else 0, "world_size": timeline.program.ranks},
        "otherData": {
            "kind": kind,
            "ranks": f"{len(shown)} of {timeline.program.ranks}: {', '.join(map(str, shown))}",
            "flows": f"{min(len(flows), MOST_FLOWS)} of {len(flows)}",
            "makespan_s": timeline.makespan_s,
        },
    }


def _tracks(timeline: Timeline, ranks: Sequence[int]) -> "pd.DataFrame":
    """The spans in whole nanoseconds, with a thread each: `track` is its name and `tid` its number in the rank."""
    rows = spans_of_ranks(timeline, ranks)
    rows["start_ns"] = np.rint(rows.start_s * 1e9).astype("int64")
    rows["end_ns"] = np.rint(rows.end_s * 1e9).astype("int64")
    rows = rows.sort_values(["rank", "lane", "start_ns", "end_ns"], ignore_index=True)
    rows["track"] = rows.lane.where(~_overlapping(rows), rows.lane + " of " + rows.place)
    rows["tid"] = rows.groupby("rank").track.transform(lambda track: track.rank(method="dense")).astype("int64")
    return rows


def _overlapping(rows: "pd.DataFrame") -> "pd.Series[bool]":
    """A mask of rows that overlap an earlier row of their lane (a rank's own and its class's): they need a thread."""
    lanes = rows.groupby(["rank", "lane"])
    reached = lanes.end_ns.cummax().groupby([rows["rank"], rows.lane]).shift(fill_value=0)
    return (rows.start_ns < reached).groupby([rows["rank"], rows.lane]).transform("any")


def _names(rows: "pd.DataFrame") -> Iterator[Event]:
    for rank in rows["rank"].drop_duplicates().tolist():
        yield from named("process", rank, 0, f"rank {rank}")
    for rank, tid, track in rows[["rank", "tid", "track"]].drop_duplicates().itertuples(index=False):
        yield from named("thread", rank, tid, track)


def named(what: str, pid: int, tid: int, name: str) -> Iterator[Event]:
    """The name of a `process` or a `thread`; they are shown in the order of their numbers."""
    yield _meta(f"{what}_name", pid, tid, name=name)
    yield _meta(f"{what}_sort_index", pid, tid, sort_index=pid if what == "process" else tid)


def _meta(fact: str, pid: int, tid: int, **args: object) -> Event:
    return {"ph": "M", "name": fact, "pid": pid, "tid": tid, "args": args}


def _slices(timeline: Timeline, rows: "pd.DataFrame") -> Iterator[Event]:
    fields = ["bytes", "rate_bytes_per_s", "role", "queued_s", *timeline.program.tags]
    names = rows[["rank", "tid", "name", "kind", "start_ns", "end_ns"]].itertuples(index=False)
    arguments = rows[fields].itertuples(index=False, name=None)
    for (rank, tid, name, kind, start, end), values in zip(names, arguments, strict=True):
        args = {key: value for key, value in zip(fields, values, strict=True) if _says_something(value)}
        yield {"ph": "X", "name": name, "cat": kind, "pid": rank, "tid": tid, "ts": start / 1e3,
               "dur": (end - start) / 1e3, "args": args}  # fmt: skip


def _says_something(value: Any) -> bool:
    """Not an absent tag, a rate of nothing, or an empty text."""
    return value not in (-1, "") and value == value


def _flows(timeline: Timeline, rows: "pd.DataFrame") -> "pd.DataFrame":
    """One row per rank and op that another op let start: rank, tid and time of both ends.

    The cause is taken on the same rank where it ran there, else on the first shown rank where it ran.
    """
    first = rows.drop_duplicates(["rank", "op"])
    ends = first[["op", "rank", "tid", "start_ns", "end_ns"]]
    after = first.assign(cause=timeline.cause[first.op])[["rank", "tid", "start_ns", "cause"]]
    near = after.merge(ends, left_on=["cause", "rank"], right_on=["op", "rank"], suffixes=("", "_from"))
    near["rank_from"] = near["rank"]
    elsewhere = after[~after.set_index(["cause", "rank"]).index.isin(ends.set_index(["op", "rank"]).index)]
    far = elsewhere.merge(ends.drop_duplicates("op"), left_on="cause", right_on="op", suffixes=("", "_from"))
    flows = near.merge(far, how="outer").sort_values(["start_ns", "rank", "tid"], ignore_index=True)
    return flows[(flows["rank"] != flows.rank_from) | (flows.tid != flows.tid_from)]


def _arrows(flows: "pd.DataFrame") -> Iterator[Event]:
    columns = ["rank_from", "tid_from", "start_ns_from", "end_ns", "rank", "tid", "start_ns"]
    for i, (rank_from, tid_from, begun, ended, rank, tid, start) in enumerate(flows[columns].itertuples(index=False)):
        flow = {"name": "starts", "cat": "flow", "id": i}
        inside = max(begun, ended - 1) / 1e3  # an arrow belongs to the slice around its time
        yield {"ph": "s", **flow, "pid": rank_from, "tid": tid_from, "ts": inside}
        yield {"ph": "f", **flow, "pid": rank, "tid": tid, "ts": start / 1e3, "bp": "e"}


def _counters(timeline: Timeline, rank: int) -> Iterator[Event]:
    for time_s, held in memory(timeline, rank).itertuples(index=False):
        yield {"ph": "C", "name": "device memory", "pid": rank, "ts": time_s * 1e6, "args": {"bytes": held}}
