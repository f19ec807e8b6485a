"""Step times against formulas, exactly, and what holds for any lengths."""

from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.insight import critical_path, sum_by_group
from runcast.simulator.systems.lengths import Lengths
from runcast.simulator.systems.rl_cycle.pace import Curve, Pace, Roofline
from runcast.simulator.systems.rl_cycle.plan import CyclePlan, Rollouts, Switch
from runcast.simulator.systems.rl_cycle.run import CycleRun, run_cycle

from ..examples import examples
from .batch import rollout_s

INTERRUPTS = ("drain", "abort", "keep")
ROLLOUT_S = 8.0


def plan(**changes: Any) -> CyclePlan:
    """A small cycle, synchronous and disaggregated unless changed.

    2 engines with 4 slots each, 8 requests of 16 tokens at 0.5 s: a rollout takes 8 s. Training 4 s, update 2 s.
    """
    rollouts: dict[str, Any] = {
        "requests": 8, "engines": 2, "slots": 4, "pace": Pace(0.5), "lengths": Lengths.constant(16),
    }  # fmt: skip
    keys = {*rollouts, "seed", "interrupt"}
    rollouts |= {key: value for key, value in changes.items() if key in keys}
    whole: dict[str, Any] = {
        "steps": 6, "warmup": 0, "staleness": 0, "train_s": 4.0, "update_s": 2.0, "pause_s": 2.0,
        "rollout_gpus": 4, "trainer_gpus": 4,
    }  # fmt: skip
    whole |= {key: value for key, value in changes.items() if key not in keys}
    return CyclePlan(rollouts=Rollouts(**rollouts), **whole)


def periods(run: CycleRun) -> list[float]:
    """The length of each step."""
    return np.diff(run.step_end_s, prepend=0.0).tolist()


def kinds(run: CycleRun, lane: int) -> list[str]:
    """What runs on a lane, in order."""
    program = run.timeline.program
    return [program.kind_of(op) for op in program.order[lane].tolist()]


def test_synchronous_and_colocated_all_adds_up():
    switch = Switch(release_s=0.5, onload_s=1.0, offload_s=1.5, kv_alloc_s=2.0)
    run = run_cycle(plan(switch=switch, trainer_gpus=0))

    assert periods(run) == [ROLLOUT_S + 4 + 2 + sum(astuple(switch))] * 6


def test_the_order_of_the_switch():
    run = run_cycle(plan(switch=Switch(0.5, 1.0, 1.5, 2.0), trainer_gpus=0, steps=1))

    assert kinds(run, 0) == ["rollout", "release", "onload", "train", "offload", "update", "kv_alloc"]


def test_synchronous_and_disaggregated_lacks_the_switch_alone():
    assert periods(run_cycle(plan())) == [ROLLOUT_S + 4 + 2] * 6


def test_staleness_0_is_synchronous_whatever_an_update_would_interrupt():
    runs = [periods(run_cycle(plan(interrupt=interrupt))) for interrupt in INTERRUPTS]

    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("staleness", [1, 2, 3])
@pytest.mark.parametrize("interrupt", ["drain", "keep"])
@pytest.mark.parametrize("train_s", [2.0, 8.0, 13.0])
def test_asynchronous_the_slower_pool_and_the_update(staleness, interrupt, train_s):
    run = run_cycle(plan(staleness=staleness, interrupt=interrupt, train_s=train_s, steps=12))

    assert periods(run)[-6:] == pytest.approx([max(ROLLOUT_S, train_s) + 2] * 6)


def test_engines_that_go_on_before_the_update_is_over_feel_its_pause_alone():
    run = run_cycle(plan(staleness=1, interrupt="keep", pause_s=0.5, steps=12))

    assert periods(run)[-6:] == pytest.approx([ROLLOUT_S + 0.5] * 6)


@pytest.mark.parametrize("train_s", [0.5, 4.0, 7.0])
def test_training_that_decoding_hides_is_on_the_critical_path_of_the_last_step_alone(train_s):
    run = run_cycle(plan(staleness=1, interrupt="keep", train_s=train_s, steps=12))
    program = run.timeline.program
    seconds = sum_by_group(critical_path(run.timeline), program.kind, tuple(program.kinds))

    assert seconds == pytest.approx({"rollout": 12 * ROLLOUT_S, "pause": 11 * 2, "train": train_s, "update": 2})


def test_what_an_abort_throws_away_is_decoded_again():
    """Training for 4 s, then the 4 s of decoding beside it are lost: nothing is gained by running at once."""
    run = run_cycle(plan(staleness=1, interrupt="abort"))

    assert periods(run)[1:] == [4 + 2 + ROLLOUT_S] * 5
    assert run.lost_tokens.tolist() == [8 * 4 / 0.5] * 6
    assert set(run.staleness().tolist()) == {0}


def test_a_drain_waits_for_the_requests_that_run():
    run = run_cycle(plan(staleness=1, interrupt="drain"))

    assert run.drain_s.tolist() == [ROLLOUT_S - 4] * 6


def test_a_request_that_ends_as_its_update_begins_has_ended():
    run = run_cycle(plan(staleness=1, interrupt="abort", train_s=ROLLOUT_S))

    assert run.lost_tokens.tolist() == [0.0] * 6


def test_the_rollout_of_a_step_is_the_batch_alone():
    lengths = Lengths.lognormal(20, 90)
    run = run_cycle(plan(lengths=lengths, requests=20, pace=Pace(0.5, 0.125)))

    alone = [rollout_s(lengths.draw(20, 0, batch), 2, 4, Pace(0.5, 0.125)) for batch in range(6)]

    assert periods(run) == pytest.approx([seconds + 4 + 2 for seconds in alone])


CYCLES = st.builds(
    plan,
    staleness=st.integers(0, 4),
    interrupt=st.sampled_from(INTERRUPTS),
    requests=st.integers(1, 20),
    engines=st.sampled_from([1, 2, 4]),
    slots=st.integers(1, 5),
    pace=st.sampled_from([Pace(0.5), Pace(0.5, 0.125), Pace(0.25, 0.0, 0.1)]),
    lengths=st.sampled_from([Lengths.constant(16), Lengths.lognormal(16, 90), Lengths.histogram([1, 50], [3, 1])]),
    seed=st.integers(0, 99),
    train_s=st.floats(0.5, 40),
    update_s=st.just(2.0),
    pause_s=st.sampled_from([0.0, 0.5, 2.0]),
)


@examples(60)
@given(CYCLES)
def test_nothing_that_is_trained_on_is_older_than_the_bound(any_plan):
    ages = run_cycle(any_plan).staleness()

    assert len(ages) == any_plan.steps * any_plan.rollouts.requests
    assert 0 <= ages.min() <= ages.max() <= any_plan.staleness


def test_a_request_that_a_full_cache_sent_back_is_as_old_as_its_first_token():
    """4 requests of 20 tokens in a cache of 60: the last goes back at 15 tokens, and 5 of it are of version 1."""
    nothing = Curve((1,), (0.0,))
    pace = Roofline(nothing, Curve((1,), (1.0,)), nothing, cached_s=0.0, capacity=60.0, admits=59.0)
    every = {"requests": 1, "engines": 1, "pace": pace, "lengths": Lengths.constant(20)}
    run = run_cycle(plan(staleness=3, interrupt="keep", train_s=0.5, update_s=0.0, pause_s=0.0, **every))
    last = run.requests[3]

    assert run.preempted > 0
    assert (last.version, last.start_s) == (0, 0.0)
    assert last.end_s > run.step_end_s[0] > 15


@examples(60)
@given(CYCLES)
def test_training_begins_when_its_batch_is_there_and_ends_before_the_next(any_plan):
    run = run_cycle(any_plan)
    trained = run.timeline.program.is_kind("train")
    batch_end_s = [max(one.end_s for one in run.requests if one.batch == step) for step in range(any_plan.steps)]

    assert (run.timeline.start_s[trained] >= batch_end_s).all()
    assert (run.timeline.start_s[trained][1:] >= run.step_end_s[:-1]).all()


@examples(60)
@given(CYCLES)
def test_a_lane_does_one_thing_at_a_time_and_slots_are_not_exceeded(any_plan):
    run = run_cycle(any_plan)
    for ops in map(np.ndarray.tolist, run.timeline.program.order):
        assert (run.timeline.start_s[ops[1:]] >= run.timeline.end_s[ops[:-1]]).all()

    assert run.busy.max() <= any_plan.rollouts.engines * any_plan.rollouts.slots


@examples(60)
@given(CYCLES)
def test_the_critical_path_has_no_gaps(any_plan):
    timeline = run_cycle(any_plan).timeline

    assert critical_path(timeline).seconds.sum() == pytest.approx(timeline.makespan_s)


def test_equal_plans_give_equal_times():
    noisy = plan(lengths=Lengths.lognormal(16, 90), staleness=2, interrupt="keep")

    assert run_cycle(noisy).timeline.end_s.tobytes() == run_cycle(noisy).timeline.end_s.tobytes()


def test_a_longer_tail_never_makes_the_mean_step_shorter():
    means = [
        np.mean(periods(run_cycle(plan(lengths=Lengths.lognormal(200, p99), requests=64)))) for p99 in (300, 900, 2500)
    ]

    assert means == sorted(means)


@pytest.mark.parametrize("switch", [None, Switch(0.5, 1.0, 1.5, 2.0)])
def test_what_is_prepared_before_training_adds_to_the_step(switch):
    plain, prepared = (periods(run_cycle(plan(switch=switch, prepare_s=prepare_s))) for prepare_s in (0.0, 3.0))

    assert prepared == [seconds + 3 for seconds in plain]
