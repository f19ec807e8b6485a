"""Kineto's and other Chrome traces of a GPU: what ran on each device, which steps it had, what the file says beside.

Times are whole nanoseconds of the file's own clock. A step begins when its first GPU op begins and ends where the next
step begins; the last one ends with its last op. Which ops are of a step is said by the annotation `ProfilerStep#N` of
the device, or else by when the host launched them.
"""

import json
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from ...base.errors import UserError
from .names import kernel_table

Event = dict[str, Any]
GPU = {
    "kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "copy", "Kernel": "kernel", "Memcpy": "copy",
    "Memset": "copy",
}  # fmt: skip
"""Categories of what runs on a GPU, of today's and of older files."""
_OF_HOST = frozenset({
    "cpu_op", "python_function", "ac2g", "fwdbwd", "async_cpu_to_gpu", "async_gpu", "cpu_instant_event", "overhead",
    "Trace", "cuda_sync", "Operator", "cpu_op_flow", "forward_backward", "fwd_bwd", "python", "cuda_profiler_range",
})  # fmt: skip
COMMS = "record_param_comms"
_STARTS_LIKE_A_LOG = re.compile(r"\s*(\[\s*[^\s{\]]|\{\s*')")  # [rank0], [2025-08-01, {'loss': 2.1
_OF_TRAINER = frozenset({"log_history", "train_runtime"})  # trainer_state.json, train_results.json
_EVENTS = "traceEvents"
OF_RUNS = _OF_TRAINER | {_EVENTS}
"""Keys by which a JSON file is of a run, and no report of ours."""


@dataclass(frozen=True)
class Document:
    """The events of a trace that are kept, what stands beside them, and how many events of the host were dropped."""

    path: Path
    events: Sequence[Event]
    beside: Mapping[str, Any]
    dropped: Mapping[str, int]


def parse(path: Path, text: str) -> Document | None:
    """The trace that a text holds; None if the text is no JSON, or a trainer's, and may be a log.

    A UserError for JSON that is broken or holds no events.
    """
    start = text.lstrip()[:1]
    if start not in ("{", "["):
        return None
    dropped: Counter[str] = Counter()
    try:
        found = json.loads(text, object_hook=lambda table: _keep(table, dropped), strict=False)
    except (ValueError, RecursionError) as error:
        if _STARTS_LIKE_A_LOG.match(text):
            return None
        raise UserError(f"{path}: is not JSON: {' '.join(str(error).split())[:100]}") from None
    if isinstance(found, dict) and _OF_TRAINER & found.keys():
        return None
    events = found.get(_EVENTS) if isinstance(found, dict) else found
    if not isinstance(events, list):
        raise UserError(f"{path}: is no trace: it has no list `traceEvents`")
    beside = {key: value for key, value in found.items() if key != _EVENTS} if isinstance(found, dict) else {}
    return Document(path, [event for event in events if isinstance(event, dict)], beside, dropped)


def _keep(table: dict[str, Any], dropped: Counter[str]) -> dict[str, Any] | None:
    """The table itself, or nothing if it is an event of the host that no question here asks for."""
    if "ph" not in table or str(table.get("cat")) not in _OF_HOST or table.get("name") == COMMS:
        return table
    dropped[table["cat"]] += 1
    return None


_STEP = re.compile(r"ProfilerStep\s*#?\s*(\d+)")
_LAUNCHES = ("cuda_runtime", "cuda_driver", "Runtime", "runtime", "hip_runtime")
Window = tuple[int, int]


class GpuOp(NamedTuple):
    """A kernel, copy or fill; times in nanoseconds, `args` as the file has them."""

    name: str
    source: str
    stream: int
    start_ns: int
    end_ns: int
    args: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class RankTrace:
    """The trace of one GPU: ops by start, the window of each step by number, groups by name."""

    path: Path
    rank: int
    ops: Sequence[GpuOp]
    steps: Mapping[int, Window]
    facts: Mapping[str, Any]
    groups: Mapping[str, str]


def read_ranks(document: Document) -> list[RankTrace]:
    """The GPUs of a trace; several of one process are ranks by the number of the device.

    A UserError if nothing runs on a GPU, or no step is marked; one line.
    """
    ops = _gpu_ops(document)
    if not ops:
        host = [f"{count:,} {category}" for category, count in sorted(document.dropped.items())]
        kinds = sorted({str(event.get("cat")) for event in document.events if "cat" in event})
        lacks = f"kernels of a GPU, only {', '.join([*host, *kinds])}" if host or kinds else "events at all"
        wanted = "profile with ProfilerActivity.CUDA, in a process that may read CUPTI"
        raise UserError(f"{document.path}: holds no {lacks}; {wanted}")
    facts = _facts(document)
    rank = facts.get("rank")
    groups = {str(group.get("pg_name")): str(group.get("pg_desc", "")) for group in _groups(document)}
    found = []
    for device, own in sorted(ops.items()):
        number = device if len(ops) > 1 or not isinstance(rank, int) else rank
        steps = _steps(document, own, device)
        if not steps:
            raise UserError(f"{document.path}: marks no step (ProfilerStep#N); call step() of the profiler once a step")
        found.append(RankTrace(document.path, number, own, steps, facts, groups))
    return found


def _gpu_ops(document: Document) -> dict[int, list[GpuOp]]:
    """Ops by device, sorted by start; exchanges with what the host recorded about them, where the kernel lacks it."""
    recorded = [_args(event) for event in document.events if event.get("name") == COMMS]
    comms = {_id(args, "External id"): args for args in recorded if "External id" in args}
    ops: dict[int, list[GpuOp]] = defaultdict(list)
    for event in document.events:
        source = GPU.get(str(event.get("cat")))
        if event.get("ph") != "X" or source is None:
            continue
        args = _args(event)
        if "nccl" in str(event.get("name")).lower() and "Collective name" not in args:
            args = comms.get(_id(args, "External id"), {}) | args
        start, end = _span(event, document.path)
        stream = args.get("stream", event.get("tid", 0))
        device = args.get("device", 0)
        name = str(event.get("name", ""))
        ops[_whole(device)].append(GpuOp(name, source, _whole(stream), start, end, args))
    return {device: sorted(own, key=lambda op: (op.start_ns, op.end_ns)) for device, own in ops.items()}


def _id(args: Mapping[str, Any], name: str) -> str:
    """An identifier in a file as text, whatever its type; empty if there is none."""
    return str(args.get(name, ""))


def _steps(document: Document, ops: Sequence[GpuOp], device: int) -> dict[int, Window]:
    """The window of each step by its number."""
    on_gpu, on_host = _annotations(document, device)
    spans = on_gpu or _launched(document, ops, on_host) or on_host
    numbers = sorted(spans, key=lambda number: spans[number])
    following = {number: spans[later][0] for number, later in pairwise(numbers)}
    ends = {number: following.get(number, spans[number][1]) for number in numbers}
    return {n: (spans[n][0], ends[n]) for n in sorted(numbers) if ends[n] > spans[n][0]}


def _annotations(document: Document, device: int) -> tuple[dict[int, Window], dict[int, Window]]:
    """Spans of marked steps on the device and on the host; several spans of a step are one from first to last."""
    on_gpu: dict[int, Window] = {}
    on_host: dict[int, Window] = {}
    for event in document.events:
        match = _STEP.match(str(event.get("name", ""))) if event.get("ph") == "X" else None
        if match is None:
            continue
        of_gpu = "gpu" in str(event.get("cat"))
        if of_gpu and _args(event).get("device", event.get("pid", device)) != device:
            continue
        _widen(on_gpu if of_gpu else on_host, int(match[1]), *_span(event, document.path))
    return on_gpu, on_host


def _widen(spans: dict[int, Window], number: int, start: int, end: int) -> None:
    """Let the span of a step reach over this one too."""
    first, last = spans.get(number, (start, end))
    spans[number] = min(first, start), max(last, end)


def _launched(document: Document, ops: Sequence[GpuOp], on_host: Mapping[int, Window]) -> dict[int, Window]:
    """The window from the first to the last op launched in each step; empty if the file has no launches."""
    launch = {
        _id(_args(event), "correlation"): _start(event, document.path)
        for event in document.events
        if str(event.get("cat")) in _LAUNCHES
    }
    numbers = sorted(on_host, key=lambda number: on_host[number])
    ends = [on_host[number][1] for number in numbers]
    found: dict[int, Window] = {}
    for op in ops:
        at = launch.get(_id(op.args, "correlation")) if "correlation" in op.args else None
        i = bisect_left(ends, at) if at is not None else len(ends)
        if at is not None and i < len(ends) and at >= on_host[numbers[i]][0]:
            _widen(found, numbers[i], op.start_ns, op.end_ns)
    return found


def _facts(document: Document) -> dict[str, Any]:
    """World, rank, device, and the sizes of the axes whose groups the file describes."""
    world = _world(document)
    known = {key: world.get(key) for key in ("world_size", "rank")}
    facts: dict[str, Any] = {key: value for key, value in known.items() if isinstance(value, int) and value >= 0}
    if devices := _tables(document.beside.get("deviceProperties")):
        facts["device"] = str(devices[0].get("name"))
    for group in _groups(document):
        axis, size = kernel_table()["size"].get(str(group.get("pg_desc", ""))), group.get("pg_size")
        if axis and isinstance(size, int):
            facts[axis] = size
    return facts


def _world(document: Document) -> Mapping[str, Any]:
    world = document.beside.get("distributedInfo")
    return world if isinstance(world, Mapping) else {}


def _groups(document: Document) -> list[Mapping[str, Any]]:
    return _tables(_world(document).get("pg_config"))


def _tables(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _args(event: Event) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _span(event: Event, path: Path) -> Window:
    start, length = _start(event, path), _nanoseconds(event, "dur", path)
    if length < 0:
        raise UserError(f"{path}: event {event.get('name')!r}: dur = {event['dur']}: expected 0 or more microseconds")
    return start, start + length


def _start(event: Event, path: Path) -> int:
    return _nanoseconds(event, "ts", path)


def _nanoseconds(event: Event, key: str, path: Path) -> int:
    try:
        return round(float(event[key]) * 1e3)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise UserError(f"{path}: event {event.get('name')!r}: ts and dur must be numbers of microseconds") from None


def _whole(value: Any) -> int:
    return int(value) if str(value).isdecimal() else 0
