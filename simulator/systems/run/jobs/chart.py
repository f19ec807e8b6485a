"""Spans of a pool for charts: a lane per job where they are few, with its time in the queue; else a lane per GPU."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice

from ..history import MOST_SPANS, Recorder
from .placement import Places

MOST_LANES = 200
"""Lanes of a chart. A pool with more jobs shows its first GPUs."""

_Gpu = tuple[int, int]  # node, and number on it


@dataclass(frozen=True)
class _Attempt:
    began_s: float
    gpus: tuple[_Gpu, ...]


class PoolChart:
    """Writes spans of jobs, which are numbers, and of nodes into `recorder`."""

    def __init__(self, recorder: Recorder, gpus_per_node: Sequence[int], names: Sequence[str]):
        self._recorder, self._names = recorder, names
        self._by_job = len(names) <= MOST_LANES
        self._free: dict[int, list[int]] = {}  # GPUs that have a lane and no job, by node; heaps
        self._attempts: dict[int, _Attempt] = {}
        if not self._by_job:
            many = sum(gpus_per_node)
            if many > MOST_LANES:
                recorder.note(f"charts, traces and CSV show the first {MOST_LANES} of {many:,} GPUs; numbers count all")
            gpus = ((node, gpu) for node, size in enumerate(gpus_per_node) for gpu in range(size))
            for node, gpu in islice(gpus, MOST_LANES):
                self._free.setdefault(node, []).append(gpu)

    def begin(self, job: int, places: Places, queued_s: float, now_s: float) -> None:
        """A job that came into the queue at `queued_s` starts."""
        if self._by_job:
            self._recorder.span(self._names[job], "idle", queued_s, now_s, "in the queue")
        self._attempts[job] = _Attempt(now_s, tuple(self._take(places)))

    def end(self, job: int, now_s: float, restart_s: float, lost: float) -> None:
        """It ends, or stops: after a restart it has worked, of which a share at the end is lost."""
        attempt = self._attempts.pop(job)
        for node, gpu in attempt.gpus:
            heappush(self._free[node], gpu)
        works_s = attempt.began_s + restart_s
        loses_s = now_s - lost * (now_s - works_s)
        for lane in [self._names[job]] if self._by_job else map(_name, attempt.gpus):
            self._recorder.span(lane, "restart", attempt.began_s, works_s, self._names[job])
            self._recorder.span(lane, "compute", works_s, loses_s, self._names[job])
            self._recorder.span(lane, "lost", loses_s, now_s, self._names[job])

    def away(self, node: int, cause: str, start_s: float, end_s: float) -> None:
        """A node was away."""
        for gpu in self._free.get(node, ()):
            self._recorder.span(_name((node, gpu)), cause, start_s, end_s)

    def _take(self, places: Places) -> Iterable[_Gpu]:
        if self._by_job or len(self._recorder.spans) >= MOST_SPANS:
            return
        for node, gpus in places:
            free = self._free.get(node, [])
            yield from [(node, heappop(free)) for _ in range(min(gpus, len(free)))]


def _name(gpu: _Gpu) -> str:
    return f"node {gpu[0]} gpu {gpu[1]}"
