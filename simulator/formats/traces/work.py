"""Items: what a rank did in a step, as ops with lanes; and the Timeline over a Program that they make together.

An item names the item that it waited for where that is known. For all others the cause is the item of the same rank
that ended last before it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from ...program import ProgramBuilder
from ...timeline import Timeline


@dataclass(eq=False)
class Item:
    """An op of a real run; nanoseconds from the begin of the step."""

    start_ns: int
    end_ns: int
    kind: str
    lanes: tuple[str, ...]
    name: str = ""
    size_bytes: int = 0
    dtype: str = ""
    group: tuple[int, ...] = ()
    waited: "Item | None" = None


def timeline_of(ranks: Mapping[int, Sequence[Item]]) -> Timeline:
    """The Timeline of what some ranks did; a place per rank, ops by start."""
    builder = ProgramBuilder()
    place = {rank: builder.place(f"rank {rank}", (rank,)) for rank in sorted(ranks)}
    ordered = [
        (rank, item)
        for rank, item in sorted(
            ((rank, item) for rank, items in ranks.items() for item in items),
            key=lambda pair: (pair[1].start_ns, pair[1].end_ns),
        )
    ]
    cause = _causes(ordered)
    for (rank, item), after in zip(ordered, cause, strict=True):
        builder.op(
            item.kind,
            [builder.lane(place[rank], lane) for lane in item.lanes],
            (after,) if after >= 0 else (),
            name=item.name,
            size_bytes=item.size_bytes,
            dtype=item.dtype,
            group=item.group,
        )
    start = np.array([item.start_ns for _, item in ordered], np.float64) / 1e9
    end = np.array([item.end_ns for _, item in ordered], np.float64) / 1e9
    return Timeline(builder.build(), start, end, np.array(cause, np.int64), np.zeros(len(start), np.bool_))


def _causes(ordered: Sequence[tuple[int, Item]]) -> list[int]:
    """Of each item the index of its cause, -1 if nothing ended before it."""
    index = {id(item): i for i, (_, item) in enumerate(ordered)}
    running: dict[int, list[tuple[int, int]]] = {}
    latest: dict[int, int] = {}
    causes = []
    for i, (rank, item) in enumerate(ordered):
        ends = running.setdefault(rank, [])
        while ends and ends[0][0] <= item.start_ns:
            latest[rank] = heappop(ends)[1]
        causes.append(latest.get(rank, -1) if item.waited is None else index[id(item.waited)])
        heappush(ends, (item.end_ns, i))
    return causes
