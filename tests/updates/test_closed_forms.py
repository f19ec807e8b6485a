"""Weight updates against their closed forms and against recurrences written anew from the dependency rules.

All durations are dyadic rationals, so that sums are exact and times are compared with `==`.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.costs import kind_costs
from runcast.simulator.engine import simulate
from runcast.simulator.program import Program
from runcast.simulator.systems.weight_update.lower import (
    BucketSize,
    UpdatePlan,
    make_plan,
    serial,
    three_stage,
    two_stage,
)

from ..examples import examples

FEW = examples(40)
seconds = st.integers(0, 96).map(lambda n: n / 16)
some_seconds = st.integers(1, 96).map(lambda n: n / 16)
counts = st.integers(1, 5)


def plan(ranks: int = 4, rounds: int = 2, *, buffers: int = 3, folded: bool = False) -> UpdatePlan:
    """Every rank owns `rounds` equal buckets of one tensor."""
    classes = [range(ranks)] if folded else None
    return make_plan(np.full(ranks * rounds, 256), ranks, BucketSize(256, buffers), classes=classes)


def makespan(program: Program, h: float = 4, beta: float = 1, load: float = 1, copy: float = 0) -> float:
    costs = kind_costs(program, {"h2d": h, "copy": copy, "broadcast": beta, "reload": load})
    return simulate(program, costs).makespan_s


# -- Two stages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rounds", "expected"), [(1, 9), (2, 17), (3, 25)])
def test_two_stage_unit_case(rounds, expected):
    assert makespan(two_stage(plan(rounds=rounds))) == expected


def test_two_stage_picture():
    program = two_stage(plan())
    timeline = simulate(program, kind_costs(program, {"h2d": 4, "broadcast": 1, "reload": 1}))
    of_device_0 = timeline.spans().query("place == 'r0' and kind in ('h2d', 'broadcast', 'reload')")
    picture = {(row.kind, row.start_s, row.bucket) for row in of_device_0.itertuples()}
    assert picture == {
        *(("h2d", start, bucket) for start, bucket in ((0, 0), (8, 4))),
        *(("broadcast", start, bucket) for bucket, start in enumerate((4, 5, 6, 7, 12, 13, 14, 15))),
        *(("reload", start, bucket) for bucket, start in enumerate((5, 6, 7, 8, 13, 14, 15, 16))),
    }


def test_two_stage_reload_bound():
    assert makespan(two_stage(plan(rounds=1)), load=3) == 17


@FEW
@given(seconds, seconds, seconds, seconds, counts, counts)
def test_two_stage(h, copy, cast, load, n, r):
    beta = copy + cast
    closed = (h + beta) + (r - 1) * max(h + beta, load) + r * (n - 1) * max(beta, load) + load
    assert makespan(two_stage(plan(n, r)), h, cast, load, copy) == closed


@given(st.lists(st.integers(1, 8), min_size=4, max_size=40), st.integers(0, 10))
@examples(30)
def test_a_model_that_fits_in_one_bucket_per_rank_pays_one_h2d(tensors, spare):
    """R = 1 for any S <= N b: T = H + N beta + L for the ranks that own something (beta >= L)."""
    sizes = 256 * np.array(tensors)
    owned = [part.sum() for part in np.split(sizes, range(-(-len(sizes) // 4), len(sizes), -(-len(sizes) // 4)))]
    fits = make_plan(sizes, 4, BucketSize(int(max(owned)) + 256 * spare, 3))
    assert makespan(two_stage(fits)) == 4 + len(owned) + 1


COSTS_PER_BYTE = st.fixed_dictionaries(dict.fromkeys(("h2d", "copy", "broadcast", "reload"), seconds))
COSTS_FIXED = st.fixed_dictionaries(dict.fromkeys(("wait_worker", "agree", "sync", "send_meta"), seconds))
SIZES = st.lists(st.integers(1, 6).map(lambda n: 256 * n), min_size=1, max_size=24)


def makespan_by_bytes(program: Program, per_256: dict[str, float], fixed: dict[str, float]) -> float:
    costs = kind_costs(program, fixed)
    per_byte = np.array([per_256.get(kind, 0.0) / 256 for kind in program.kinds])
    return simulate(program, replace(costs, work_s=costs.work_s + program.bytes * per_byte[program.kind])).makespan_s


def filled(sizes: list[int], ranks: int, limit: int) -> list[list[int]]:
    """Bytes of the buckets of each owner: equal shares by count, a new bucket when the next is too large."""
    share = -(-len(sizes) // ranks)
    owned: list[list[int]] = []
    for rank in range(ranks):
        buckets: list[int] = []
        for size in sizes[rank * share : (rank + 1) * share]:
            if buckets and buckets[-1] + size <= limit:
                buckets[-1] += size
            else:
                buckets.append(size)
        owned.append(buckets)
    return owned


def rounds_of(owned: list[list[int]]) -> list[list[int]]:
    """Bytes of the buckets of each round, owners in rank order; one without a bucket skips its turn."""
    return [[own[i] for own in owned if i < len(own)] for i in range(max(map(len, owned)))]


@examples(80)
@given(SIZES, st.integers(1, 6), st.integers(6, 12).map(lambda n: 256 * n), COSTS_PER_BYTE, COSTS_FIXED)
def test_two_stage_with_uneven_owners(sizes, ranks, limit, per_256, fixed):
    """H2D of a round starts after M of the bucket before, on all ranks at once, and holds each rank's host."""
    size = {kind: value / 256 for kind, value in per_256.items()}
    sent = loaded = 0.0
    for bucket_bytes in rounds_of(filled(sizes, ranks, limit)):
        free = sent + max(bucket_bytes) * size["h2d"]  # when the last host is free again
        for s in bucket_bytes:
            cast = free + s * (size["copy"] + size["broadcast"])  # rule 1
            heard = max(free, loaded) + fixed["wait_worker"]  # rule 2: the slowest rank gates all
            free = sent = max(cast, heard) + fixed["agree"] + fixed["sync"] + fixed["send_meta"]
            loaded = sent + s * size["reload"]
    update = two_stage(make_plan(np.array(sizes), ranks, BucketSize(limit, 3)))
    assert makespan_by_bytes(update, per_256, fixed) == loaded


def test_a_rank_without_a_bucket_still_receives_and_reloads():
    program = two_stage(make_plan(np.array([256, 256, 256]), 2, BucketSize(256, 3)))
    receivers = {program.names[op]: program.ranks_of(op) for op in np.flatnonzero(program.is_kind("broadcast"))}
    reloads = [program.names[op] for op in np.flatnonzero(program.is_kind("reload"))]
    assert receivers == {f"broadcast b{g} from r{owner}": [0, 1] for g, owner in enumerate((0, 1, 0))}
    assert reloads == [f"reload b{g} on r{rank}" for g in range(3) for rank in range(2)]


# -- Serial, and without an H2D buffer --------------------------------------------------------------------------------


def test_serial_unit_case():
    assert makespan(serial(plan())) == 24


@FEW
@given(seconds, seconds, seconds, seconds, counts, counts)
def test_serial(h, copy, cast, load, n, r):
    assert makespan(serial(plan(n, r)), h, cast, load, copy) == r * (h + n * (copy + cast + load))


def test_fallback_unit_case():
    assert makespan(two_stage(plan(buffers=2))) == 41


@FEW
@given(seconds, seconds, seconds, counts, counts)
def test_fallback(h, beta, load, n, r):
    closed = h + beta + (n * r - 1) * max(h + beta, load) + load
    assert makespan(two_stage(plan(n, r, buffers=2)), h, beta, load) == closed


# -- Three stages on separate links -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("freed", "expected"), [("start", 13), ("end", 14)])
def test_three_stage_unit_case(freed, expected):
    assert makespan(three_stage(plan(), freed)) == expected


@FEW
@given(some_seconds, st.fractions(0, 1, max_denominator=8), st.fractions(0, 1, max_denominator=8), counts, counts)
def test_three_stage_freed_at_the_start(beta, h_part, load_part, n, r):
    """H <= N beta and L <= beta: broadcasts follow each other without a gap."""
    h, load = round(float(h_part) * n * beta * 16) / 16, round(float(load_part) * beta * 16) / 16
    assert makespan(three_stage(plan(n, r)), h, beta, load) == h + r * n * beta + load


@FEW
@given(some_seconds, seconds, st.fractions(0, 1, max_denominator=8), counts, counts)
def test_three_stage_freed_at_the_end(beta, more, load_part, n, r):
    """H + beta >= N beta and L <= beta: a rank's next broadcast waits for its own H2D."""
    h, load = (n - 1) * beta + more, round(float(load_part) * beta * 16) / 16
    assert makespan(three_stage(plan(n, r), "end"), h, beta, load) == h + (r - 1) * (h + beta) + n * beta + load


def test_three_stage_needs_three_buffers():
    with pytest.raises(ValueError, match="needs an H2D buffer"):
        three_stage(plan(buffers=2))
