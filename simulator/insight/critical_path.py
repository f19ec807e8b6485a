"""The critical path of a Timeline, and what follows from it: exposed seconds per phase, and provenance.

The engine records for each op the op whose end let it start, so the path is followed, not guessed: from the op that
ends last back to time zero its spans touch each other and sum to the makespan.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..costs import Costs
from ..profile import PROVENANCE
from ..timeline import Timeline


@dataclass(frozen=True, eq=False)
class CriticalPath:
    """The ops on the path in the order of time, and the seconds that each one holds up the end."""

    ops: NDArray[np.int64]
    seconds: NDArray[np.float64]


def critical_path(timeline: Timeline, since_s: float = 0.0) -> CriticalPath:
    """The path from the op that ends last back to `since_s`."""
    ops: list[int] = []
    op = int(timeline.end_s.argmax()) if len(timeline.end_s) else -1
    while op >= 0 and timeline.end_s[op] > since_s:
        ops.append(op)
        op = int(timeline.cause[op])
    path = np.array(ops[::-1], np.int64)
    return CriticalPath(path, timeline.end_s[path] - np.maximum(timeline.start_s[path], since_s))


def sum_by_group(path: CriticalPath, group: NDArray[np.int64], names: tuple[str, ...]) -> dict[str, float]:
    """Seconds of the path per group of ops; `group[op]` indexes `names`; largest first, empty ones left out."""
    seconds = np.bincount(group[path.ops], path.seconds, minlength=len(names))
    order = np.argsort(-seconds, kind="stable")
    return {names[i]: float(seconds[i]) for i in order if seconds[i] > 0}


def provenance(path: CriticalPath, costs: Costs) -> dict[str, float]:
    """The share of the path's time by provenance of its numbers."""
    seconds = sum_by_group(path, costs.provenance, PROVENANCE)
    total = sum(seconds.values())
    return {name: value / total for name, value in seconds.items()} if total else {}
