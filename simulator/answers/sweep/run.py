"""Running a sweep: what is not done yet, in chunks, through an engine, into the store; then the report."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from .engines import Chunk, Engine
from .plan import Sweep
from .point import Point, Task
from .results import Results, write_results
from .store import Store

CHUNK_S = 0.2
"""What a chunk should take: losing one costs little, and so does sending it."""
MOST = 64
"""Points of a chunk."""


@dataclass(frozen=True)
class Progress:
    """How far a sweep is; `began` points were done before it was taken up."""

    done: int
    total: int
    infeasible: int
    began: int


@dataclass(frozen=True)
class Swept:
    """A sweep that ended: `complete`, or stopped by ^C with what was done until then."""

    complete: bool
    counts: dict[str, int]
    results: Results


@dataclass
class _Pace:
    """Seconds that a point takes, by those that came last; decides how many go into a chunk."""

    seconds: float = CHUNK_S

    def saw(self, seconds: float) -> None:
        self.seconds += 0.3 * (seconds - self.seconds)

    @property
    def points(self) -> int:
        return max(1, min(MOST, int(CHUNK_S / max(self.seconds, 1e-9))))


def run_sweep(
    sweep: Sweep,
    folder: Path,
    engine: Engine,
    watch: Callable[[Progress], None] = lambda progress: None,
    task: Task | None = None,
) -> Swept:
    """Run what is not done yet, or failed, of a sweep in this folder; write its report. ^C ends it with what is done.

    Raises:
        UserError: the folder cannot be written, is at work elsewhere, or holds another sweep or other files.
    """
    with Store.open(folder, sweep) as store:
        store.reopen("failed")
        try:
            _run(sweep, store, engine, watch, task or sweep.work)
            complete = True
        except KeyboardInterrupt:
            complete = False
        return Swept(complete, store.counts(), write_results(sweep, store))


def _run(sweep: Sweep, store: Store, engine: Engine, watch: Callable[[Progress], None], task: Task) -> None:
    counts = store.counts()
    began = done = sum(counts.values())
    infeasible = counts.get("infeasible", 0)
    pace = _Pace()
    watch(Progress(done, len(sweep), infeasible, began))
    with closing(engine.run(task, _chunks(_open_points(sweep, store), pace))) as runs:
        for outcomes in runs:
            store.record([sweep.judged(one) for one in outcomes])
            done += len(outcomes)
            infeasible += sum(one.status == "infeasible" for one in outcomes)
            pace.saw(sum(one.spent_s for one in outcomes) / len(outcomes))
            watch(Progress(done, len(sweep), infeasible, began))
    for number in store.open_numbers(len(sweep)):
        copied = store.copied(number, sweep.point(number).asked)
        assert copied, "only points that ask what another asked are left"
    counts = store.counts()
    watch(Progress(sum(counts.values()), len(sweep), counts.get("infeasible", 0), began))


def _open_points(sweep: Sweep, store: Store) -> Iterator[Point]:
    """Points to compute, in order. One that asks what is done is a copy; what is under way is left for a later turn."""
    for number in store.open_numbers(len(sweep)):
        point = sweep.point(number)
        if not store.copied(number, point.asked) and not store.claimed(point.asked):
            yield point


def _chunks(points: Iterator[Point], pace: _Pace) -> Iterator[Chunk]:
    chunk: list[Point] = []
    for point in points:
        chunk.append(point)
        if len(chunk) >= pace.points:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
