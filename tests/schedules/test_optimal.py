"""How far each schedule is from the shortest makespan that any order could reach, proved by OR-Tools CP-SAT.

`optimal.csv` says it for small sizes, F = I = W = 1 and B = 2, under the schedule's own peak memory. A pair may come
apart in the proof and takes the sum of both, so what is proved holds for pairs of that length as well.
The rows of a new schedule: python tests/schedules/test_optimal.py NAME >> tests/schedules/optimal.csv
"""

import csv
import sys
from itertools import groupby
from pathlib import Path

import pytest
from ortools.sat.python import cp_model
from runcast.simulator.schedules import SCHEDULES, Action, Grid, build, dry_run, needs, peaks

SECONDS = {"F": 1, "B": 2, "I": 1, "W": 1}
COLUMNS = ("schedule", "ranks", "microbatches", "chunks", "peak", "makespan", "optimum")
TABLE = list(csv.DictReader((Path(__file__).parent / "optimal.csv").open()))
ROWS = {name: list(rows) for name, rows in groupby(TABLE, key=lambda row: row["schedule"])}
LIMIT_S = 120.0  # the hardest takes five


def marked(name):
    return pytest.param(name, marks=pytest.mark.slow if name in ("v-half", "v-min", "zb-v") else ())


@pytest.mark.parametrize("name", [marked(name) for name in SCHEDULES])
def test_optima_are_those_of_the_table(name):
    proved = [row_of(name, int(row["ranks"]), int(row["microbatches"]), int(row["chunks"])) for row in ROWS[name]]

    assert proved == [tuple(row.values()) for row in ROWS[name]]


def test_the_table_has_all_small_sizes():
    assert sorted(tuple(row.values())[:4] for row in TABLE) == sorted(tuple(map(str, size)) for size in sizes())


def sizes():
    """Up to four ranks and six micro-batches; DualPipe needs eight on four ranks."""
    for name, schedule in SCHEDULES.items():
        for p in (2, 3, 4):
            for m in (3, 4, 6, 8) if name == "dualpipe" and p == 4 else (3, 4, 6):
                for chunks in (1, 2) if schedule.chunks is None else (1,):
                    if exists(name, p, m, chunks):
                        yield name, p, m, chunks


def exists(name, p, m, chunks):
    try:
        return bool(build(name, p, m, chunks))
    except ValueError:
        return False


def row_of(name: str, p: int, m: int, chunks: int) -> tuple[str, ...]:
    grid = build(name, p, m, chunks)
    shown = (p, m, chunks, max(peaks(grid)), int(dry_run(grid, SECONDS).makespan), shortest(grid))
    return (name, *map(str, shown))


def shortest(grid: Grid) -> int:
    """Any order of the same actions on the same ranks, no rank ever above the grid's highest peak."""
    dry, model = dry_run(grid, SECONDS), cp_model.CpModel()
    horizon = int(dry.makespan)
    start = {a: model.new_int_var(0, horizon, str(a)) for rank in range(grid.ranks) for a in grid.actions(rank)}
    makespan = model.new_int_var(0, horizon, "makespan")
    for action in start:
        model.add(makespan >= end_of(start, action))
        for need in [*needs(grid, action), *same_before(grid, action)]:
            model.add(start[action] >= end_of(start, need))
        model.add_hint(start[action], int(dry.start[action]))
    for rank in range(grid.ranks):
        own = list(grid.actions(rank))
        model.add_no_overlap([model.new_fixed_size_interval_var(start[a], SECONDS[a.kind], "") for a in own])
        held = [held_for(model, start, action, grid, horizon) for action in own if action.kind == "F"]
        model.add_cumulative(held, [1] * len(held), max(peaks(grid)))
        model.add(makespan >= int(dry.work[rank]) + lead(grid, rank))
    model.minimize(makespan)
    return solved(model)


def solved(model: cp_model.CpModel) -> int:
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = LIMIT_S, 2
    solver.parameters.catch_sigint_signal = False  # else it leaves SIG_DFL behind, and ^C would kill the process
    assert solver.solve(model) == cp_model.OPTIMAL
    return round(solver.objective_value)


def end_of(start, action):
    return start[action] + SECONDS[action.kind]


def held_for(model, start, forward, grid, horizon):
    """From the start of F to the end of B, or of W."""
    kind = "W" if (forward.stage, forward.microbatch) in grid.split else "B"
    end = end_of(start, Action(forward.stage, kind, forward.microbatch))
    return model.new_interval_var(start[forward], model.new_int_var(0, horizon, ""), end, "")


def same_before(grid, action):
    """Every pass may take micro-batches in order if these run on the same ranks and split the same backwards.

    Where one overtakes another, swap their names from there on: forwards, backwards and weight gradients still follow
    what they need, and a rank holds as many activations as before.
    """
    k = action.microbatch
    return [action._replace(microbatch=k - 1)] if k and traits(grid, k) == traits(grid, k - 1) else []


def traits(grid, microbatch):
    return [(grid.rank_of(stage, microbatch), (stage, microbatch) in grid.split) for stage in range(grid.stages)]


def lead(grid, rank):
    """What must pass before a rank's first forward, and after its last backward if that is in one (helps the proof)."""
    before = min(action.stage for action in grid.actions(rank) if action.kind == "F") * SECONDS["F"]
    return before if grid.split else before + min(grid.stages_of(rank)) * SECONDS["B"]


if __name__ == "__main__":
    for size in sizes():
        if size[0] == sys.argv[1]:
            print(*row_of(*size), sep=",")
