"""Running a sweep: what is not done yet, in chunks, through a runner, into the store; then the report."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ...runner import Died, Runner, Task
from .plan import Outcome, Point, Sweep
from .results import Results, write_results
from .store import Store

CHUNK_S = 0.2
"""What a chunk should take: losing one costs little, and so does sending it."""
MOST = 64
"""Points of a chunk."""


@dataclass(frozen=True)
class Progress:
    """The progress of a sweep; `began` points were done before it started or continued."""

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


def run_sweep(
    sweep: Sweep,
    folder: Path,
    runner: Runner,
    watch: Callable[[Progress], None] = lambda progress: None,
    task: Task[Point, Outcome] | None = None,
) -> Swept:
    """Run what is not done yet, or failed, of a sweep in this folder; write its report. ^C ends it with what is done.

    A UserError if the folder cannot be written, is at work elsewhere, or holds another sweep or other files.
    """
    with Store.open(folder, sweep) as store:
        store.reopen("failed")
        try:
            _run(sweep, store, runner, watch, task or sweep.work)
            complete = True
        except KeyboardInterrupt:
            complete = False
        return Swept(complete, store.counts(), write_results(sweep, store))


def _run(
    sweep: Sweep, store: Store, runner: Runner, watch: Callable[[Progress], None], task: Task[Point, Outcome]
) -> None:
    counts, pace_s = Counter(store.counts()), CHUNK_S  # seconds that a point takes, by those that came last
    began = counts.total()

    def chunks() -> Iterator[list[Point]]:
        """Points to compute, in order. One that asks what is done is a copy; what is under way is left for later."""
        chunk: list[Point] = []
        for number in store.open_numbers(len(sweep)):
            point = sweep.point(number)
            if not store.copy_result(number, point.asked) and not store.claim(point.asked):
                chunk.append(point)
            if len(chunk) >= max(1, min(MOST, int(CHUNK_S / max(pace_s, 1e-9)))):
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    watch(Progress(began, len(sweep), counts["infeasible"], began))
    with runner, closing(runner.run(task, chunks())) as results:
        for pairs in results:
            outcomes = [
                Outcome(point.number, point.asked, "failed", result.reason, point.asked)
                if isinstance(result, Died) else sweep.judge(result)
                for point, result in pairs
            ]  # fmt: skip
            store.record(outcomes)
            counts.update(one.status for one in outcomes)
            pace_s += 0.3 * (sum(one.spent_s for one in outcomes) / len(outcomes) - pace_s)
            watch(Progress(counts.total(), len(sweep), counts["infeasible"], began))
    for number in store.open_numbers(len(sweep)):
        copied = store.copy_result(number, sweep.point(number).asked)
        assert copied, "only points that ask what another asked are left"
    counts = Counter(store.counts())
    watch(Progress(counts.total(), len(sweep), counts["infeasible"], began))
