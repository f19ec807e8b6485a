"""A Grid with seconds but no machine: when each action runs if every rank goes on as soon as it can.

A cell starts when its rank is free and all that it needs has ended, `send_s` later if that ran elsewhere. A pair is one
step that nothing can divide. No links, no contention: the oracle of closed forms, not a forecast.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from .check import walk
from .grid import BACKWARD, FORWARD, WEIGHT, Action, Cell, Grid, Row, needs

Seconds = Mapping[str, float] | Callable[[Action], float]
PairSeconds = Callable[[Action, Action], float]


@dataclass(frozen=True)
class Dry:
    """When each action starts and ends, in the unit of the seconds given; the actions of a pair share both."""

    grid: Grid
    start: Mapping[Action, float]
    end: Mapping[Action, float]
    work: tuple[float, ...]  # per rank: the length of all its cells

    @property
    def makespan(self) -> float:
        """The time of the last end; the run starts at 0."""
        return max(self.end.values(), default=0.0)

    @property
    def bubbles(self) -> tuple[float, ...]:
        """Per rank: makespan minus work. Ranks start and end at different times, so more than `idle`."""
        return tuple(self.makespan - work for work in self.work)

    @property
    def bubble(self) -> float:
        """The bubble of the rank that idles most."""
        return max(self.bubbles)

    @cached_property
    def idle(self) -> tuple[float, ...]:
        """Per rank: time between its first start and its last end in which it runs nothing."""
        return tuple(self._span(rank) - work for rank, work in enumerate(self.work))

    @cached_property
    def peaks(self) -> tuple[int, ...]:
        """Per rank: the most chunk activations that it holds at once (see `peaks`)."""
        return peaks(self.grid)

    def _span(self, rank: int) -> float:
        row = self.grid.rows[rank]
        return self.end[row[-1][0]] - self.start[row[0][0]] if row else 0.0


def dry_run(grid: Grid, seconds: Seconds, pair_seconds: PairSeconds | None = None, send_s: float = 0.0) -> Dry:
    """Run a Grid without a machine.

    `seconds` are by kind or by action; `pair_seconds(forward, backward)` is the length of a pair, without it the sum of
    the two; `send_s` passes between the end of an action and what needs it on another rank.

    Raises:
        DeadlockError: the order of ranks and needs form a cycle, which the message names.
    """
    of_action = seconds if callable(seconds) else lambda action: seconds[action.kind]
    start: dict[Action, float] = {}
    end: dict[Action, float] = {}
    free, work = [0.0] * grid.ranks, [0.0] * grid.ranks
    for rank, cell in walk(grid):
        begin, length = free[rank], _length(cell, of_action, pair_seconds)
        for action in cell:
            for need in needs(grid, action):
                sent = send_s if grid.rank_of(need.stage, need.microbatch) != rank else 0.0
                begin = max(begin, end[need] + sent)
        for action in cell:
            start[action], end[action] = begin, begin + length
        free[rank] = begin + length
        work[rank] += length
    return Dry(grid, start, end, tuple(work))


def peaks(grid: Grid) -> tuple[int, ...]:
    """Per rank the most chunk activations held at once: from the start of F to the end of B, or of W if split.

    A rank runs one cell after another, so its order alone decides.
    """
    return tuple(_peak(row) for row in grid.rows)


def _peak(row: Row) -> int:
    held = most = 0
    for cell in row:
        held += sum(action.kind == FORWARD for action in cell)
        most = max(most, held)
        held -= sum(action.kind in (BACKWARD, WEIGHT) for action in cell)
    return most


def _length(cell: Cell, seconds: Callable[[Action], float], pair_seconds: PairSeconds | None) -> float:
    if len(cell) == 2 and pair_seconds is not None:
        return pair_seconds(*cell)
    return sum(map(seconds, cell))


def chart(dry: Dry, unit: float = 1.0) -> str:
    """One column per `unit` of time: `F3` forward of micro-batch 3, `F3'` on the rank's second stage, `.` idle.

    `-` is an action that goes on. Starts between two columns are drawn in the earlier one.
    """
    shown = [_row(dry, rank, unit) for rank in range(dry.grid.ranks)]
    width = max(len(text) for row in shown for text in row)
    return "\n".join(" ".join(text.ljust(width) for text in row).rstrip() for row in shown)


def _row(dry: Dry, rank: int, unit: float) -> list[str]:
    stages = dry.grid.stages_of(rank)
    columns = ["."] * round(dry.makespan / unit)
    for cell in dry.grid.rows[rank]:
        first, end = (int(time[cell[0]] / unit + 1e-9) for time in (dry.start, dry.end))
        columns[first:end] = ["-"] * (end - first)
        columns[first] = "&".join(_label(action, stages.index(action.stage)) for action in cell)
    return columns


def _label(action: Action, chunk: int) -> str:
    return f"{action.kind}{action.microbatch}{chr(39) * chunk}"
