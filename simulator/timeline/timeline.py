"""The Timeline: when each op of a Program was ready, started and ended, simulated or measured.

Its own questions live here; what each rank did is in `ranks`, memory in `memory`, files for other tools in `trace` and
`table`, Gantt charts as data in `chart`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..program import Program

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Timeline:
    """One entry per op, in seconds. `cause[op]` is the op whose end let it start, -1 at time 0."""

    program: Program
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    cause: NDArray[np.int64]
    cancelled: NDArray[np.bool_]

    @cached_property
    def ready_s(self) -> NDArray[np.float64]:
        """When the last dependency of each op had ended; `start_s - ready_s` is queueing for lanes and pools."""
        deps = self.program.deps
        ready = np.zeros(len(self.program))
        np.maximum.at(ready, deps.row_of_value(), self.end_s[deps.values])
        return ready

    @property
    def makespan_s(self) -> float:
        """The end of the last op."""
        return float(self.end_s.max(initial=0.0))

    def span_of(self, *kinds: str) -> tuple[float, float]:
        """First start and last end over the ops of the given kinds; (0, 0) if there are none."""
        mask = self.program.is_kind(*kinds)
        return (float(self.start_s[mask].min()), float(self.end_s[mask].max())) if mask.any() else (0.0, 0.0)

    def spans(self) -> "pd.DataFrame":
        """One row per op and lane, with times in seconds; `ranks` is how many ranks the place stands for."""
        import pandas as pd

        program = self.program
        op = program.lanes_of.row_of_value()
        lane = program.lanes_of.values
        place = np.array([lane.place for lane in program.lanes], np.int64)[lane]
        columns = {
            "place": np.array([place.name for place in program.places], object)[place],
            "ranks": np.array([len(place.ranks) for place in program.places], np.int64)[place],
            "lane": np.array([lane.name for lane in program.lanes], object)[lane],
            "op": op,
            "name": np.array(program.names, object)[op],
            "kind": np.array(program.kinds, object)[program.kind[op]],
            "ready_s": self.ready_s[op],
            "start_s": self.start_s[op],
            "end_s": self.end_s[op],
            "queued_s": (self.start_s - self.ready_s)[op],
            "bytes": program.bytes[op],
        }
        return pd.DataFrame(columns | {tag: values[op] for tag, values in program.tags.items()})

    def busy_s(self, *kinds: str) -> float:
        """Length of the union of the intervals in which an op of the given kinds runs anywhere."""
        mask = self.program.is_kind(*kinds)
        return union_s(self.start_s[mask], self.end_s[mask])


def union_s(start_s: NDArray[np.float64], end_s: NDArray[np.float64]) -> float:
    """Total length covered by the intervals; overlaps count once."""
    if not len(start_s):
        return 0.0
    order = np.argsort(start_s, kind="stable")
    reached = np.maximum.accumulate(end_s[order])
    gaps = np.maximum(start_s[order][1:] - reached[:-1], 0.0)
    return float(reached[-1] - start_s[order][0] - gaps.sum())
