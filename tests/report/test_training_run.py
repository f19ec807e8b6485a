"""Time to train: Daly's closed form against failures that are drawn, his published intervals, what a report says."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator import UserError
from runcast.simulator.predict import simulate
from runcast.simulator.report.spending import Rates
from runcast.simulator.systems.train_step.run import best_interval_s, expected_s, run_rows, training_run
from runcast.simulator.systems.train_step.scenario import Run

STEP = Path(__file__).parents[2] / "data/scenarios/train-llama3-8b-8xh100.toml"
HOUR, DAY, YEAR = 3600.0, 86_400.0, 365 * 86_400.0
FAILING = ["run.tokens=1e12", "run.gpu_mtbf='50700 h'", "run.checkpoint='1 min'", "run.restart='10 min'"]


def drawn_s(
    intervals: int, interval_s: float, checkpoint_s: float, restart_s: float, mtbf_s: float, seed: int
) -> float:
    """One run, failure by failure on a clock: nothing of the closed form is in here."""
    random = np.random.default_rng(seed)
    now, done, fails = 0.0, 0, random.exponential(mtbf_s)
    ready = 0.0  # when work goes on
    while done < intervals:
        end = max(now, ready) + interval_s + checkpoint_s
        if end <= fails:
            now, done = end, done + 1
        else:
            now, ready, fails = fails, fails + restart_s, fails + random.exponential(mtbf_s)
    return now


@pytest.mark.parametrize(
    ("mtbf_s", "checkpoint_s", "restart_s"),
    [(24 * HOUR, 300, 600), (3 * HOUR, 30, 600), (900, 60, 120), (600, 300, 900)],
)
def test_expected_time_is_the_mean_of_runs_with_drawn_failures(mtbf_s, checkpoint_s, restart_s):
    interval_s = best_interval_s(checkpoint_s, mtbf_s)
    mean_s = np.mean([drawn_s(1000, interval_s, checkpoint_s, restart_s, mtbf_s, seed) for seed in range(20)])

    assert mean_s == pytest.approx(
        expected_s(1000 * interval_s, interval_s, checkpoint_s, restart_s, mtbf_s), rel=0.015
    )


@pytest.mark.parametrize(("mtbf_s", "minutes"), [(24 * HOUR, 117), (6 * HOUR, 57), (15 * 60, 9.1)])
def test_intervals_are_those_that_daly_published(mtbf_s, minutes):
    # figures 3 to 5 of the paper: a dump of 5 minutes
    assert round(best_interval_s(300, mtbf_s) / 60, 1 if minutes < 10 else 0) == minutes


@given(mtbf_s=st.floats(60, YEAR), share=st.floats(1e-5, 1), factor=st.floats(0.2, 5))
def test_no_other_interval_makes_a_run_much_shorter(mtbf_s, share, factor):
    checkpoint_s = share * mtbf_s
    best_s = best_interval_s(checkpoint_s, mtbf_s)
    here, there = (expected_s(1.0, tau, checkpoint_s, 60, mtbf_s) for tau in (best_s, factor * best_s))

    assert here <= there * 1.002


def test_a_checkpoint_that_takes_longer_than_two_failures_are_apart_comes_once_per_failure():
    assert best_interval_s(250, 100) == 100


HELD = Rates(gpus=16, usd_per_hour=32.0, power_w=16_000.0)


def test_a_run_without_failures_is_its_steps():
    found = training_run(Run(tokens=1e6), step_tokens=300, step_time_s=2.0, held=HELD)

    assert (found.steps, found.time_s, found.goodput, found.failures, found.spent.cost_usd) == (
        3334,
        6668.0,
        1.0,
        0.0,
        pytest.approx(6668 / 3600 * 32),
    )


def test_a_run_with_rare_failures_loses_checkpoints_half_intervals_and_restarts():
    mtbf_s, checkpoint_s, restart_s, interval_s = 1e6, 10.0, 100.0, 2000.0
    run = Run(tokens=1e6, gpu_mtbf=16 * mtbf_s, checkpoint=checkpoint_s, restart=restart_s, interval=interval_s)
    found = training_run(run, step_tokens=1, step_time_s=2.0, held=HELD)
    lost = checkpoint_s / interval_s + (interval_s / 2 + checkpoint_s + restart_s) / mtbf_s  # first order

    assert (found.interval_s, 1 / found.goodput - 1) == (interval_s, pytest.approx(lost, rel=0.01))


def test_failures_come_all_the_time_and_all_of_it_is_paid():
    run = Run(tokens=1e6, gpu_mtbf=16 * HOUR, checkpoint=30.0, restart=300.0)
    found = training_run(run, step_tokens=1, step_time_s=1.0, held=HELD)

    assert (found.failures, found.spent.cost_usd, found.spent.energy_kwh) == (
        pytest.approx(found.time_s / HOUR),
        pytest.approx(found.time_s / HOUR * 32),
        pytest.approx(found.time_s / HOUR * 16),
    )


def test_a_run_shorter_than_an_interval_has_one_checkpoint():
    run = Run(tokens=10, gpu_mtbf=16 * YEAR, checkpoint=30.0, restart=300.0)

    assert training_run(run, step_tokens=1, step_time_s=1.0, held=HELD).interval_s == 10.0


def test_a_report_has_the_run_that_is_asked_for():
    report = simulate(STEP, FAILING).report
    found = report.to_json()
    hours = found["time_to_train_s"] / 3600

    assert (found["run_steps"], found["failures"], found["cost_usd_total"]) == (
        -(-(10**12) // report.tokens),
        pytest.approx(hours * 8 / 50_700),
        pytest.approx(hours * 49.24),
    )


def test_a_run_changes_neither_the_step_nor_the_hash_of_a_step_without_one():
    without, asked = simulate(STEP).report, simulate(STEP, FAILING).report

    assert (
        asked.step_time_s == without.step_time_s,
        asked.scenario_hash == without.scenario_hash,
        "goodput" in without.to_json(),
    ) == (True, False, False)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (["run.tokens=1e12", "run.restart='1 min'"], "run: restart without gpu_mtbf: nothing fails"),
        (["run.tokens=1e12", "run.gpu_mtbf='1 h'"], "run: gpu_mtbf needs checkpoint and restart"),
        (["run.restart='1 min'"], "run.tokens"),
        (["run.tokens=0"], "run.tokens"),
        (
            [*FAILING[:1], "run.gpu_mtbf='60 s'", *FAILING[2:]],
            "one of 8 GPUs fails every 7.5 s, but interval, checkpoint and restart take 660 s: no progress",
        ),
    ],
)
def test_a_run_that_cannot_be_is_refused_in_one_line(changes, line):
    with pytest.raises(UserError) as refused:
        simulate(STEP, changes)

    (fault,) = refused.value.faults
    assert line in fault


def test_words_say_days_goodput_and_money():
    run = Run(tokens=5e6, gpu_mtbf=16 * HOUR, checkpoint=30.0, restart=300.0)
    calm = training_run(Run(tokens=100), step_tokens=1, step_time_s=36.0, held=HELD)

    assert (run_rows(training_run(run, 1, 1.0, HELD)), run_rows(calm)) == (
        [
            ("whole run", "71.8 days for 5 million tokens in 5,000,000 steps"),
            ("goodput", "80.6% of the run's time; 1,722.5 failures, a checkpoint every 7.42 min"),
            ("run's cost", "$55,120, at most 27.6 MWh"),
        ],
        [
            ("whole run", "1 h for 100 tokens in 100 steps; no failures are counted, as there is no run.gpu_mtbf"),
            ("run's cost", "$32.00, at most 16 kWh"),
        ],
    )
