"""`read_run`: a trace, a folder of traces of several ranks, or a log, told apart by what they hold."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ...base.errors import UserError
from ...base.files import read_text
from ...costs.phases import COMPUTE
from ..logs import Log, list_steps, read_log
from .kineto import Document, Event, RankTrace, parse, read_ranks
from .lanes import RankStep, step_of_rank
from .run import Item, Run, exposed_waits, split_by_phase, timeline_of, typical_step

SUFFIXES = (".json", ".json.gz", ".trace", ".trace.gz")
"""How the names of traces in a folder end."""
_EXPECTED = "a trace or a log of a run"
_MOST_BYTES = 2**30  # the profiler writes some hundred megabytes for a step


def read_run(path: Path | str, step: int | None = None) -> Run:
    """Read a real run from a file, or a folder with a trace per rank; one step, by default the typical one.

    A UserError for no such file or step, no trace or log that is known, or nothing to be learnt from it; one line.
    """
    path = Path(path)
    if os.path.isdir(path):
        run = _of_traces(path, _documents(path), step)
    else:
        text = read_text(path, _EXPECTED, _MOST_BYTES)
        document = parse(path, text)
        run = (
            _of_log(read_log(path, text, step, ", or a trace (JSON)"))
            if document is None
            else _of_traces(path, [document], step)
        )
    if not run.step_s > 0:
        raise UserError(f"{path}: says that a step takes no time")
    return run


def _of_log(log: Log) -> Run:
    return Run(
        path=log.path,
        form=log.format.name,
        steps=tuple(log.steps_s),
        steps_s=tuple(log.steps_s.values()),
        step_s=log.step_s,
        facts=log.facts,
        notes=log.notes,
        arguments=log.arguments,
    )


def _documents(folder: Path) -> list[Document]:
    """A trace per rank."""
    found = []
    for file in sorted(folder.iterdir()):
        if file.name.endswith(SUFFIXES) and not file.name.startswith("."):
            found.append(parse(file, read_text(file, _EXPECTED, _MOST_BYTES)))
            if found[-1] is None:
                raise UserError(f"{file}: is not JSON; a folder is read as a trace per rank")
    if not found:
        raise UserError(f"{folder}: holds no traces: expected a .json or .json.gz file per rank")
    return [document for document in found if document is not None]


def _of_traces(path: Path, documents: Sequence[Document], step: int | None) -> Run:
    if is_own(documents[0]):
        return read_own(path, documents[0], step)
    traces: dict[int, RankTrace] = {}
    for document in documents:
        for trace in read_ranks(document):
            other = traces.setdefault(trace.rank, trace)
            if other is not trace:
                raise UserError(f"{trace.path}: is of rank {trace.rank}, as {other.path} is")
    kineto = {"schemaVersion", "deviceProperties", "distributedInfo", "traceName", "trace_id"}
    form = "kineto" if kineto & set(documents[0].beside) else "chrome"
    return _of_ranks(path, dict(sorted(traces.items())), form, step)


def _of_ranks(path: Path, traces: Mapping[int, RankTrace], form: str, step: int | None) -> Run:
    seconds = _steps_s(path, traces)
    chosen = typical_step(seconds) if step is None else step
    if chosen not in seconds:
        raise UserError(f"{path}: holds no step {chosen}; it has {list_steps(list(seconds))}")
    steps = {rank: step_of_rank(trace, trace.steps[chosen]) for rank, trace in traces.items()}
    timeline = timeline_of({rank: found.items for rank, found in steps.items()})
    split = split_by_phase(timeline, [found.length_ns / 1e9 for found in steps.values()])
    return Run(
        path=path,
        form=form,
        steps=tuple(seconds),
        steps_s=tuple(seconds.values()),
        step_s=seconds[chosen],
        timeline=timeline,
        split_s=split,
        exposed_s=exposed_waits(split),
        facts=_facts(traces, steps, chosen),
        notes=tuple(_notes(traces, list(steps.values()), chosen)),
    )


def _steps_s(path: Path, traces: Mapping[int, RankTrace]) -> dict[int, float]:
    """Seconds of each step that all ranks have, mean over them."""
    common = set.intersection(*(set(trace.steps) for trace in traces.values()))
    if not common:
        raise UserError(f"{path}: no step is marked in the traces of all {len(traces)} ranks")
    windows = {number: [trace.steps[number] for trace in traces.values()] for number in sorted(common)}
    return {number: fmean((end - begin) / 1e9 for begin, end in spans) for number, spans in windows.items()}


def _facts(traces: Mapping[int, RankTrace], steps: Mapping[int, RankStep], chosen: int) -> dict[str, object]:
    axes = sorted({axis for step in steps.values() for axis in step.exchange_ns})
    of_file = {key: value for key, value in next(iter(traces.values())).facts.items() if key != "rank"}
    spent = {axis: fmean(step.exchange_ns.get(axis, 0) / 1e9 for step in steps.values()) for axis in axes}
    return of_file | {"step": chosen, "ranks": tuple(traces), "communication_s": spent}


def _notes(traces: Mapping[int, RankTrace], steps: Sequence[RankStep], chosen: int) -> list[str]:
    notes = []
    kernels, unknown = sum(step.kernel_ns for step in steps), _summed(step.unknown_ns for step in steps)
    if unknown:
        names = ", ".join(list(unknown)[:3])
        share = sum(unknown.values()) / kernels if kernels else 0.0
        notes.append(f"{share:.1%} of kernel time is of unknown kernels and counts as memory-bound: {names}")
    for axis, spent in _summed(step.assumed_ns for step in steps).items():
        notes.append(f"{spent / 1e9 / len(steps):.3g} s of exchanges do not say their axis and are taken as {axis}")
    if all(max(trace.steps) == chosen for trace in traces.values()):
        notes.append(f"step {chosen} is the last of the file: it ends with its last GPU op")
    world = next(iter(traces.values())).facts.get("world_size")
    if isinstance(world, int) and world > len(traces):
        notes.append(f"{len(traces)} of {world} ranks; exchanges hold the time that this rank waits for others"
                     if len(traces) == 1 else f"{len(traces)} of {world} ranks")  # fmt: skip
    if len(traces) > 1:
        notes.append("each rank's clock starts with its own step")
    return notes


def _summed(tables: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for table in tables:
        found.update(table)
    return dict(found.most_common())


# Our own traces read back: what `simulate --trace` wrote, with lanes by name and causes by arrows.

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
        facts={"world_size": world, "ranks": tuple(sorted(ranks)), "kind": document.beside["otherData"].get("kind")},
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
