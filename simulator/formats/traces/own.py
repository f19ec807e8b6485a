"""Our own traces read back: what `simulate --trace` wrote, with lanes by name and causes by arrows."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base.errors import UserError
from ...costs.phases import COMPUTE
from .kineto import Document, Event
from .run import Item, Run, exposed_waits, split_by_phase, timeline_of

Track = tuple[int, int]


def is_own(document: Document) -> bool:
    """Whether `simulate --trace` wrote this trace."""
    other = document.beside.get("otherData")
    return isinstance(other, Mapping) and "makespan_s" in other


def read_own(path: Path, document: Document, step: int | None) -> Run:
    """The run that a simulation's trace shows; its only step is number 0.

    A UserError if another step is asked for, or the file was changed by hand.
    """
    if step not in (None, 0):
        raise UserError(f"{path}: holds no step {step}; it has 0")
    try:
        ranks = _items(document.events)
        makespan = float(document.beside["otherData"]["makespan_s"])
        world = document.beside["distributedInfo"]["world_size"]
        timeline = timeline_of(ranks)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        raise UserError(f"{path}: is a trace of a simulation, but not all is as it was written") from None
    makespan = max(makespan, timeline.makespan_s)  # its events are whole nanoseconds
    computes = any(lane.name == COMPUTE for lane in timeline.program.lanes)
    split = split_by_phase(timeline, [makespan] * len(ranks)) if computes else None
    notes = ["a simulation's trace, of ranks " + str(document.beside["otherData"].get("ranks", "unknown"))]
    if split is None:
        notes.append("no kernels of a training step: its time is not split")
    elif split["coarse"]:
        notes.append("whole actions are not told apart: the simulation's level is coarse")
    return Run(
        path=path,
        form="runcast",
        steps=(0,),
        steps_s=(makespan,),
        step_s=makespan,
        timeline=timeline,
        split_s=split,
        exposed_s=exposed_waits(split) if split else {},
        facts={"world_size": world, "ranks": tuple(sorted(ranks))},
        notes=tuple(notes),
    )


def _items(events: Sequence[Event]) -> dict[int, list[Item]]:
    """Items by rank; events of one op on several lanes of a rank are one item."""
    lanes = {(event["pid"], event["tid"]): str(event["args"]["name"])
             for event in events if event.get("name") == "thread_name"}  # fmt: skip
    items: dict[tuple[Any, ...], Item] = {}
    tracks: dict[Track, list[Item]] = defaultdict(list)
    for event in events:
        if event.get("ph") != "X":
            continue
        track, start = (int(event["pid"]), event["tid"]), round(event["ts"] * 1e3)
        end = start + round(event["dur"] * 1e3)
        key = (event["pid"], event["name"], event["cat"], start, end)
        item = items.setdefault(key, Item(start, end, event["cat"], (), event["name"], event["args"].get("bytes", 0)))
        item.lanes = (*item.lanes, lanes[track].partition(" of ")[0])
        tracks[track].append(item)
    _follow_arrows(events, tracks)
    ranks: dict[int, list[Item]] = defaultdict(list)
    for (rank, *_), item in items.items():
        ranks[rank].append(item)
    return ranks


def _follow_arrows(events: Sequence[Event], tracks: Mapping[Track, Sequence[Item]]) -> None:
    """Tell each item that an arrow leads to which item it waited for.

    An arrow starts a nanosecond before its op's end, or at its begin if that is later, and ends where another begins.
    """
    starts: dict[tuple[Track, int], list[Item]] = defaultdict(list)
    ends: dict[tuple[Track, int], Item] = {}
    for track, items in tracks.items():
        for item in items:
            starts[track, item.start_ns].append(item)
            ends[track, max(item.start_ns, item.end_ns - 1)] = item
    begun: dict[Any, Item] = {}
    for event in events:
        if event.get("cat") != "flow":
            continue
        at = ((event["pid"], event["tid"]), round(event["ts"] * 1e3))
        if event["ph"] == "s" and at in ends:
            begun[event["id"]] = ends[at]
        elif event["ph"] == "f" and event["id"] in begun:
            waiting = next((item for item in starts[at] if item.waited is None), None)
            if waiting is not None:
                waiting.waited = begun[event["id"]]
