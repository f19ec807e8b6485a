"""Continuous batching: closed forms, lower bounds, and simulators of a few lines that do the same token by token."""

from heapq import heapify, heapreplace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.systems.rl_cycle.pace import Pace
from runcast.simulator.systems.rl_cycle.pool import Pool

from .batch import rollout_s

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=40)
SLOTS = st.integers(1, 6)


def test_with_a_slot_for_each_a_rollout_takes_its_longest_request():
    assert rollout_s([3, 9, 4, 1], engines=1, slots=4, pace=Pace(0.5)) == 4.5


def test_a_slot_that_is_freed_takes_the_next_request():
    assert rollout_s([2, 5, 4], engines=1, slots=2, pace=Pace(1.0)) == 6.0  # 0-2 and 2-6 beside 0-5


def test_equal_requests_go_in_waves():
    assert rollout_s([8] * 12, engines=2, slots=3, pace=Pace(0.25)) == 2 * 8 * 0.25


def test_requests_that_share_an_engine_slow_each_other():
    # Both at 3 s per token until the short one ends at 6; then 2 s per token for the 3 tokens that are left.
    assert rollout_s([2, 5], engines=1, slots=2, pace=Pace(1.0, 1.0)) == 6.0 + 3 * 2.0


def test_the_emptier_engine_takes_the_next_request():
    pool = Pool(2, 4, Pace(1.0))
    pool.add(0, [5, 5, 5])

    assert pool.deal(0.0) == [(0, 0), (1, 1), (2, 0)]


@given(LENGTHS, st.integers(1, 4), SLOTS)
def test_never_shorter_than_the_longest_request_nor_than_the_work_shared_by_all_slots(lengths, engines, slots):
    seconds = rollout_s(lengths, engines, slots, Pace(1.0))

    assert seconds >= max(max(lengths), sum(lengths) / (engines * slots))


@given(LENGTHS, st.integers(1, 4), SLOTS)
def test_at_a_constant_pace_it_is_list_scheduling_on_slots(lengths, engines, slots):
    ends = [0] * (engines * slots)
    heapify(ends)
    for tokens in lengths:
        heapreplace(ends, ends[0] + tokens)

    assert rollout_s(lengths, engines, slots, Pace(1.0)) == max(ends)


@given(LENGTHS, SLOTS)
def test_at_a_pace_that_falls_with_load_it_is_the_loop_over_tokens(lengths, slots):
    pace, queue, running, seconds = Pace(1.0, 0.25), list(lengths), list[int](), 0.0
    while queue or running:
        while queue and len(running) < slots:
            running.append(queue.pop(0))
        seconds += pace.seconds(len(running))
        running = [left - 1 for left in running if left > 1]

    assert rollout_s(lengths, 1, slots, pace) == pytest.approx(seconds)


def test_a_halted_pool_makes_nothing():
    pool = Pool(1, 1, Pace(1.0))
    pool.add(0, [10])
    pool.deal(0.0)
    pool.halt(4.0)
    pool.go_on(9.0)

    assert pool.next_end_s() == 9.0 + 6


def test_kept_tokens_are_recomputed_one_by_one():
    pool = Pool(1, 2, Pace(1.0, recompute_s=0.5))
    pool.add(0, [10, 10])
    pool.deal(0.0)
    pool.halt(4.0)
    pool.go_on(5.0, recompute=True)

    assert pool.next_end_s() == 5.0 + 2 * 4 * 0.5 + 6


def test_what_is_aborted_begins_again_in_its_old_order():
    pool = Pool(1, 2, Pace(1.0))
    pool.add(0, [10, 20, 30])
    pool.deal(0.0)
    lost = pool.abort(4.0)

    assert (lost, pool.deal(4.0), pool.next_end_s()) == (8.0, [(0, 0), (1, 0)], 14.0)


def test_after_an_abort_nothing_runs():
    pool = Pool(2, 2, Pace(1.0))
    pool.add(0, [10] * 3)
    pool.deal(0.0)
    pool.abort(4.0)

    assert (pool.running, pool.next_end_s()) == (0, float("inf"))


@pytest.mark.parametrize("slots", [1, 64])
def test_lists_of_what_is_out_of_date_stay_short(slots):
    pool, now_s = Pool(2, slots, Pace(1.0)), 0.0
    pool.add(0, [1 + i % 7 for i in range(5000)])
    pool.deal(now_s)
    while pool.running:
        now_s = pool.next_end_s()
        pool.finish(now_s)
        pool.deal(now_s)

    assert len(pool._spare) + len(pool._ends) < 300


def test_an_engine_is_offered_whenever_such_lists_are_cut():
    """One slot, opened again and again without a request: a list of offers grows and is made anew."""
    for times in range(1, 100):
        pool = Pool(1, 1, Pace(1.0))
        for _ in range(times):
            pool.go_on(0.0)
        pool.add(0, [5])

        assert pool.deal(0.0) == [(0, 0)]
