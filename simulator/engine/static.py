"""The fast path: runs static Programs as arrays, with the loops of `loops`.

A Program is static if everything is known before the run: lanes, dependencies, pools, latencies, links, disturbances.
The SimPy engine runs Programs with processes (which slow, cancel and submit ops) and explains deadlocks; it defines the
right result. Start, end and cause of every op are bit for bit the same in both.

Short runs are interpreted, long runs are compiled; many short runs in a process count as a long one (`compiled.Pace`).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.arrays import Ints
from ..costs import Costs
from ..program import Program, Ragged
from ..timeline import Timeline
from .columns import Crowds, Links, Moment, Slots, Stack, Waits, Work
from .compiled import Function, compile_numba, pace
from .disturbance import Disturbance, aggressors, powers
from .loops import HELPERS, run_alone, run_together
from .sharing import TIE
from .waiting import who_waits

_SECONDS_PER_OP = {run_alone: 1e-6, run_together: 10e-6}  # interpreted
_SECONDS_PER_LINK = 2e-6  # per crossing of a link that can be full: to sum its load, and to share it


def run(program: Program, costs: Costs, use_numba: bool | None = None) -> Timeline | None:
    """The Timeline of a static Program; None if there is a deadlock.

    `use_numba` overrides the choice between interpreted and compiled loops.
    """
    function, columns, crossed = _columns(program, costs)
    if use_numba is None:
        use_numba = pace().pays(function, _SECONDS_PER_OP[function] * len(program) + _SECONDS_PER_LINK * crossed)
    code = compile_numba(function, HELPERS) if use_numba else function
    spans: tuple[Any, ...] = (np.zeros(len(program)), np.zeros(len(program)), np.full(len(program), -1))
    if code is function:
        columns, spans = _as_lists(columns), _as_lists(spans)
    if code(*columns, *spans) < len(program):
        return None
    start, end, cause = (np.asarray(column) for column in spans)
    return Timeline(program, start, end, cause, cancelled=np.zeros(len(program), bool))


def _as_lists(columns: Any) -> Any:
    """Convert every array to a list, which interpreted code reads faster."""
    if isinstance(columns, tuple):
        made = map(_as_lists, columns)
        return type(columns)(*made) if hasattr(columns, "_fields") else tuple(made)
    return columns.tolist() if isinstance(columns, np.ndarray) else columns


def _columns(program: Program, costs: Costs) -> tuple[Function, tuple[Any, ...], int]:
    """(the loop that the Program needs, its columns, the number of link crossings of all ops)."""
    assert np.bincount(program.order.values, minlength=len(program)).all(), "every op runs on a lane; see validate"
    waits = Waits(*who_waits(program))
    watched = costs.prune(program) if len(costs.demand.values) else costs
    crossed = np.diff(watched.demand.start)[watched.row]
    disturbed = Disturbance.disturbing_classes(costs)[costs.cost_class]
    flows = (costs.work_s > 0) & ((crossed > 0) | disturbed)
    if not flows.any():
        return run_alone, (waits, _slots(program), costs.latency_s + costs.work_s), 0
    delay = np.where(flows, costs.latency_s, costs.latency_s + costs.work_s)
    crowds = _crowds(program, costs, flows & disturbed)
    moment = _moment(len(program.lanes), len(crowds.head))
    columns = waits, _slots(program), delay, flows, _work(program, costs), _links(watched), crowds, moment
    return run_together, columns, int(crossed[flows].sum())


def _slots(program: Program) -> Slots:
    """The slots of all pools when they are free, with room in each queue for every op that may wait there."""
    acquires, releases = program.acquires, program.releases
    free = np.array([pool.slots for pool in program.pools], np.int64)
    room = np.bincount(acquires.values, minlength=len(free))
    head = np.cumsum(room) - room
    queue, queued = np.zeros(len(acquires.values), np.int64), np.zeros(len(program), bool)
    columns = acquires.start, acquires.values, releases.start, releases.values
    return Slots(*columns, free, queue, head, head.copy(), queued)


def _work(program: Program, costs: Costs) -> Work:
    seats = len(program.lanes)
    seat, nobody = program.lanes_of.values[program.lanes_of.start[:-1]], np.full(seats, -1)
    return Work(seat, costs.work_s, nobody, nobody.copy(), *np.zeros((6, seats)))


def _moment(seats: int, cells: int) -> Moment:
    """Empty Stacks with room for all that may be in them: a seat may be fresh for four reasons at once."""
    room = Moment(joining=seats, due=seats + 1, active=seats + 1, fresh=4 * seats, stale=cells, shared=seats)
    return Moment(*(Stack(np.zeros(most, np.int64), np.zeros(1, np.int64)) for most in room))


def _links(costs: Costs) -> Links:
    demand, capacity = costs.demand, costs.capacity_bytes_per_s
    asked, load = np.zeros((2, len(capacity)))
    columns = (costs.row, demand.start, demand.values, costs.rate_bytes_per_s, capacity)
    return Links(*columns, asked, capacity * TIE, load, np.zeros(1, np.int64))


def _crowds(program: Program, costs: Costs, disturbed: NDArray[np.bool_]) -> Crowds:
    """The `disturbed` ops by cell, and the speed of a class beside each number of ops of another class."""
    op, cell, cells = _cells(program, disturbed)
    start = np.concatenate(([0], np.cumsum(np.bincount(op, minlength=len(program)))))
    pairs, aggressor = aggressors(costs.interference)
    power = powers(costs.interference, len(program.lanes) + 1)
    count, touched = np.zeros(cells * len(costs.classes), np.int64), np.full(cells, -1)
    lists = op, np.full(cells, -1), np.full(len(cell), -1), np.full(len(cell), -1)
    columns = costs.cost_class, start, cell, count, touched, *lists
    return Crowds(*columns, pairs, aggressor, power, len(costs.classes))


def _cells(program: Program, ops: NDArray[np.bool_]) -> tuple[Ints, Ints, int]:
    """(ops, their cells, number of cells), as pairs in ascending order.

    A cell is a place of these ops. If places share ranks, a cell is a set of ranks that lie in the same places.
    """
    place = np.array([lane.place for lane in program.lanes], np.int64)
    order = program.order
    of_ops = ops[order.values]
    op, cell = order.values[of_ops], place[order.row_of_value()[of_ops]]
    parts = _parts(program, np.unique(cell))
    if parts is not None:
        at, of = parts.positions(cell)
        op, cell = op[of], parts.values[at]
    cells = max(int(cell.max(initial=-1)) + 1, 1)
    pairs = np.sort(op * cells + cell, kind="stable")  # mostly in order; np.unique takes a hundred times as long
    distinct = pairs[np.diff(pairs, prepend=-1) > 0]
    return distinct // cells, distinct % cells, cells


def _parts(program: Program, places: Ints) -> Ragged | None:
    """The cells of each place, if places share ranks: ranks in the same of `places` are one cell. Else None."""
    every = np.concatenate([np.empty(0, np.int64), *(program.places[place].ranks for place in places.tolist())])
    if np.bincount(every.astype(np.int64)).max(initial=0) <= 1:
        return None
    lying: dict[int, tuple[int, ...]] = {}
    for place in places.tolist():
        for rank in program.places[place].ranks:
            lying[rank] = (*lying.get(rank, ()), place)
    rows: list[list[int]] = [[] for _ in program.places]
    for part, where in enumerate(dict.fromkeys(lying.values())):
        for place in where:
            rows[place].append(part)
    return Ragged.build(rows)
