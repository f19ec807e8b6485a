"""Predicted beside executed seconds of cases: the testbed is measured, its profile is fitted, then each case is run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from runcast.simulator import simulate
from runcast.simulator.base.tables import align

from .calibrating import calibrate
from .cases import Case, Numbers, write_cases
from .hosts import set_up
from .launch import execute

RUNS, NEAR = 5, 0.05
"""Runs of a case, and the error above which it is executed once more."""


@dataclass(frozen=True)
class Outcome:
    """What a case was predicted to take, and what each run took, in seconds."""

    case: Case
    predicted_s: float
    runs_s: tuple[float, ...]
    wrong: int

    @property
    def executed_s(self) -> float:
        """The fastest run: whatever else this machine does only makes a run longer."""
        return min(self.runs_s)

    @property
    def error(self) -> float:
        """Of the prediction, over what was executed."""
        return self.predicted_s / self.executed_s - 1

    @property
    def spread(self) -> float:
        """How much longer the slowest run took than the fastest, over the fastest."""
        return max(self.runs_s) / self.executed_s - 1


def compare(cases: Sequence[Case], numbers: Numbers, folder: Path, runs: int) -> list[Outcome]:
    """Predict and execute cases; those of a topology in one set of processes."""
    outcomes = []
    for name, some in groupby(sorted(cases, key=lambda case: case.topology), key=lambda case: case.topology):
        own = folder / name.replace(" ", "-")
        own.mkdir(parents=True)
        outcomes += _compare(list(some), numbers, own, runs)
    return outcomes


def run_all(cases: Sequence[Case], folder: Path, runs: int = RUNS, near: float = NEAR) -> list[Outcome]:
    """Measure, predict and execute; cases that are off once more, with new measurements, in case the machine was busy.

    What was executed before counts, too: the fastest run of both tries is compared with the second prediction.
    """
    found = {one.case: one for one in _run(cases, folder / "first", runs)}
    if off := [one for one in found.values() if abs(one.error) > near]:
        print("once more, since this machine may have been busy:", *lines(off), sep="\n", flush=True)
        for one in _run([one.case for one in off], folder / "second", runs):
            before = found[one.case]
            found[one.case] = replace(one, runs_s=(*before.runs_s, *one.runs_s), wrong=before.wrong + one.wrong)
    return list(found.values())


def _run(cases: Sequence[Case], folder: Path, runs: int) -> list[Outcome]:
    """Hosts that compute are measured apart from those that only send."""
    outcomes = []
    for share in sorted({case.where.share for case in cases}):
        own = folder / f"share{share:g}"
        own.mkdir(parents=True)
        outcomes += compare([case for case in cases if case.where.share == share], calibrate(own, share), own, runs)
    return outcomes


def _compare(cases: Sequence[Case], numbers: Numbers, folder: Path, runs: int) -> list[Outcome]:
    with set_up(cases[0].where) as bed:
        paths = write_cases(cases, numbers, folder)
        predicted = [simulate(path).timeline.makespan_s for path in paths]
        took = execute(bed, paths, folder, runs)
    return [
        Outcome(case, seconds, tuple(runs_s), wrong)
        for case, seconds, (runs_s, wrong, _) in zip(cases, predicted, took, strict=True)
    ]


COLUMNS = ("hosts", "case", "predicted (ms)", "executed (ms)", "error", "spread")


def lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A table of cases."""
    rows = [
        (
            one.case.topology, one.case.name, f"{1e3 * one.predicted_s:.1f}", f"{1e3 * one.executed_s:.1f}",
            f"{one.error:+.1%}", f"{one.spread:.1%}",
        )
        for one in outcomes
    ]  # fmt: skip
    yield from align([COLUMNS, *rows], (2, 3, 4, 5))
