"""The actions of a training step as boxes, and what its other lanes do as busy intervals: data of `pipeline`.

Ops carry the tags of their action, or of its forward where a whole pair is one op; the grid says which cell that is in.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from ..base.arrays import Ints
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
MOST_OF_RANK = 128  # actions beside each other that are told apart on a screen
WHOLE, UPPER, LOWER = 0, 1, 2
TRAFFIC: dict[str, Callable[[str], bool]] = {
    "tp, cp": lambda lane: lane in ("tp", "tp_row", "tp_col", "cp"),
    "ep": lambda lane: lane in ("ep", "etp"),
    "sends": lambda lane: " to " in lane,
    "dp": lambda lane: lane in ("dp", "edp", "dp_replicate", "edp_replicate", "fsdp", "rows"),
    "offload": lambda lane: lane == "d2h",
    "onload": lambda lane: lane == "h2d",
}
"""Lanes drawn below a rank's actions, top down; of a send, that of its sender."""
_BUSY = ("rank", "lane", "start_s", "end_s", "count")


def drop_replicas(timeline: Timeline, grid: Grid) -> Timeline:
    """Without the lanes of replicas on other machines than those that the grid is of, which come first."""
    program = timeline.program
    if len(program.places) == grid.ranks:
        return timeline
    kept = [lane for lane, at in enumerate(program.lanes) if at.place < grid.ranks]
    order = Ragged.build([program.order[lane].tolist() for lane in kept])
    lanes = tuple(program.lanes[lane] for lane in kept)
    return replace(timeline, program=replace(program, places=program.places[: grid.ranks], lanes=lanes, order=order))


def boxes(timeline: Timeline, grid: Grid) -> "pd.DataFrame":
    """One row per action, by pipeline rank and start.

    Columns: rank, cell (0, 1, … in the order in which the rank ran them), stage, chunk (which of the rank's stages; in
    DualPipe, from which end of the pipeline the micro-batch comes), kind, microbatch, start_s and end_s of its cell's
    first and last kernel, busy_s of kernels in between, idle_s since the cell before (or 0), and half: UPPER and LOWER
    for the two actions of an overlapped pair, else WHOLE.
    """
    ops = _compute_ops(timeline, grid)
    cells = ops[ops.cell >= 0].groupby("cell").agg({"rank": "first", "start_s": "min", "end_s": "max", "busy_s": "sum"})
    cells = cells.reset_index().sort_values(["rank", "start_s", "end_s"], ignore_index=True)
    by_rank = cells.groupby("rank")
    idle_s = (cells.start_s - by_rank.end_s.shift(fill_value=0.0)).clip(lower=0.0)
    cells = cells.assign(idle_s=idle_s, place=by_rank.cumcount()).merge(_actions(grid), on="cell")
    return cells.drop(columns="cell").rename(columns={"place": "cell"})


def _actions(grid: Grid) -> "pd.DataFrame":
    """The actions of all cells as a table: cell, half, stage, chunk, kind, microbatch."""
    import pandas as pd

    mirrored = len({grid.rank_of(0, microbatch) for microbatch in range(grid.microbatches)}) > 1
    found = []
    for number, (rank, cell) in enumerate((rank, cell) for rank, row in enumerate(grid.rows) for cell in row):
        for half, one in zip((UPPER, LOWER) if len(cell) > 1 else (WHOLE,), cell, strict=True):
            mirror = int(grid.rank_of(0, one.microbatch) > 0)
            chunk = mirror if mirrored else grid.stages_of(rank).index(one.stage)
            found.append((number, half, one.stage, chunk, one.kind, one.microbatch))
    return pd.DataFrame(found, columns=["cell", "half", "stage", "chunk", "kind", "microbatch"])


def endings(timeline: Timeline, grid: Grid) -> "pd.DataFrame":
    """The ops of compute lanes outside actions (norm, optimizer): rank, name, start_s, end_s."""
    tags, ops = timeline.program.tags, _compute_ops(timeline, grid)
    own = ops[(tags["action"][ops.op] < 0) & (tags["stage"][ops.op] < 0)]
    return own.assign(name=[timeline.program.names[op] for op in own.op])[["rank", "name", "start_s", "end_s"]]


def waits(timeline: Timeline, grid: Grid, shortest_s: float = 0.0) -> "pd.DataFrame":
    """When actions that have begun wait for something outside of them (the input of a pair's other half, a copy), and
    for longer than `shortest_s` and a twentieth of themselves: rank, start_s, end_s, name of what ended it."""
    ops = _compute_ops(timeline, grid)
    own = ops[ops.cell >= 0].reset_index(drop=True)
    cause = timeline.cause[own.op]
    outside = (cause >= 0) & (cell_ids(timeline.program, grid)[cause] != own.cell)
    cells = own.groupby("cell")
    length_s = cells.end_s.transform("max") - cells.start_s.transform("min")
    began_s = own.end_s.shift()
    long = own.start_s - began_s > np.maximum(shortest_s, length_s / 20)
    rows = (own.cell == own.cell.shift()) & outside & long
    found = own.assign(start_s=began_s, end_s=own.start_s)[rows]
    return found.assign(name=[timeline.program.names[op] for op in cause[rows]])[["rank", "start_s", "end_s", "name"]]


def bubbles(found: "pd.DataFrame", ends: "pd.DataFrame", shortest_s: float) -> "pd.DataFrame":
    """When ranks wait between two actions, for longer than `shortest_s`: rank, start_s, end_s."""
    import pandas as pd

    both = pd.concat([some[["rank", "start_s", "end_s"]] for some in (found, ends)])
    both = both.sort_values(["rank", "start_s"], ignore_index=True)
    before = both.groupby("rank").end_s.cummax().groupby(both["rank"]).shift(fill_value=0.0)
    gaps = both.assign(start_s=before, end_s=both.start_s)
    return gaps[gaps.end_s - gaps.start_s > shortest_s]


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


def traffic(timeline: Timeline, most: int = MOST_SPANS, window: Window | None = None) -> tuple["pd.DataFrame", float]:
    """When the lanes of TRAFFIC are busy on each rank, and the seconds in which spans are joined (0:
    only those that touch). Columns: rank, lane, start_s, end_s, count.

    The length of all spans is the time in which the lanes are busy, however many are joined. With a window, spans in it
    are joined for its length, and the others for that of the step.
    """
    import pandas as pd

    parts = [part for name, member in TRAFFIC.items() for part in _busy(timeline, name, member)]
    spans = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=_BUSY)
    return thin_bars(spans.assign(label=spans.lane), most, window, ("rank", "lane"), room=1)


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


def first_look(found: "pd.DataFrame", makespan_s: float) -> Window:
    """What is seen at first: the warm-up, where actions of the whole step are too narrow to be told apart."""
    parts = windows(found, makespan_s)
    of_rank = int(found.groupby("rank").size().max()) if len(found) else 0
    return parts["warm-up"] if "warm-up" in parts and of_rank > MOST_OF_RANK else parts["all"]


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


def _compute_ops(timeline: Timeline, grid: Grid) -> "pd.DataFrame":
    """The ops of compute lanes by rank, in order: rank, op, cell (-1: no action), start_s, end_s, busy_s."""
    import pandas as pd

    program = timeline.program
    lanes = sorted((at.place, lane) for lane, at in enumerate(program.lanes) if at.name == COMPUTE)
    op = np.concatenate([np.empty(0, np.int64), *(program.order[lane] for _, lane in lanes)])
    rank = np.repeat([place for place, _ in lanes], [len(program.order[lane]) for _, lane in lanes])
    start, end = timeline.start_s[op], timeline.end_s[op]
    columns = {"rank": rank, "op": op, "cell": cell_ids(program, grid)[op], "start_s": start, "end_s": end}
    return pd.DataFrame(columns | {"busy_s": end - start})


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
