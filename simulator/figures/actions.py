"""The actions of a training step as boxes, and what its other lanes do as busy intervals: data of `pipeline`.

Ops carry the tags of their action, or of its forward where a whole pair is one op; the grid says which cell that is in.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..program import Program, Ragged
from ..schedules import Grid
from ..systems.train_step.lower import ACTIONS
from ..timeline import Timeline
from .spans import Window, thin, thin_bars

if TYPE_CHECKING:
    import pandas as pd

COMPUTE = "compute"
MOST_BOXES, MOST_SPANS = 5000, 50_000
MOST_CELLS = [2**i for i in range(1, 11)]  # that share a box
LONG_IDLE = 1 / 200  # of the step
WHOLE, UPPER, LOWER = 0, 1, 2
TRAFFIC: dict[str, Callable[[str], bool]] = {
    "tp, cp": lambda lane: lane in ("tp", "tp_row", "tp_col", "cp"),
    "ep": lambda lane: lane in ("ep", "etp"),
    "sends": lambda lane: " to " in lane,
    "dp": lambda lane: lane in ("dp", "edp", "fsdp", "rows"),
    "offload": lambda lane: lane == "d2h",
    "onload": lambda lane: lane == "h2d",
}
"""Lanes drawn below a rank's actions, top down; of a send, that of its sender."""
_BUSY = ("rank", "lane", "start_s", "end_s", "count")
Ints = NDArray[np.int64]


def of_grid(timeline: Timeline, grid: Grid) -> Timeline:
    """Without the lanes of replicas on other machines than those that the grid is of, which come first."""
    program = timeline.program
    if len(program.places) == grid.ranks:
        return timeline
    kept = [lane for lane, at in enumerate(program.lanes) if at.place < grid.ranks]
    order = Ragged.of([program.order[lane].tolist() for lane in kept])
    lanes = tuple(program.lanes[lane] for lane in kept)
    return replace(timeline, program=replace(program, places=program.places[: grid.ranks], lanes=lanes, order=order))


def boxes(timeline: Timeline, grid: Grid) -> "pd.DataFrame":
    """One row per action, by pipeline rank and start.

    Columns: rank, cell (0, 1, … in the order in which the rank ran them), stage, chunk (which of the rank's stages; in
    DualPipe, from which end of the pipeline the micro-batch comes), kind, microbatch, start_s and end_s of its cell's
    first and last kernel, busy_s of kernels in between, idle_s since the cell before (or 0), and half: UPPER and LOWER
    for the two actions of an overlapped pair, else WHOLE.
    """
    import pandas as pd

    found, cells, of = [], list(chain(*grid.rows)), cell_ids(timeline.program, grid)
    mirrored = len({grid.rank_of(0, microbatch) for microbatch in range(grid.microbatches)}) > 1
    for rank, ops in _compute_ops(timeline):
        stages, reached = grid.stages_of(rank), 0.0
        for i, (number, start, end, busy) in enumerate(_cells(timeline, of, ops)):
            cell = cells[number]
            for half, action in zip((UPPER, LOWER) if len(cell) > 1 else (WHOLE,), cell, strict=True):
                chunk = int(grid.rank_of(0, action.microbatch) > 0) if mirrored else stages.index(action.stage)
                found.append((rank, i, action.stage, chunk, action.kind, action.microbatch, start, end, busy,
                              max(start - reached, 0.0), half))  # fmt: skip
            reached = end
    columns = ["rank", "cell", "stage", "chunk", "kind", "microbatch", "start_s", "end_s", "busy_s", "idle_s", "half"]
    return pd.DataFrame(found, columns=columns)


def endings(timeline: Timeline) -> "pd.DataFrame":
    """What compute lanes do beside actions (the norm, the optimizer): rank, name, start_s, end_s."""
    import pandas as pd

    program = timeline.program
    found = [
        (rank, program.names[op], timeline.start_s[op], timeline.end_s[op])
        for rank, ops in _compute_ops(timeline)
        for op in ops[(program.tags["action"][ops] < 0) & (program.tags["stage"][ops] < 0)].tolist()
    ]
    return pd.DataFrame(found, columns=["rank", "name", "start_s", "end_s"])


def waits(timeline: Timeline, grid: Grid, shortest_s: float = 0.0) -> "pd.DataFrame":
    """When actions that have begun wait for something outside of them (the input of a pair's other half, a copy), and
    for longer than `shortest_s` and a twentieth of themselves: rank, start_s, end_s, name of what ended it."""
    import pandas as pd

    program, of, found = timeline.program, cell_ids(timeline.program, grid), []
    for rank, ops in _compute_ops(timeline):
        own = ops[of[ops] >= 0]
        cell, cause = of[own], timeline.cause[own]
        start, end = timeline.start_s[own], timeline.end_s[own]
        length = np.zeros(len(own))
        for _, rows in _runs(cell):
            length[rows] = end[rows].max() - start[rows].min()
        gap = start[1:] - end[:-1]
        outside = (cause >= 0) & (of[cause] != cell)
        long = gap > np.maximum(shortest_s, length[1:] / 20)
        for i in np.flatnonzero((cell[1:] == cell[:-1]) & outside[1:] & long).tolist():
            found.append((rank, end[i], start[i + 1], program.names[int(cause[i + 1])]))
    return pd.DataFrame(found, columns=["rank", "start_s", "end_s", "name"])


def few_boxes(
    found: "pd.DataFrame", most: int = MOST_BOXES, window: Window | None = None
) -> tuple["pd.DataFrame", int]:
    """Boxes for drawing, with `last` and `count`, and how many cells share one (1: none do).

    Beyond `most`, actions of the same kind and chunk in so many cells that follow each other are one box that runs from
    micro-batch `microbatch` to `last` and is as long as they are together. With a window that is so for those in it,
    and for the others by themselves; the number is that of the window.
    """
    found = found.assign(last=found.microbatch, count=1, length_s=found.end_s - found.start_s)

    def together(some: "pd.DataFrame", _: float) -> Iterator[tuple["pd.DataFrame", float]]:
        return ((_together(some, size), size) for size in MOST_CELLS)

    few, size = thin(found, most, found.end_s.max(), together, window)
    return few, max(int(size), 1)


def traffic(
    timeline: Timeline, most: int = MOST_SPANS, host: bool = False, window: Window | None = None
) -> tuple["pd.DataFrame", float]:
    """When the lanes of TRAFFIC (and the host's) are busy on each rank, and the seconds in which spans are joined (0:
    only those that touch). Columns: rank, lane, start_s, end_s, count.

    The length of all spans is the time in which the lanes are busy, however many are joined. With a window, spans in it
    are joined for its length, and the others for that of the step.
    """
    import pandas as pd

    groups = TRAFFIC | ({"host": lambda lane: lane == "host"} if host else {})
    parts = [part for name, member in groups.items() for part in _busy(timeline, name, member)]
    spans = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=_BUSY)
    return thin_bars(spans.assign(label=spans.lane), most, window, ("rank", "lane"))


def windows(found: "pd.DataFrame", makespan_s: float) -> dict[str, Window]:
    """Parts of the step to look at: all of it, until every rank has begun a backward, a few actions in the middle, and
    from when the first rank has no forward left."""
    whole = {"all": Window(0.0, makespan_s or 1.0)}
    forward = found.kind == "F"
    if forward.all() or not forward.any():
        return whole
    warm = float(found[~forward].groupby("rank").start_s.min().max())
    cool = float(found[forward].groupby("rank").end_s.max().min())
    typical = float((found.end_s - found.start_s).median())
    middle, reach = (warm + cool) / 2, float(np.clip(abs(cool - warm) / 2, 4 * typical, 16 * typical))
    return whole | {
        "warm-up": Window(0.0, min(warm + 4 * typical, makespan_s)),
        "steady": Window(max(middle - reach, 0.0), min(middle + reach, makespan_s)),
        "cool-down": Window(max(cool - 4 * typical, 0.0), makespan_s),
    }


def cell_ids(program: Program, grid: Grid) -> Ints:
    """The cell of each op, counted row by row; -1 for what is no part of an action."""
    stage, microbatch, action = (program.tags[tag] for tag in ("stage", "microbatch", "action"))
    action = np.where(microbatch < grid.microbatches, action, -1)  # replicas on faster machines may have more
    microbatch = np.minimum(microbatch, grid.microbatches - 1)
    number = np.full((grid.stages, grid.microbatches, len(ACTIONS)), -1)
    for i, cell in enumerate(chain(*grid.rows)):
        for one in cell:
            number[one.stage, one.microbatch, ACTIONS.index(one.kind)] = i
        if len(cell) > 1:
            number[cell[0].stage, cell[0].microbatch, ACTIONS.index("FB")] = i
    found: Ints = np.where(action >= 0, number[stage, microbatch, action], -1)
    return found


def _compute_ops(timeline: Timeline) -> list[tuple[int, Ints]]:
    """Rank and ops of each compute lane, by rank."""
    program = timeline.program
    lanes = sorted((at.place, lane) for lane, at in enumerate(program.lanes) if at.name == COMPUTE)
    return [(place, program.order[lane]) for place, lane in lanes]


def _cells(timeline: Timeline, of: Ints, ops: Ints) -> list[tuple[int, float, float, float]]:
    """Number, first start, last end and busy seconds of the cells that run on a compute lane, by start."""
    own = ops[of[ops] >= 0]
    start, end, found = timeline.start_s[own], timeline.end_s[own], []
    for first, rows in _runs(of[own]):
        busy = float((end[rows] - start[rows]).sum())
        found.append((int(of[own[first]]), float(start[rows].min()), float(end[rows].max()), busy))
    return sorted(found, key=lambda one: one[1:])


def _runs(ids: Ints) -> list[tuple[int, slice]]:
    """Where equal numbers follow each other: a lane runs its cells one after another."""
    if not len(ids):
        return []
    edges = [0, *(np.flatnonzero(np.diff(ids)) + 1).tolist(), len(ids)]
    return [(a, slice(a, b)) for a, b in pairwise(edges)]


def _together(found: "pd.DataFrame", size: int) -> "pd.DataFrame":
    """Cells by groups of at most `size`, none across a long idle time or from single actions to pairs; in a group,
    boxes stand one behind another, each half by itself."""
    paired = found.half > 0
    turns = paired != paired.groupby(found["rank"]).shift(fill_value=False)
    late = (found.idle_s > found.end_s.max() * LONG_IDLE) & (found.half != LOWER)
    phase = (turns | late).groupby(found["rank"]).cumsum()
    group = ["rank", "phase", "group"]
    first = found.assign(phase=phase).groupby(["rank", "phase"]).cell.transform("min")
    rows = found.assign(phase=phase, group=(found.cell - first) // size)
    sums = {"microbatch": "min", "last": "max", "start_s": "min", "length_s": "sum", "busy_s": "sum", "idle_s": "sum"}
    kept = [*group, "half", "kind", "chunk", "stage"]
    rows = rows.groupby(kept, as_index=False, sort=False).agg(sums | {"cell": "min", "count": "sum"})
    begin = rows.groupby(group).start_s.transform("min")
    end = begin + rows.groupby([*group, "half"]).length_s.cumsum()
    return rows.assign(start_s=end - rows.length_s, end_s=end)


def _busy(timeline: Timeline, name: str, member: Callable[[str], bool]) -> "list[pd.DataFrame]":
    """Per rank, the union of the intervals in which one of the lanes is busy."""
    import pandas as pd

    program, found = timeline.program, []
    for rank in range(len(program.places)):
        lanes = [i for i, lane in enumerate(program.lanes) if lane.place == rank and member(lane.name)]
        ops = np.concatenate([np.empty(0, np.int64), *(program.order[lane] for lane in lanes)])
        ops = ops[timeline.end_s[ops] > timeline.start_s[ops]]
        ops = ops[np.argsort(timeline.start_s[ops], kind="stable")]
        if not len(ops):
            continue
        start, end = timeline.start_s[ops], np.maximum.accumulate(timeline.end_s[ops])
        first = np.flatnonzero(np.concatenate(([True], start[1:] > end[:-1])))
        last = np.append(first[1:], len(ops)) - 1
        values = rank, name, start[first], end[last], last - first + 1
        found.append(pd.DataFrame(dict(zip(_BUSY, values, strict=True))))
    return found
