"""From the GPU ops of a rank's step to Items: which stream computes, what its gaps wait for, the axes of exchanges.

The stream with most time in products of matrices is the compute lane. All of its gaps are told apart:
- a kernel of another stream that runs in a gap computes: that part of it is on the compute lane too;
- an exchange or copy that ends in a gap was waited for from the gap's begin (or its own) until it ended;
- in what is left of a gap the device waits for the host, also where an exchange goes on behind it.
"""

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...base.op_kinds import ATTENTION, COPY, EXPERTS, PRODUCT, kinds_of_form
from ...costs.phases import COMPUTE, phase_of_lane
from . import names
from .kineto import GpuOp, RankTrace, Window
from .run import Item

ITEM_BYTES = {
    "BFloat16": 2, "Half": 2, "Float": 4, "Double": 8, "Int": 4, "Long": 8, "Byte": 1, "Char": 1, "Short": 2, "Bool": 1,
    "Float8_e4m3fn": 1, "Float8_e5m2": 1, "Float8_e4m3fnuz": 1, "Float8_e5m2fnuz": 1,
}  # fmt: skip
_COPIES = kinds_of_form(COPY)
_PRODUCTS = kinds_of_form(PRODUCT, EXPERTS, ATTENTION)


@dataclass(frozen=True)
class RankStep:
    """A rank's step: its items, and nanoseconds of exchanges by axis, of kernels, and of what was not understood."""

    items: Sequence[Item]
    length_ns: int
    exchange_ns: Mapping[str, int]
    kernel_ns: int
    unknown_ns: Mapping[str, int]
    assumed_ns: Mapping[str, int]


def step_of_rank(trace: RankTrace, window: Window) -> RankStep:
    """The ops of a rank within a window of time, cut at its ends, on lanes and without unnamed gaps."""
    begin, end = window
    cut = [op._replace(start_ns=max(op.start_ns, begin) - begin, end_ns=min(op.end_ns, end) - begin)
           for op in trace.ops if op.start_ns < end and op.end_ns > begin]  # fmt: skip
    works = [(op, *_kind_and_axis(op, trace.groups)) for op in cut]
    main = _compute_stream([(op, kind) for op, kind, _, _ in works])
    length = end - begin
    own = [_item(op, kind, axis, (COMPUTE,)) for op, kind, axis, _ in works if op.stream == main]
    lane = list(_laid_end_to_end(own))
    waits = [_item(op, kind, axis) for op, kind, axis, _ in works if op.stream != main and axis]
    beside = [_item(op, kind, "", (f"stream {op.stream}",)) for op, kind, axis, _ in works
              if op.stream != main and not axis]  # fmt: skip
    gaps, pieces = _computed_beside(list(_gaps(lane, length)), beside)
    computed = [item for item in (*lane, *pieces) if COMPUTE in item.lanes]
    idle = list(_idle(gaps, waits, computed, length))
    return RankStep(
        [*lane, *waits, *pieces, *idle],
        length,
        _by_name((phase_of_lane(axis), op) for op, _, axis, _ in works if axis),
        sum(op.end_ns - op.start_ns for op, _, axis, _ in works if not axis),
        _by_name((names.short_name(op.name), op) for op, kind, _, _ in works if kind == names.OTHER),
        _by_name((axis, op) for op, _, axis, assumed in works if assumed),
    )


def _kind_and_axis(op: GpuOp, groups: Mapping[str, str]) -> tuple[str, str, bool]:
    """Kind, lane of an exchange or copy (empty for kernels), and whether its axis is assumed."""
    if op.source == "copy":
        kind = names.kind_of_copy(op.name)
        return (kind, "tp", True) if names.is_exchange(kind) else (kind, kind if kind in _COPIES else "", False)
    kind = names.kind_of_kernel(op.name)
    if not names.is_exchange(kind):
        return kind, "", False
    kind = names.kind_of_collective(str(op.args.get("Collective name", ""))) or kind
    described = str(op.args.get("Process Group Description", ""))
    named = groups.get(str(op.args.get("Process Group Name")), "")
    axis = names.axis_of_group(described) or names.axis_of_group(named) or names.axis_of_library(op.name)
    return kind, axis or names.kernel_table()["assumed"][kind], axis is None


def _compute_stream(works: Sequence[tuple[GpuOp, str]]) -> int:
    """The stream with most time in products, or with most time at all if there are none."""
    busy: Counter[int] = Counter()
    products: Counter[int] = Counter()
    for op, kind in works:
        if not names.is_exchange(kind) and kind not in _COPIES:
            busy[op.stream] += op.end_ns - op.start_ns
            products[op.stream] += (op.end_ns - op.start_ns) * (kind in _PRODUCTS)
    return max(busy, key=lambda stream: (products[stream], busy[stream], -stream), default=-1)


def _item(op: GpuOp, kind: str, axis: str, lanes: tuple[str, ...] = ()) -> Item:
    on = (*lanes, axis) if axis else lanes
    if not names.is_exchange(kind):
        return Item(op.start_ns, op.end_ns, kind, on, names.short_name(op.name), _number(op.args.get("bytes")))
    dtype = str(op.args.get("dtype", ""))
    elements = max(_number(op.args.get("In msg nelems")), _number(op.args.get("Out msg nelems")))
    size = elements * ITEM_BYTES.get(dtype, 0)
    # the ranks of a group if the file has them all; long lists are cut short by the profiler
    words = str(op.args.get("Process Group Ranks", "")).strip("[]").split(",")
    ranks = tuple(map(int, words)) if all(word.strip().isdigit() for word in words) else ()
    return Item(op.start_ns, op.end_ns, kind, on, names.short_name(op.name), size, dtype, ranks)


def _number(value: Any) -> int:
    """A count, as far as the file has one; none is larger than a petabyte."""
    return value if isinstance(value, int) and 0 < value < 2**50 else 0


def _laid_end_to_end(items: Sequence[Item]) -> Iterator[Item]:
    """Items of one stream, each from when the one before has ended: launches may overlap a little."""
    reached = 0
    for item in items:
        if item.end_ns > reached or item.start_ns >= reached:
            start = max(item.start_ns, reached)
            yield replace(item, start_ns=start)
            reached = item.end_ns


def _gaps(lane: Sequence[Item], length_ns: int) -> Iterator[Window]:
    """The windows in which the compute lane is idle."""
    reached = 0
    for item in lane:
        if item.start_ns > reached:
            yield reached, item.start_ns
        reached = item.end_ns
    if reached < length_ns:
        yield reached, length_ns


def _computed_beside(gaps: Sequence[Window], beside: Sequence[Item]) -> tuple[list[Window], list[Item]]:
    """The gaps without what other streams compute in them, and the kernels of those streams cut at the gaps' ends."""
    left, pieces, running = list[Window](), list[Item](), list[Item]()
    coming = deque(beside)
    for begin, end in gaps:
        while coming and coming[0].start_ns < end:
            running.append(coming.popleft())
        reached, later = begin, list[Item]()
        for item in running:
            start = max(item.start_ns, reached)
            before, shown, after = _parts(item, start, min(item.end_ns, end))
            pieces += before
            if shown and reached < start:
                left.append((reached, start))
            pieces += [replace(part, lanes=(COMPUTE, *part.lanes)) for part in shown]
            later += after
            reached = max([reached, *(part.end_ns for part in shown)])
        if reached < end:
            left.append((reached, end))
        running = later
    return left, [*pieces, *running, *coming]


def _parts(item: Item, start: int, stop: int) -> tuple[list[Item], list[Item], list[Item]]:
    """An item before `start`, until `stop`, and from there on; what is empty is left out."""
    if item.end_ns <= start:
        return [item], [], []
    before = [replace(item, end_ns=start)] if item.start_ns < start else []
    after = [replace(item, start_ns=stop)] if stop < item.end_ns else []
    return before, [replace(item, start_ns=start, end_ns=stop)], after


def _idle(gaps: Sequence[Window], waits: Sequence[Item], computed: Sequence[Item], length_ns: int) -> Iterator[Item]:
    """Items of the host for what nothing else explains; items of the compute lane are told what they waited for."""
    by_end = sorted(waits, key=lambda item: item.end_ns)
    ends = [item.end_ns for item in by_end]
    behind: dict[int, Item] = {}
    for item in sorted(computed, key=lambda item: item.end_ns):
        behind.setdefault(item.start_ns, item)
    for begin, end in gaps:
        reached, waited = begin, None
        for start, stop, last in _runs(by_end[bisect_right(ends, begin) : bisect_right(ends, end)], begin):
            if start > reached:
                yield _host(reached, start, waited)
            reached, waited = stop, last
        if reached < end or end == length_ns:
            yield _host(reached, end, waited)
        elif end in behind:
            behind[end].waited = waited


def _runs(waits: Sequence[Item], begin: int) -> list[tuple[int, int, Item]]:
    """Stretches in which something goes on that ends within the gap, each with what ends last in it."""
    found: list[tuple[int, int, Item]] = []
    for item in sorted(waits, key=lambda item: max(item.start_ns, begin)):
        start = max(item.start_ns, begin)
        if found and start <= found[-1][1]:
            first, stop, last = found[-1]
            found[-1] = (first, max(stop, item.end_ns), item if item.end_ns >= stop else last)
        else:
            found.append((start, item.end_ns, item))
    return found


def _host(start_ns: int, end_ns: int, waited: Item | None) -> Item:
    return Item(start_ns, end_ns, "issue", (COMPUTE, "host"), "device idle", waited=waited)


def _by_name(spent: Iterable[tuple[str, GpuOp]]) -> dict[str, int]:
    """Nanoseconds by name, most first."""
    found: Counter[str] = Counter()
    for name, op in spent:
        found[name] += op.end_ns - op.start_ns
    return dict(found.most_common())
