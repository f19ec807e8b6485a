"""The fast path: static Programs, as arrays, through the loops of `loops`.

It runs what is known before the run starts: lanes, dependencies, latencies, links and disturbances. The rest is left to
the SimPy engine, which defines what is right: processes (they slow, cancel and submit), pools, and deadlocks, which it
explains. Start, end and cause have the same bits either way.

Short runs are interpreted, long ones compiled; many short ones in a process are one long one (see `compiled.Pace`).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..costs import Costs
from ..program import Program
from ..timeline import Timeline
from .compiled import Function, compiled, pace
from .disturbance import Disturbance, aggressors, powers
from .loops import HELPERS, Crowds, Links, Waits, Work, run_alone, run_together
from .sharing import TIE
from .waiting import who_waits

Ints = NDArray[np.int64]
_SECONDS_PER_OP = {run_alone: 0.6e-6, run_together: 10e-6}  # interpreted


def is_static(program: Program) -> bool:
    """Whether the loops can run the Program."""
    return not len(program.acquires.values)


def run(program: Program, costs: Costs, use_numba: bool | None = None) -> Timeline | None:
    """What happened when, or None if ops wait for each other; `use_numba` overrides the pace of the process."""
    function, columns = _columns(program, costs)
    if use_numba is None:
        use_numba = pace().pays(function, _SECONDS_PER_OP[function] * len(program))
    code = compiled(function, HELPERS) if use_numba else function
    spans: tuple[Any, ...] = (np.zeros(len(program)), np.zeros(len(program)), np.full(len(program), -1))
    if code is function:
        columns, spans = _as_lists(columns), _as_lists(spans)
    if code(*columns, *spans) < len(program):
        return None
    start, end, cause = (np.asarray(column) for column in spans)
    return Timeline(program, start, end, cause, cancelled=np.zeros(len(program), bool))


def _as_lists(columns: Any) -> Any:
    """Every array as a list, which interpreted code reads faster."""
    if isinstance(columns, tuple):
        made = map(_as_lists, columns)
        return type(columns)(*made) if hasattr(columns, "_fields") else tuple(made)
    return columns.tolist() if isinstance(columns, np.ndarray) else columns


def _columns(program: Program, costs: Costs) -> tuple[Function, tuple[Any, ...]]:
    """The loop that the Program needs, and what it reads."""
    assert np.bincount(program.order.values, minlength=len(program)).all(), "every op runs on a lane; see validate"
    waits = Waits(*who_waits(program))
    watched = costs.pruned(program) if len(costs.demand.values) else costs
    crosses = np.diff(watched.demand.start)[watched.row] > 0
    disturbed = Disturbance.involved(costs)[costs.cost_class]
    flows = (costs.work_s > 0) & (crosses | disturbed)
    if not flows.any():
        return run_alone, (waits, costs.latency_s + costs.work_s)
    delay = np.where(flows, costs.latency_s, costs.latency_s + costs.work_s)
    crowds = _crowds(program, costs, flows & disturbed)
    return run_together, (waits, delay, flows, _work(costs), _links(watched), crowds)


def _work(costs: Costs) -> Work:
    n = len(costs.work_s)
    zeros, ones = np.zeros(n), np.ones(n)
    return Work(costs.work_s.copy(), zeros, zeros.copy(), ones, ones.copy(), np.full(n, np.inf))


def _links(costs: Costs) -> Links:
    demand, capacity = costs.demand, costs.capacity_bytes_per_s
    asked, load = np.zeros((2, len(capacity)))
    columns = (costs.row, demand.start, demand.values, costs.rate_bytes_per_s, capacity)
    return Links(*columns, asked, capacity * TIE, load)


def _crowds(program: Program, costs: Costs, disturbed: NDArray[np.bool_]) -> Crowds:
    """The `disturbed` ops by cells, and the speeds that numbers of ops leave each other."""
    op, cell, cells = _cells(program, disturbed)
    start = np.concatenate(([0], np.cumsum(np.bincount(op, minlength=len(program)))))
    pairs, aggressor = aggressors(costs.interference)
    power = powers(costs.interference, len(program.lanes) + 1)
    count, touched = np.zeros(cells * len(costs.classes), np.int64), np.full(cells, -1)
    return Crowds(costs.cost_class, start, cell, count, touched, pairs, aggressor, power, len(costs.classes))


def _cells(program: Program, ops: NDArray[np.bool_]) -> tuple[Ints, Ints, int]:
    """Pairs of op and cell, ascending, and the number of cells: places, or ranks if some lie in several places."""
    place = np.array([lane.place for lane in program.lanes], np.int64)
    order = program.order
    of_ops = ops[order.values]
    op, cell = order.values[of_ops], place[order.row_of_value()[of_ops]]
    ranks = [rank for one in program.places for rank in one.ranks]
    cells = len(program.places)
    if len(set(ranks)) < len(ranks):
        of_place = [np.array(one.ranks, np.int64) for one in program.places]
        op = np.repeat(op, np.array([len(of_place[one]) for one in cell], np.int64))
        cell = np.concatenate([np.empty(0, np.int64), *(of_place[one] for one in cell)])
        cells = program.ranks
    pairs = np.sort(op * cells + cell)  # np.unique hashes first, which takes ten times as long
    distinct = pairs[np.diff(pairs, prepend=-1) > 0]
    return distinct // cells, distinct % cells, cells
