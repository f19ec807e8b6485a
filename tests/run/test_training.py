"""Training as a process: what checkpoints and failures cost, one by one and on average."""

import tracemalloc
from itertools import count, islice
from math import exp, gamma, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.systems.run.speed import Crew, Speed, Turn
from runcast.simulator.systems.run.spread import Spread, Throttle
from runcast.simulator.systems.run.sync.rounds import EachStep, Local
from runcast.simulator.systems.run.target import Stage
from runcast.simulator.systems.run.training.chart import LANE
from runcast.simulator.systems.run.training.elastic import Elastic
from runcast.simulator.systems.run.training.failures import Cause, Failure, Failures, failures
from runcast.simulator.systems.run.training.input import Input, Queues
from runcast.simulator.systems.run.training.plan import Restart
from runcast.simulator.systems.run.training.renewals import failures_per_s
from runcast.simulator.systems.run.training.storage import Saving
from runcast.simulator.systems.train_step.run import best_interval_s, expected_s

from .make import failure, train


def test_steps_alone_take_their_sum():
    assert train(EachStep(2.0, exchange_s=0.5), steps=100).breakdown_s == {"compute": 200.0, "exchange": 50.0}


def test_a_run_of_a_given_time_keeps_whole_steps():
    history = train(EachStep(2.0), wall_s=9.0)

    assert (history.steps, history.breakdown_s) == (4, {"compute": 8.0, "unfinished": 1.0})


def test_a_blocking_checkpoint_stands_between_intervals_and_not_after_the_last_step():
    history = train(steps=30, saving=Saving(3.0), work_s=10.0)

    assert history.breakdown_s == {"compute": 30.0, "checkpoint": 6.0}


def test_a_failure_loses_what_the_last_checkpoint_does_not_hold():
    # 10 s of work and a checkpoint until 11; 4 steps and a half until 15.5; then 2 s until noticed, 5 s to restart.
    history = train(
        steps=20, saving=Saving(1.0), work_s=10.0, failures=[failure(15.5, detect_s=2.0)], restart=Restart(init_s=5.0)
    )

    assert history.breakdown_s == {"compute": 20.0, "checkpoint": 1.0, "lost": 4.5, "detect": 2.0, "restart": 5.0}


def test_without_checkpoints_a_failure_loses_all():
    assert train(steps=10, failures=[failure(7.5)]).breakdown_s == {"compute": 10.0, "lost": 7.5}


def test_what_is_still_being_written_is_lost_with_what_came_after():
    # The snapshot of 10 steps at 10.5 is safe at 14.5; the failure at 14 loses all 10 steps and 3.5 of the next.
    history = train(steps=20, saving=Saving(0.5, write_s=4.0), work_s=10.0, failures=[failure(14.0)])

    assert history.breakdown_s == {"compute": 20.0, "checkpoint": 1.0, "lost": 13.5}


def test_what_has_been_written_is_safe():
    history = train(steps=20, saving=Saving(0.5, write_s=3.0), work_s=10.0, failures=[failure(14.0)])

    assert history.breakdown_s == {"compute": 20.0, "checkpoint": 0.5, "lost": 3.5}


def test_a_checkpoint_waits_until_the_one_before_is_written():
    history = train(steps=6, saving=Saving(0.0, write_s=5.0), work_s=2.0)

    assert history.breakdown_s == {"compute": 6.0, "checkpoint": 3.0}  # at 2; at 4 it waits until 7


def test_a_failure_during_a_restart_begins_it_anew():
    history = train(steps=10, failures=[failure(2.0), failure(5.0)], restart=Restart(init_s=4.0))

    assert history.breakdown_s == {"compute": 10.0, "lost": 2.0, "restart": 3.0 + 4.0}


def test_a_failure_before_another_one_is_noticed_is_replaced_with_it():
    # Both are noticed at 15 s; one has the spare, and the other waits until a node is back, at 115 s.
    failures = [failure(0.0, 0, detect_s=10.0, repair_s=100.0), failure(5.0, 1, detect_s=10.0, repair_s=100.0)]
    history = train(ranks=2, steps=10, spares=1, failures=failures)

    assert history.breakdown_s == {"compute": 10.0, "detect": 15.0, "repair": 100.0}


def test_a_node_that_fails_twice_before_it_is_noticed_comes_back_once():
    # After both are noticed at 15 s it is away for the longer repair; the other failure finds no spare.
    failures = [failure(0.0, detect_s=10.0, repair_s=30.0), failure(5.0, detect_s=10.0, repair_s=100.0)]
    history = train(ranks=2, steps=10, failures=[*failures, failure(120.0, 1, repair_s=7.0)])

    assert history.breakdown_s == {"compute": 10.0, "lost": 5.0, "detect": 15.0, "repair": 107.0}


def test_a_planned_stop_while_nothing_trains_saves_nothing_and_ends_no_detection():
    failures = [failure(5.5, detect_s=10.0, repair_s=100.0), failure(8.0, effect="planned")]
    history = train(steps=10, saving=Saving(1.0), work_s=100.0, failures=failures)

    assert history.breakdown_s == {"compute": 10.0, "lost": 5.5, "detect": 10.0, "repair": 100.0}


def test_a_failure_during_the_save_before_a_planned_stop_loses_what_was_saved():
    failures = [failure(5.0, effect="planned", repair_s=100.0), failure(7.0, detect_s=10.0)]
    history = train(steps=10, saving=Saving(3.0), work_s=100.0, failures=failures)

    assert history.breakdown_s == {"compute": 10.0, "checkpoint": 2.0, "lost": 5.0, "detect": 10.0, "repair": 100.0}


def test_a_second_planned_stop_during_the_save_before_the_first_one_saves_with_it():
    stops = [failure(5.0, effect="planned"), failure(7.0, effect="planned")]
    history = train(steps=10, saving=Saving(3.0), work_s=100.0, failures=stops, restart=Restart(4.0))

    assert history.breakdown_s == {"compute": 10.0, "checkpoint": 3.0, "restart": 4.0}


def test_a_failure_without_repair_does_not_end_the_wait_for_another_node():
    history = train(ranks=2, steps=10, failures=[failure(0.0, repair_s=60.0), failure(30.0, 1)])

    assert history.breakdown_s == {"compute": 10.0, "repair": 60.0}


def test_a_failure_during_a_resize_begins_it_anew():
    failures = [failure(0.0, repair_s=1e6), failure(20.0, 1)]
    history = train(ranks=2, workers=2, steps=10, elastic=Elastic(batch="shrinks", resize=30.0), failures=failures)

    assert history.breakdown_s == {"compute": 10.0, "resize": 20.0 + 30.0}


def test_a_failure_during_the_start_of_the_run_begins_it_anew():
    history = train(steps=10, starts=True, failures=[failure(3.0)], restart=Restart(4.0))

    assert history.breakdown_s == {"compute": 10.0, "start": 3.0, "restart": 4.0}


def test_a_planned_stop_saves_first():
    stop = failure(5.5, effect="planned")
    history = train(steps=10, saving=Saving(1.0, write_s=2.0), work_s=100.0, failures=[stop], restart=Restart(4.0))

    assert history.breakdown_s == {"compute": 10.0, "checkpoint": 3.0, "lost": 0.5, "restart": 4.0}


@pytest.mark.parametrize(
    ("save_s", "notice", "effect", "late_s"),
    [(3, 0, "stop", 0), (3, 2, "stop", 2), (3, 3, "planned", 0), (0, 0, "stop", 0), (0, 2, "planned", 0)],
)
def test_a_warning_is_of_use_if_a_checkpoint_fits_into_it(save_s, notice, effect, late_s):
    def first(warning):
        said = Failures(cause=(Cause(name="spot", mtbf=100.0, notice=warning),))
        return next(failures(said, {"gpu": 1}, save_s, lambda *_: (0,), lambda *_: np.random.default_rng(0)))

    assert (first(notice).effect, first(notice).at_s) == (effect, first(0).at_s + late_s)


def test_without_a_spare_a_run_waits_for_the_repair():
    assert train(steps=10, failures=[failure(0.0, repair_s=60.0)]).breakdown_s == {"compute": 10.0, "repair": 60.0}


def test_a_failure_of_several_nodes_takes_all_of_them_away():
    leaf = Failure(0.0, "leaf", (0, 1, 2), "stop", 0.0, 60.0)
    history = train(ranks=4, workers=4, steps=10, spares=1, elastic=Elastic(batch="shrinks"), failures=[leaf])

    assert (history.breakdown_s, history.samples, history.counts["failures"]) == ({"compute": 10.0}, 20.0, 1)


def test_a_node_that_is_away_already_comes_back_once():
    # Node 0 is back at 60 s, with which one of two places is filled; the other one waits until 80 s.
    failures = [failure(0.0, 0, repair_s=60.0), Failure(20.0, "leaf", (0, 1), "stop", 0.0, 60.0)]

    assert train(ranks=2, steps=10, failures=failures).breakdown_s == {"compute": 10.0, "repair": 80.0}


def test_a_spare_node_takes_the_place_of_a_failed_one():
    assert train(steps=10, spares=1, failures=[failure(0.0, repair_s=60.0)]).breakdown_s == {"compute": 10.0}


def test_a_repaired_node_becomes_a_spare():
    failures = [failure(0.0, repair_s=5.0), failure(8.0, repair_s=5.0)]

    assert train(steps=10, spares=1, failures=failures).breakdown_s == {"compute": 10.0, "lost": 8.0}


def test_dropping_a_worker_leaves_its_samples_to_the_others():
    # 2 of 4 workers: after the first failure steps take 4/3; it is repaired at 40 and returns at the next change.
    history = train(ranks=4, workers=4, steps=30, elastic=Elastic(), failures=[failure(0.0, 1, repair_s=1000.0)])

    assert (history.wall_s, history.samples) == (pytest.approx(40.0), 120.0)


def test_a_repaired_node_returns_whenever_the_next_failure_is():
    failures = [failure(0.0, 1, repair_s=100.0), failure(5000.0, 1, repair_s=1.0)]
    history = train(ranks=4, workers=4, steps=4000, elastic=Elastic(), failures=failures)
    back_s = next(event.at_s for event in history.events if event.what == "resize" and "4 workers" in event.detail)

    assert back_s == pytest.approx(100.0, abs=20.0)


def test_a_shrunken_batch_trains_on_fewer_samples_at_the_same_pace():
    history = train(
        ranks=4, workers=4, steps=30, elastic=Elastic(batch="shrinks"), failures=[failure(0.0, 1, repair_s=1e6)]
    )

    assert (history.wall_s, history.samples) == (pytest.approx(30.0), 90.0)


def test_a_pipeline_with_a_node_less_is_slower_by_its_share():
    elastic = Elastic(mode="shrink")
    history = train(ranks=8, workers=2, steps=30, elastic=elastic, failures=[failure(0.0, 1, repair_s=1e6)])

    assert history.wall_s == pytest.approx(30 * 4 / 3)


def test_below_the_least_number_of_workers_a_run_waits():
    elastic = Elastic(least=3)
    failures = [failure(0.0, 0, repair_s=50.0), failure(1.0, 1, repair_s=50.0)]
    history = train(ranks=4, workers=4, steps=30, elastic=elastic, failures=failures)

    assert history.breakdown_s["repair"] == pytest.approx(49.0)


def test_a_run_of_one_worker_that_may_leave_waits_as_any_other():
    """Of four nodes: the second fails while the first is repaired."""
    failures = [failure(100.0, 0, repair_s=300.0), failure(300.0, 1, repair_s=300.0)]
    alike = [
        train(ranks=4, steps=1000, work_s=1.0, saving=Saving(0.0, 0.0), elastic=elastic, failures=failures)
        for elastic in (None, Elastic())
    ]

    assert [(one.wall_s, one.counts["failures"]) for one in alike] == [(1500.0, 2)] * 2


def test_a_node_whose_worker_has_left_keeps_it_away_if_it_fails_too():
    """Its nodes are away from 10 to 40 s and, 5 s of them unnoticed, from 30 to 65 s: 56 steps."""
    failures = [failure(10.0, 0, repair_s=30.0), failure(30.0, 1, detect_s=5.0, repair_s=30.0)]
    history = train(
        ranks=4, workers=2, steps=100, work_s=1.0, saving=Saving(0.0, 0.0), elastic=Elastic(batch="shrinks"),
        failures=failures,
    )  # fmt: skip

    assert (history.wall_s, history.samples, history.counts["failures"]) == (100.0, 2 * 100 - 56, 2)


@pytest.mark.parametrize(("effect", "wall_s"), [("stop", 40 + 5 + 5), ("slow", 10 + 5 + 5 + 25 * 2)])
def test_software_fails_whichever_nodes_are_away(effect, wall_s):
    """A worker is away from 10 s on, after a restart of 5 s; at 20 s the job starts again, or turns slow."""
    of_job = Failure(20.0, "software", (0,), effect, 0.0, 0.0, factor=2.0, of_job=True)
    alike = [
        train(
            ranks=4, workers=4, steps=40, work_s=1.0, saving=Saving(0.0, 0.0), elastic=Elastic(batch="shrinks"),
            failures=[failure(10.0, node, repair_s=1000.0), of_job], restart=Restart(5.0),
        )
        for node in range(4)
    ]  # fmt: skip

    assert [one.wall_s for one in alike] == [wall_s] * 4


def test_a_restart_of_software_mends_no_slow_rank():
    of_job = Failure(10.0, "software", (0,), "stop", 0.0, 0.0, of_job=True)
    turns = [Turn(at=0.0, rank=rank, factor=2.0) for rank in range(4)]
    alike = [
        train(ranks=4, steps=20, speed=Speed(turn=(turn,)), saving=Saving(0.0), work_s=1.0, failures=[of_job])
        for turn in turns
    ]

    assert [one.wall_s for one in alike] == [40.0] * 4


def test_all_wait_for_a_rank_that_turned_slow():
    turn = Turn(at=9.5, rank=3, factor=2.0)  # from the next step on

    assert train(ranks=8, steps=20, speed=Speed(turn=(turn,))).wall_s == pytest.approx(10 + 20)


def test_a_rank_that_is_slow_from_the_start_slows_the_first_round():
    turn = Turn(at=0.0, rank=3, factor=2.0)

    assert train(Local(1.0, steps=50), ranks=8, steps=100, speed=Speed(turn=(turn,))).wall_s == pytest.approx(2 * 100)


@pytest.mark.parametrize(("lasts", "more_s"), [(20.0, 10.0), (60.0, 30.0), (None, 90.0)])
def test_a_rank_slows_the_rest_of_a_round_of_many_steps_for_as_long_as_it_is_slow(lasts, more_s):
    speed = Speed(turn=(Turn(at=10.0, rank=3, factor=2.0, lasts=lasts),))
    history = train(Local(1.0, steps=50, exchange_s=5.0), ranks=8, steps=100, speed=speed)

    assert (history.wall_s, history.breakdown_s["exchange"]) == (pytest.approx(100 + 2 * 5 + more_s), 10.0)


@pytest.mark.parametrize(("keys", "batches", "wall_s"), [
    ({}, [Stage(100.0, 3.0, 3.0)], 20 + (150 - 20) * 2),  # a batch of three takes each step three times as long
    ({"inside_s": 1.0}, [], 20 + (50 - 10) * (2 + 1)),  # exchanges inside groups are in each step, and no slower
])  # fmt: skip
def test_a_rank_slows_what_is_left_of_the_steps_of_a_round(keys, batches, wall_s):
    speed = Speed(turn=(Turn(at=20.0, rank=3, factor=2.0),))
    history = train(Local(1.0, steps=50, **keys), ranks=8, steps=50, batches=batches, speed=speed)

    assert history.wall_s == pytest.approx(wall_s)


def test_a_slow_rank_that_is_found_is_replaced_after_a_planned_stop():
    speed = Speed(turn=(Turn(at=10.0, rank=3, factor=2.0),), detect=20.0)
    history = train(ranks=8, steps=40, speed=speed, saving=Saving(1.0), work_s=1000.0, restart=Restart(5.0))

    assert (history.wall_s, history.breakdown_s["restart"]) == (pytest.approx(10 + 20 + 1 + 5 + 20), 5.0)


def test_a_slow_node_that_is_replaced_is_away_until_it_is_repaired():
    # Found at 30 s; the spare has its place at once, and the second slow rank, found at 35 s, waits until 130 s.
    turns = Turn(at=10.0, rank=0, factor=2.0), Turn(at=15.0, rank=1, factor=2.0)
    same = {"ranks": 2, "steps": 40, "saving": Saving(0.0), "work_s": 1.0, "repair_s": 100.0}
    history = train(speed=Speed(turn=turns, detect=20.0), spares=1, **same)

    assert (history.breakdown_s["repair"], history.counts["stops"]) == (95.0, 2)


def test_a_cause_says_how_long_a_slow_node_is_away():
    slow = Failure(10.0, "hot", (0,), "slow", 0.0, 50.0, factor=2.0)
    history = train(steps=20, failures=[slow], speed=Speed(detect=4.0), saving=Saving(0.0), work_s=1.0, repair_s=100.0)

    assert history.breakdown_s == {"compute": 22.0, "repair": 50.0}  # 2 steps until it is found take twice as long


def test_a_node_that_is_away_does_not_turn_slow():
    failures = [failure(0.0, repair_s=50.0), Failure(10.0, "hot", (0,), "slow", 0.0, 0.0, factor=2.0)]

    assert train(steps=20, failures=failures).breakdown_s == {"compute": 20.0, "repair": 50.0}


def test_samples_in_proportion_to_speed_let_all_end_at_once():
    even = train(speeds=[1.0, 1.0, 2.0, 2.0], steps=30)
    shared = train(speeds=[1.0, 1.0, 2.0, 2.0], steps=30, speed=Speed(balance="proportional"))

    assert (even.wall_s, shared.wall_s) == (pytest.approx(60.0), pytest.approx(30 * 4 / 3))


def test_dynamic_balance_pays_once_for_each_change():
    speed = Speed(turn=(Turn(at=9.5, rank=0, factor=2.0),), balance="dynamic", rebalance=3.0)
    history = train(ranks=2, steps=20, speed=speed)

    assert history.wall_s == pytest.approx(10 + 3 + 10 * 2 / 1.5)


def test_a_larger_batch_reads_as_many_samples_more():
    input_ = Input(sample=1000, samples=10, cpu=0.5, prefetch=1)  # 5 s to prepare a usual batch
    history = train(steps=100, input=input_, batches=[Stage(100.0, 3.0, 3.0)])

    assert history.wall_s == pytest.approx(100 * 15.0, rel=0.02)


def test_input_that_is_slower_than_a_step_sets_the_pace():
    input_ = Input(sample=1000, samples=10, store=5000, cpu=0.1, cpus=2, prefetch=1)  # 2 s to read, 0.5 s to prepare
    history = train(steps=100, input=input_)

    assert history.wall_s == pytest.approx(1.0 + 99 * 2.5, abs=2.5)


_EITHER = Spread(kind="trace", values=(1, 3))


def test_all_wait_for_the_worker_whose_batch_is_last():
    input_ = Input(sample=1000, samples=10, cpu=0.1, prefetch=1, jitter=_EITHER)  # 1 s or 3 s
    history = train(steps=4000, ranks=4, workers=4, input=input_)

    assert history.wall_s / 4000 == pytest.approx(3 - 2 / 2**4, abs=0.03)


def test_batches_of_a_round_are_late_one_by_one():
    # The sum of 100 batches is 200 s, with a deviation of 10 s; the largest of four is 1.03 deviations above.
    # Three of four wait at the end of a round, so that the first batch of the next one, 1 s more than a step, is there.
    input_ = Input(sample=1000, samples=10, cpu=0.1, prefetch=1, jitter=_EITHER)
    history = train(Local(1.0, steps=100), steps=200_000, ranks=4, workers=4, input=input_)

    assert history.wall_s / 2000 == pytest.approx(200 + 10.3 - 0.75, abs=0.4)


def test_a_queue_absorbs_what_varies_of_its_own_worker():
    # Two batches are there. The third is ready at 3 (worker 0) or 1, the fourth at 4 for both; steps take 1.
    queues, factors = Queues(depth=2), np.array([[3.0, 1.0], [1.0, 3.0], [1.0, 1.0], [1.0, 1.0]])
    queues.resize(2)

    assert queues.feed(np.ones(4), np.ones(4), lambda _: factors).tolist() == [0, 0, 1, 0]


def test_caches_help_from_the_second_epoch_on():
    input_ = Input(sample=1000, samples=10, store=5000, dataset=100, hit=0.75, prefetch=1)  # 2 s, then half a second
    history = train(steps=100, input=input_)

    assert history.wall_s == pytest.approx(1.0 + 9 * 2.0 + 90 * 1.0, abs=2.5)


def test_larger_batches_take_longer_and_train_on_more():
    history = train(EachStep(1.0, exchange_s=0.5), steps=30, batches=[Stage(10, 1.0, 1.0), Stage(20, 2.0, 2.0)])

    assert (history.breakdown_s, history.samples) == ({"compute": 10.0 + 20.0 + 10.0, "exchange": 15.0}, 40.0)


def test_training_stands_for_evaluations():
    assert train(steps=100, pauses=[(30, 5.0), (50, 1.0)]).breakdown_s == {"compute": 100.0, "pause": 17.0}


@pytest.mark.parametrize("asked", [{"steps": 25}, {"enough": 25.0}])
def test_the_last_round_has_the_steps_that_are_left(asked):
    history = train(Local(1.0, 10, exchange_s=3.0), **asked)

    assert (history.steps, history.samples, history.breakdown_s) == (25, 25.0, {"compute": 25.0, "exchange": 9.0})


def test_a_batch_lasts_for_its_steps_whatever_rounds_have():
    """Ten steps of half a batch, then ten of a whole one."""
    history = train(Local(1.0, 5), steps=20, batches=[Stage(10.0, 0.5, 0.5), Stage(20.0, 1.0, 1.0)])

    assert (history.wall_s, history.samples) == (15.0, 15.0)


def test_local_steps_share_one_exchange():
    assert train(Local(1.0, steps=50, exchange_s=7.0), steps=200).wall_s == pytest.approx(4 * (50 * 1.0 + 7.0))


def test_steps_of_a_round_are_hot_one_by_one():
    hot = Crew(np.ones(1), Spread(), None, Throttle(factor=2.0, share=0.1))
    drawn = Local(1.0, steps=500).draw(np.random.default_rng(0), 2000, hot)
    seconds = sum(drawn.values())

    assert (seconds.mean(), seconds.std()) == (pytest.approx(550.0, rel=0.01), pytest.approx(sqrt(500 * 0.09), rel=0.1))


def test_an_exchange_that_may_be_late_hides_behind_its_steps():
    assert train(Local(1.0, steps=50, exchange_s=7.0, delay=5), steps=200).wall_s == pytest.approx(4 * (50 + 2.0))


@pytest.mark.parametrize("ranks", [16, 1024])
def test_stragglers_cost_the_expected_maximum(ranks):
    # E[max] of n normal numbers lies within 15 % of sigma sqrt(2 ln n), and nearer to its quantile n / (n + 1).
    steps, sigma = 4000, 0.05
    history = train(ranks=ranks, steps=steps, jitter=Spread(kind="gaussian", spread=sigma))
    drawn = 1 + sigma * np.random.default_rng(1).standard_normal((4000, ranks)).max(axis=1)
    spread = sigma * 4 / sqrt(steps)

    assert history.wall_s / steps == pytest.approx(drawn.mean(), abs=spread)


def test_backup_workers_are_not_waited_for():
    steps = 4000
    history = train(EachStep(1.0, backup=4), ranks=20, steps=steps, jitter=Spread(kind="lognormal", spread=0.3))
    drawn = Spread(kind="lognormal", spread=0.3).draw(np.random.default_rng(1), (steps, 20))

    assert history.wall_s / steps == pytest.approx(np.sort(drawn)[:, 15].mean(), rel=0.01)


@pytest.mark.parametrize("spare", [0, 64])
def test_a_thousand_ranks_that_differ_do_not_need_numbers_for_each_at_once(spare):
    crew, steps = Crew(np.linspace(1, 1.2, 1024), Spread(spread=0.05)), 10_000
    tracemalloc.start()
    crew.draw(np.random.default_rng(0), steps, spare)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert most_bytes < crew.ranks * steps * 8


def test_ranks_that_differ_cost_the_expected_maximum():
    crew, steps = Crew(np.linspace(1, 1.1, 64), Spread(kind="lognormal", spread=0.1)), 20_000
    each = crew.speeds * Spread(kind="lognormal", spread=0.1).draw(np.random.default_rng(1), (steps, 64))

    assert crew.draw(np.random.default_rng(0), steps).mean() == pytest.approx(each.max(axis=1).mean(), rel=0.003)


def test_a_hot_rank_makes_all_wait_as_often_as_any_is_hot():
    crew = Crew(np.ones(10), Spread(), None, Throttle(factor=1.5, share=0.1))
    drawn = crew.draw(np.random.default_rng(0), 20_000)

    assert drawn.mean() == pytest.approx(1 + 0.5 * (1 - 0.9**10), abs=0.01)


def _poisson(mtbf_s: float, seed: int):
    at_s, rng = 0.0, np.random.default_rng(seed)
    for _ in count():
        at_s += rng.exponential(mtbf_s)
        yield Failure(at_s, "random", (0,), "stop", 0.0, 0.0)


def _goodput(work_s: float, mtbf_s: float, seed: int = 0, steps: int = 200_000) -> float:
    failures = [one for one, _ in zip(_poisson(mtbf_s, seed), range(3000), strict=False)]
    history = train(
        EachStep(5.0), steps=steps, saving=Saving(60.0), work_s=work_s, failures=failures, restart=Restart(600.0)
    )
    return history.breakdown_s["compute"] / history.wall_s


@pytest.mark.parametrize("work_s", [600.0, 1800.0, 5400.0])
def test_failures_at_a_constant_rate_cost_what_daly_expects(work_s):
    mtbf_s = 6 * 3600.0
    expected = work_s / expected_s(work_s, work_s, 60.0, 600.0, mtbf_s)

    assert np.mean([_goodput(work_s, mtbf_s, seed) for seed in range(8)]) == pytest.approx(expected, abs=0.01)


SPREADS = [
    Spread(),
    Spread(kind="trace", values=(0.1, 1.5)),
    *(
        pytest.param(Spread(kind=kind, spread=spread), marks=pytest.mark.slow)
        for kind, spread in (("gaussian", 0.3), ("lognormal", 2.0), ("pareto", 1.0))
    ),
]


def _share(cause: str, mtbf_s: float, restart: Restart, **keys: Any) -> float:
    """The share of the time in a cause, of 6,000 failures at a constant rate; no work is lost."""
    said = Failures(cause=(Cause(name="random", part="job", mtbf=mtbf_s),), **keys)
    listed = failures(said, {"job": 1}, 0.0, lambda _part, _number: (0,), lambda *of: np.random.default_rng((3, *of)))
    history = train(EachStep(mtbf_s), wall_s=6_000 * mtbf_s, failures=listed, restart=restart)
    return history.breakdown_s[cause] / history.wall_s


@pytest.mark.parametrize("spread", SPREADS, ids=lambda spread: spread.kind)
def test_drawn_detection_takes_the_busy_time_of_a_queue_with_servers_without_end(spread):
    """Failures that are not noticed yet are customers of M/G/inf: their number is Poisson, whatever the distribution.

    None is there for e^(-rate * mean) of the time (Takacs, Introduction to the Theory of Queues, 1962).
    """
    share = _share("detect", 100.0, Restart(), detect=70.0, detect_spread=spread)

    assert share == pytest.approx(1 - exp(-70.0 * spread.mean / 100.0), rel=0.05)


@pytest.mark.parametrize("spread", SPREADS, ids=lambda spread: spread.kind)
def test_restarts_that_failures_begin_anew_are_drawn_anew(spread):
    """Of work that an interruption at a rate repeats with a new draw: 1 - E[e^(-rate * time)] of the time.

    Gaver, Journal of the Royal Statistical Society B, 1962 (preemptive repeat different).
    """
    factors = spread.draw(np.random.default_rng(0), 1_000_000)
    share = _share("restart", 100.0, Restart(init_s=70.0, spread=spread))

    assert share == pytest.approx(1 - np.exp(-70.0 * factors / 100.0).mean(), rel=0.05)


def _listed(**keys: Any) -> list[Failure]:
    said = Failures(detect=10.0, repair=50.0, **keys)
    every = failures(said, {"node": 4}, 0.0, lambda _, number: (number,), lambda *of: np.random.default_rng(of))
    return list(islice(every, 2000))


@pytest.mark.parametrize("shape", [0.5, 2.0])
def test_a_run_expects_as_many_failures_of_new_parts_as_there_are(shape):
    """Of 20,000 parts in half the mean life of one, within four standard deviations of a count (Poisson's, or less)."""
    cause = Cause(name="part", mtbf="2 s", shape=shape)
    said, parts = Failures(cause=(cause,)), {"gpu": 20_000}
    every = failures(said, parts, 0.0, lambda *_: (0,), lambda *of: np.random.default_rng(of))
    found, expected = next(i for i, one in enumerate(every) if one.at_s > 1), 20_000 * failures_per_s(2.0, shape, 1.0)

    assert expected == pytest.approx(found, abs=4 * sqrt(found / shape))


@pytest.mark.parametrize("shape", [0.5, 1.0, 2.0])
def test_far_from_the_start_a_part_has_failed_as_often_as_renewal_theory_says(shape):
    """In t mean lives t + (variance / mean^2 - 1) / 2 times (Cox, Renewal Theory, 1962, section 4.2)."""
    variance = gamma(1 + 2 / shape) / gamma(1 + 1 / shape) ** 2 - 1

    assert 40.0 * failures_per_s(1.0, shape, 40.0) == pytest.approx(40.0 + (variance - 1) / 2, rel=5e-3)


def test_a_part_that_wears_out_never_fails_early():
    assert failures_per_s(1.0, 20.0, 1e-4) == pytest.approx(0.0, abs=1e-60)


def test_times_that_vary_move_no_failure():
    cause, wide = (Cause(name="random", part="node", mtbf=100.0),), Spread(kind="lognormal", spread=1.0)
    plain, drawn = _listed(cause=cause), _listed(cause=cause, detect_spread=wide, repair_spread=wide)

    assert [(one.at_s, one.nodes) for one in plain] == [(one.at_s, one.nodes) for one in drawn]
    assert {(one.detect_s, one.repair_s) for one in plain} == {(10.0, 50.0)}
    assert np.mean([(one.detect_s, one.repair_s) for one in drawn], axis=0) == pytest.approx([10.0, 50.0], rel=0.1)


def test_steps_behind_the_last_failure_are_drawn_at_once():
    history = train(failures=[failure(10.5)], steps=1000)
    stretches = [one for one in history.spans if (one.lane, one.kind) == (LANE, "compute")]

    assert [one.end_s - one.start_s for one in stretches] == [1000.0]


def test_a_trace_states_its_times_for_sure():
    lines, drawn_ones = (
        ({"at": 1.0, "detect": 7.0, "repair": 9.0}, {"at": 2.0}),
        Spread(kind="trace", values=(0.1, 1.5)),
    )
    stated, drawn = _listed(trace=lines, detect_spread=drawn_ones, repair_spread=drawn_ones)

    assert (stated.detect_s, stated.repair_s) == (7.0, 9.0)
    assert drawn.detect_s in (1.0, 15.0)
    assert drawn.repair_s in (5.0, 75.0)


@pytest.mark.slow
def test_dalys_interval_is_the_simulated_optimum_within_three_percent():
    mtbf_s = 3 * 3600.0
    best_s = best_interval_s(60.0, mtbf_s)
    tried = {factor: np.mean([_goodput(factor * best_s, mtbf_s, seed) for seed in range(6)]) for factor in (0.5, 1, 2)}

    assert max(tried.values()) / tried[1] == pytest.approx(1.0, abs=0.03)


@given(
    st.lists(st.tuples(st.floats(0, 300), st.floats(0, 20), st.sampled_from(["stop", "planned"])), max_size=8),
    st.floats(1, 40),
    st.floats(0, 5),
    st.floats(0, 30),
    st.integers(0, 2),
)
def test_causes_add_up_to_the_time_of_the_run_whatever_fails(failures, work_s, stall_s, write_s, spares):
    listed = [failure(at, repair_s=repair, effect=effect) for at, repair, effect in sorted(failures)]
    history = train(
        EachStep(1.0, exchange_s=0.25), steps=100, saving=Saving(stall_s, write_s), work_s=work_s, failures=listed,
        spares=spares, restart=Restart(3.0), jitter=Spread(kind="lognormal", spread=0.2), ranks=4,
    )  # fmt: skip

    assert sum(history.breakdown_s.values()) == pytest.approx(history.wall_s, rel=1e-9)


@given(st.floats(0, 200), st.floats(1, 40), st.floats(0, 5), st.floats(0, 30))
def test_a_failure_never_undoes_what_is_safe_and_never_spares_what_is_not(at_s, work_s, stall_s, write_s):
    calm = train(steps=100, saving=Saving(stall_s, write_s), work_s=work_s)
    failed = train(steps=100, saving=Saving(stall_s, write_s), work_s=work_s, failures=[failure(at_s)])
    most_s = work_s + 1 + max(write_s, work_s + 1 + stall_s) + stall_s

    assert 0 <= failed.breakdown_s.get("lost", 0.0) <= min(at_s, most_s) + 1e-6
    assert failed.wall_s >= calm.wall_s - 1e-6


events = st.tuples(
    st.integers(0, 300), st.sampled_from([0, 7, 40]), st.sampled_from([0, 90]), st.sampled_from(["stop", "planned"])
)


@given(st.lists(events, min_size=1, max_size=4), st.integers(0, 3), st.integers(0, 2), st.sampled_from([0.0, 5.0]))
def test_an_event_more_never_makes_a_run_shorter(events, which, spares, init_s):
    # Each on a node of its own. A checkpoint after each step costs nothing, so no event is of use to later ones.
    listed = [failure(at, node, detect_s=detect, repair_s=repair, effect=effect)
              for node, (at, detect, repair, effect) in enumerate(sorted(events))]  # fmt: skip
    fewer = [one for i, one in enumerate(listed) if i != which % len(listed)]
    same = {
        "ranks": 4,
        "steps": 200,
        "spares": spares,
        "restart": Restart(init_s),
        "saving": Saving(0.0),
        "work_s": 1.0,
    }

    assert train(failures=listed, **same).wall_s >= train(failures=fewer, **same).wall_s


def test_equal_seeds_give_equal_runs():
    one, other = (train(steps=500, jitter=Spread(spread=0.1), ranks=8, seed=7) for _ in range(2))

    assert one == other


def test_spans_add_up_to_the_seconds_by_cause():
    history = train(
        EachStep(1.0, exchange_s=0.25), steps=40, ranks=4, jitter=Spread(spread=0.1), work_s=10.0,
        saving=Saving(1.0, write_s=2.0), restart=Restart(init_s=3.0),
        failures=[failure(8.0), failure(33.3, detect_s=1.0), failure(36.0)],
    )  # fmt: skip
    seconds = dict.fromkeys(history.breakdown_s, 0.0)
    for span in history.spans:
        if span.lane == "run":
            seconds[span.kind] += span.end_s - span.start_s

    assert seconds == pytest.approx(history.breakdown_s)


@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_prefetch_counts_steps_also_where_a_round_has_several(prefetch):
    """Step k begins when step k - 1 ends, or when its batch is ready, 2 s after the one before."""
    reads = Input(sample=10**6, samples=1000, store=5 * 10**8, prefetch=prefetch)
    local = train(Local(1.0, 10), steps=100, input=reads)

    assert local.wall_s == pytest.approx(train(steps=100, input=reads).wall_s)
    assert local.wall_s == pytest.approx(2 * (100 - prefetch) + 1, abs=1.01)


def test_inside_a_round_nobody_waits_for_the_input_of_others():
    reads = Input(sample=10**6, samples=1000, cpu=1e-3, prefetch=1, jitter=Spread(kind="lognormal", spread=0.5))
    local, each = (
        train(rounds, workers=8, ranks=8, steps=2000, input=reads) for rounds in (Local(0.5, 20), EachStep(0.5))
    )
    alone = train(EachStep(0.5), steps=2000, input=reads)

    assert alone.wall_s < local.wall_s < each.wall_s
