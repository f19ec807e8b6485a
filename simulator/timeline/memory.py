"""Memory as a timeline: which buffers a rank holds when, its peak, and what held it.

A buffer lives from the start of its first writer (from 0 if it is only read: it was there before) to the end of the
last op that touches it. Buffers that no op touches are left out. What is resident all the time and not in the Program
(inference weights, KV cache) is given as `static_bytes`, by name: one number, or one per rank.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..base.rows import column_of
from ..program import Program
from .timeline import Timeline

if TYPE_CHECKING:
    import pandas as pd

Static = Mapping[str, ArrayLike]


@dataclass(frozen=True)
class Peak:
    """The most bytes that one rank holds at once, from when on, and what they are: (name, bytes), largest first."""

    rank: int
    bytes: float
    time_s: float
    held: tuple[tuple[str, float], ...]


def lifetimes(timeline: Timeline) -> "pd.DataFrame":
    """One row per buffer that some op touches: buffer, name, place, memory, bytes, start_s, end_s."""
    import pandas as pd

    program = timeline.program
    start, end = buffer_spans(timeline)
    kept = np.flatnonzero(np.isfinite(end)).tolist()
    rows = [(i, *_fields(program, i), start[i], end[i]) for i in kept]
    return pd.DataFrame(rows, columns=["buffer", "name", "place", "memory", "bytes", "start_s", "end_s"])


def memory(timeline: Timeline, rank: int, memory: str = "device", static_bytes: Static | None = None) -> "pd.DataFrame":
    """The bytes that a rank holds as a step function: time_s and, from then on, bytes."""
    import pandas as pd

    own = _on_rank(timeline.program, lifetimes(timeline), rank, memory)
    times, held = _steps(own, _resident(static_bytes, rank))
    return pd.DataFrame({"time_s": times, "bytes": held})


def peaks(timeline: Timeline, memory: str = "device", static_bytes: Static | None = None) -> list[Peak]:
    """The peak of every rank, in their order."""
    table = lifetimes(timeline)
    own = _peaks_of_buffers(timeline.program, table[table.memory == memory])
    return [_with_static(peak, static_bytes or {}) for peak in own]


def peak_bytes(timeline: Timeline, memory: str = "device", static_bytes: Static | None = None) -> Peak:
    """The peak of the rank that holds most (the first of several)."""
    return max(peaks(timeline, memory, static_bytes), key=lambda peak: peak.bytes, default=Peak(-1, 0.0, 0.0, ()))


def buffer_spans(timeline: Timeline) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """First start of a writer (0 without one) and last end of an accessor (-inf without one), per buffer."""
    program = timeline.program
    accesses = program.accesses
    op, buffers = accesses.row_of_value(), len(program.buffers)
    buffer = column_of(program.access_table, "buffer", int)[accesses.values]
    writes = column_of(program.access_table, "write", bool)[accesses.values]
    start, end = np.full(buffers, np.inf), np.full(buffers, -np.inf)
    np.minimum.at(start, buffer[writes], timeline.start_s[op[writes]])
    np.maximum.at(end, buffer, timeline.end_s[op])
    return np.where(np.isinf(start), 0.0, start), end


def _fields(program: Program, buffer: int) -> tuple[str, int, str, int]:
    row = program.buffers[buffer]
    return row.name, row.place, row.memory, row.bytes


def _on_rank(program: Program, table: "pd.DataFrame", rank: int, memory: str) -> "pd.DataFrame":
    places = [i for i, place in enumerate(program.places) if rank in place.ranks]
    return table[table.place.isin(places) & (table.memory == memory)]


def _peaks_of_buffers(program: Program, table: "pd.DataFrame") -> list[Peak]:
    """The peak of each rank from its buffers alone; ranks with buffers at the same places share the work."""
    places: list[tuple[int, ...]] = [()] * program.ranks
    for place in sorted(set(table.place)):
        for rank in program.places[place].ranks:
            places[rank] += (place,)
    found = {key: _peak(table[table.place.isin(key)]) for key in set(places)}
    return [replace(found[key], rank=rank) for rank, key in enumerate(places)]


def _steps(own: "pd.DataFrame", resident_bytes: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Distinct times and the bytes held from then on; what is freed at a moment makes room for what comes then."""
    sizes = own.bytes.to_numpy(np.float64)
    times = np.concatenate([[0.0], own.start_s.to_numpy(np.float64), own.end_s.to_numpy(np.float64)])
    times, moment = np.unique(times, return_inverse=True)
    changes = np.bincount(moment, np.concatenate([[resident_bytes], sizes, -sizes]), minlength=len(times))
    return times, np.cumsum(changes)


def _peak(own: "pd.DataFrame") -> Peak:
    times, held = _steps(own, 0.0)
    at = int(held.argmax())
    there = own[(own.start_s <= times[at]) & (own.end_s > times[at])]
    return Peak(-1, float(held[at]), float(times[at]), _largest_first(zip(there.name, there.bytes, strict=True)))


def _with_static(peak: Peak, static_bytes: Static) -> Peak:
    """Add static bytes to a peak; they do not move it."""
    static = [(name, _of_rank(value, peak.rank)) for name, value in static_bytes.items()]
    held = _largest_first([*static, *peak.held])
    return replace(peak, bytes=peak.bytes + sum(size for _, size in static), held=held)


def _largest_first(held: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    return tuple(sorted(((name, float(size)) for name, size in held), key=lambda owner: -owner[1]))


def _resident(static_bytes: Static | None, rank: int) -> float:
    return sum(_of_rank(value, rank) for value in (static_bytes or {}).values())


def _of_rank(value: ArrayLike, rank: int) -> float:
    values = np.asarray(value, np.float64)
    return float(values[rank] if values.ndim else values)
