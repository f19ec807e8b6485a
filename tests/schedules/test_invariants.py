"""What holds for every schedule of every size."""

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.schedules import SCHEDULES, Action, build, dry_run, faults, peaks

ZERO = {"F": 0.0, "B": 0.0, "I": 0.0, "W": 0.0}


def exists(name: str, p: int, m: int, v: int) -> bool:
    try:
        build(name, p, m, v)
    except ValueError:
        return False
    return True


@cache
def sizes() -> list[tuple[str, int, int, int]]:
    """Of all small grids: a second's work, for who runs these tests and not for everybody who collects them."""
    return [
        (name, p, m, v)
        for name in SCHEDULES
        for v in ((1, 2, 3) if SCHEDULES[name].chunks is None else (1,))
        for p in range(1, 7)
        for m in range(1, 15)
        if exists(name, p, m, v)
    ]


small, times = st.deferred(lambda: st.sampled_from(sizes())), st.integers(0, 20)
seconds = st.builds(lambda f, i, w: {"F": f, "I": i, "W": w, "B": i + w}, times, times, times)


def test_every_small_grid_is_a_schedule():
    assert {size: found for size in sizes() if (found := faults(build(*size)))} == {}


def test_every_schedule_has_small_grids():
    assert {name for name, *_ in sizes()} == set(SCHEDULES)


@pytest.mark.parametrize("name", SCHEDULES)
def test_what_is_said_of_a_schedule_is_so(name):
    said, v = SCHEDULES[name], 3 if SCHEDULES[name].chunks is None else 1
    grid = build(name, 4, 8, v)
    holders = [sum(stage in grid.stages_of(rank) for rank in range(4)) for stage in range(grid.stages)]

    shown = (grid.stages, len(grid.stages_of(0)), holders, bool(grid.split), grid.pairs, grid.name)

    assert shown == (said.stages(4, v), said.chunks or v, [said.copies] * grid.stages, said.split, said.pairs, name)


@given(small)
def test_no_time_at_all(size):
    assert dry_run(build(*size), ZERO).makespan == 0


@given(small, seconds)
def test_makespan_is_at_least_the_way_of_one_microbatch_and_any_ranks_work(size, seconds):
    grid = build(*size)

    dry = dry_run(grid, seconds)

    way = grid.stages * (seconds["F"] + (seconds["I"] if grid.split else seconds["B"]))
    assert dry.makespan >= max(way, *dry.work)


@given(small, seconds, times, times)
def test_sends_never_shorten(size, seconds, send, more):
    grid = build(*size)

    assert dry_run(grid, seconds, send_s=send).makespan <= dry_run(grid, seconds, send_s=send + more).makespan


@given(small, seconds, st.integers(1, 9))
def test_times_scale(size, seconds, factor):
    grid = build(*size)
    scaled = {kind: factor * time for kind, time in seconds.items()}

    assert dry_run(grid, scaled).makespan == factor * dry_run(grid, seconds).makespan


@given(small, seconds, times)
def test_starts_respect_ranks_and_needs(size, seconds, send):
    """The dry run once more, from its result: on a rank no two cells overlap, and data arrives before it is used."""
    grid = build(*size)
    dry = dry_run(grid, seconds, send_s=send)

    for rank, row in enumerate(grid.rows):
        assert all(dry.start[after[0]] >= dry.end[before[-1]] for before, after in pairwise(row))
        for stage, kind, k in grid.actions(rank):
            if kind == "F" and stage:
                apart = send * (grid.rank_of(stage - 1, k) != rank)
                assert dry.start[Action(stage, kind, k)] >= dry.end[Action(stage - 1, "F", k)] + apart


@given(small)
def test_activations_never_exceed_all_of_a_ranks_forwards(size):
    grid = build(*size)
    forwards = [sum(action.kind == "F" for action in grid.actions(rank)) for rank in range(grid.ranks)]

    assert all(1 <= held <= count for held, count in zip(peaks(grid), forwards, strict=True))


@given(p=st.integers(1, 6), m=st.integers(1, 20), seconds=seconds)
def test_zb_v_for_any_times(p, m, seconds):
    grid = build("zb-v", p, m, seconds=seconds)

    assert (faults(grid), max(peaks(grid)) <= 2 * p) == ([], True)


@given(st.sampled_from(["v-half", "v-min"]), st.integers(1, 12), st.integers(1, 30))
def test_stable_patterns_keep_their_memory(name, p, m):
    half = p + 1 if p % 2 else p + 2
    cap = half if name == "v-half" else 2 * ((p + 1) // 3 + 1)

    assert max(peaks(build(name, p, m))) <= cap
