"""The critical path of a Timeline, and what follows from it: exposed seconds, provenance, and what overlap costs.

The engine records for each op the op whose end let it start, so the path is followed, not guessed: from the op that
ends last back to time zero its spans touch each other and sum to the makespan.

An op alone takes `uncontended_s`. Kernels slow down beside exchanges on their GPU; exchanges and copies beside kernels,
and where they share a link with others. What overlaps is not free: `slowed_s` is its price.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..base.op_kinds import COPY, kinds_of_form
from ..costs import EXCHANGES, Costs
from ..profile import PROVENANCE
from ..program import Program
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


_LEAST, _SHOWN = 0.01, 0.0005
"""Shares of a total from which on the report says so, and names a part."""

SLOWED: Mapping[str, str] = {
    "kernels": "kernels beside exchanges and copies",
    "exchanges": "exchanges beside kernels, or beside others on the same link",
    "copies": "copies beside kernels, or beside others on the same link",
}
"""What takes longer, and beside what."""


def slowed_s(path: CriticalPath, program: Program, costs: Costs) -> dict[str, float]:
    """Seconds that ops of a whole critical path take longer than alone, by what they are (SLOWED)."""
    longer = np.maximum(path.seconds - costs.uncontended_s[path.ops], 0.0)
    exchange, copy = program.is_kind(*EXCHANGES)[path.ops], program.is_kind(*kinds_of_form(COPY))[path.ops]
    parts = {"kernels": ~exchange & ~copy, "exchanges": exchange, "copies": copy}
    return {name: float(longer[of].sum()) for name, of in parts.items()}


def slowed_lines(slowed: Mapping[str, float], total_s: float) -> Iterator[str]:
    """A note on the slowdowns as shares of the total; none if they are below 1 % together."""
    share = sum(slowed.values()) / max(total_s, 1e-30)
    if share < _LEAST:
        return
    parts = (f"{SLOWED[name]} ({seconds / total_s:.1%})" for name, seconds in slowed.items()
             if seconds >= _SHOWN * total_s)  # fmt: skip
    yield (
        f"ops on the critical path take {share:.1%} of the step longer because of what runs beside them: "
        f"{', '.join(parts)}"
    )
