"""How wide intervals of runs are: what is in them, what is not, and whether they hold synthetic truth."""

from math import log
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.calibrate.fitting.run_errors import LEAST_SOURCES, model_width, widths
from runcast.simulator import UserError, simulate
from runcast.simulator.profile import PROVENANCE
from runcast.simulator.systems.run.history import History
from runcast.simulator.systems.run.intervals import (
    Range,
    RunErrors,
    quantity_of,
    range_of,
    range_with_failures,
    shipped_run_errors,
)
from runcast.simulator.systems.run.report import goodput_of
from runcast.simulator.systems.run.text import words
from runcast.simulator.systems.run.training.renewals import failures_per_s
from runcast.simulator.systems.train_step.run import best_interval_s
from scipy.stats import binom

from .make import FOUR_WORKERS

FAILING = "sync.workers=1", "step.gpus=32", "checkpoint={stall='60 s', interval='20 min'}"
Z90 = 1.6449


@pytest.fixture
def four(tmp_path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(FOUR_WORKERS)
    return path


@pytest.fixture
def unlinked(tmp_path) -> Path:
    """The same without a word about links."""
    path = tmp_path / "unlinked.toml"
    path.write_text(FOUR_WORKERS.partition("[sync]")[0])
    return path


def failing(path, cause="", *more, resolve=False):
    """The report of a run that fails every three hours, or the run; `cause` are further keys of the cause."""
    changes = f"failures={{cause=[{{name='host', part='node', mtbf='12 h'{cause}}}]}}", "run.steps=50_000"
    found = simulate(path, [*FAILING, *changes, *more])
    return found.resolved if resolve else found.report


def rows(sources=8, each=4, spread=0.05, own=0.0, seed=0, metric="wall_s"):
    """Errors of synthetic sources of a model with this spread."""
    rng = np.random.default_rng(seed)
    size = np.hypot(spread, own) * rng.normal(size=(sources, each))
    names = [f"s{i}" for i in range(sources) for _ in range(each)]
    return pd.DataFrame({"source": names, "metric": metric, "error": np.expm1(size).ravel(), "width": own})


def test_a_rate_that_was_counted_often_is_surer(four):
    unknown, few, many = (failing(four, events).spread for events in ("", ", events=4", ", events=10_000"))
    assert unknown > few > many > 0


def test_what_is_shown_has_the_stated_rates(four):
    assert failing(four).wall_s == failing(four, ", events=4").wall_s == failing(four, "", "run.repeats=1").wall_s


def test_numbers_without_failures_do_not_depend_on_rates(four):
    resolved = simulate(four, ["speed.jitter={kind='lognormal', spread=0.1}"]).resolved
    assert (resolved.has_drawn_rates, resolved.rates(5)) == (False, None)


def test_unsure_rates_widen_goodput_and_failures_alike(four):
    sure, unsure = failing(four, ", events=10_000"), failing(four)
    assert [one.goodput_interval[0] for one in (unsure, sure)] == sorted(
        one.goodput_interval[0] for one in (unsure, sure)
    )
    assert unsure.failures_interval[1] > sure.failures_interval[1]


def test_a_given_time_leaves_steps_open_and_given_steps_the_time(four):
    steps, wall = failing(four), failing(four, "", "run={wall='10 d'}")
    assert (len(set(steps.steps_interval)), len(set(steps.wall_interval_s))) == (1, 2)
    assert (len(set(wall.steps_interval)), len(set(wall.wall_interval_s))) == (2, 1)


def test_neither_the_time_nor_the_steps_exceed_what_is_given_of_both(four):
    """Half of the repeats end with their steps, the others with the time, that of the seed among these or those."""
    found = [failing(four, "", "run.wall='29.5 h'", f"seed={seed}") for seed in (1, 2)]

    assert {one.wall_is_given for one in found} == {False}
    assert [(one.steps_interval[1], one.wall_interval_s[1]) for one in found] == [(50_000, 29.5 * 3600)] * 2


def test_the_cost_lies_where_the_time_does(four):
    report = failing(four)
    low_s, high_s = report.wall_interval_s
    said = report.to_json()

    assert (said["cost_low_usd"], said["cost_high_usd"]) == pytest.approx(
        (said["cost_usd"] * low_s / report.wall_s, said["cost_usd"] * high_s / report.wall_s)
    )


def test_a_million_samples_cost_where_the_throughput_lies(four):
    report = failing(four, "", "run={wall='10 d'}")
    low, high = report.rate_interval
    said = report.to_json()

    assert said["cost_low_usd"] == said["cost_high_usd"] == said["cost_usd"]
    assert (said["cost_low_usd_per_million_tokens"], said["cost_high_usd_per_million_tokens"]) == pytest.approx(
        tuple(said["cost_usd_per_million_tokens"] * report.tokens_per_s / rate for rate in (high, low))
    )


def test_failures_cost_what_a_run_without_them_does_not(four):
    """The job's own start is none of their time."""
    start = "run.start=true", "failures.init='10 min'"
    failed = failing(four, ", events=4", *start)
    without = failing(four, ", events=4", *start, "failures.cause.0.mtbf='1e9 h'")

    assert failed.failures_cost_s == pytest.approx(failed.wall_s - without.wall_s)
    assert failed.failures_cost_usd == pytest.approx(failed.spent.cost_usd - without.spent.cost_usd)


AWAY = "failures.trace=[{at=1, node=0, repair='1000000 s'}]"


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ((AWAY, "elastic.batch=fixed"), 1 / 4),
        ((AWAY, "elastic.batch=shrinks"), 1 / 4),
        ((AWAY, "elastic.mode=shrink", "sync.workers=2", "step.gpus=16"), 1 / 2),
        (("speed.turn=[{at=1, rank=2, factor=3}]",), 2 / 3),
        (("failures.cause=[{name='hot', part='job', mtbf='20 s', effect='slow', factor=3}]",), 2 / 3),
    ],
)
def test_failures_cost_what_steps_take_longer_without_a_node_or_with_a_slow_one(four, changes, share):
    """One of four nodes is missing or slow for the whole run: of as many samples all of them take the rest of it."""
    calm = "step.gradient='1 B'", "checkpoint={stall=0, interval='2 s'}", "run={wall='100000 s', repeats=1}"
    report = simulate(four, [*calm, *changes]).report

    assert report.failures_cost_s == pytest.approx(share * report.wall_s, rel=1e-3)


@pytest.mark.parametrize("update", ["update='synchronous'", "update='stale', bound=0"])
def test_a_worker_of_servers_that_is_away_costs_the_time_of_those_that_wait_for_it(four, update):
    away = "failures.trace=[{at=100, node=0, repair='500 s'}]"
    report = simulate(four, ["sync.mode=parameter_server", f"sync.server={{{update}}}", away]).report

    step_s = report.wall_s / report.steps
    assert report.failures_cost_s == pytest.approx(500, abs=step_s)
    assert report.history.breakdown_s["repair"] == pytest.approx(500, abs=step_s)
    assert (1 - report.goodput) * report.wall_s == pytest.approx(500, abs=step_s)


@pytest.mark.parametrize(
    ("checkpoint", "steps", "by"),
    [
        ("{stall='60 s', interval='29 s'}", 15, "given"),
        ("{stall='60 s'}", 538, "Daly's optimum"),
        ("{stall='1 s', write='201 s', mode='background'}", 1005, "ten times its writing"),
        ("{stall='1 ms'}", 10, "the fewest steps"),
    ],
)
def test_an_interval_between_checkpoints_is_whole_steps_and_says_what_sets_it(four, checkpoint, steps, by):
    report = failing(four, "", f"checkpoint={checkpoint}", "failures.cause.0.mtbf='11.5 h'")
    shown = dict(words(report).rows)["checkpoints"]

    assert (report.checkpoint_interval_s, report.checkpoint_interval_by) == (pytest.approx(2.0 * steps), by)
    assert f"one after {steps:,} steps" in shown


def test_new_parts_that_fail_early_ask_for_checkpoints_more_often(four):
    """Four nodes that fail every twelve hours, once they are old, for 100,000 s."""
    report = failing(four, ", shape=0.5", "checkpoint={stall='60 s'}")
    mtbf_s = 1 / (4 * failures_per_s(12 * 3600.0, 0.5, 1e5))

    found = report.mtbf_s, report.checkpoint_interval_s
    assert found == pytest.approx((mtbf_s, best_interval_s(60, mtbf_s)), rel=2e-3)


def test_a_run_with_drawn_rates_comes_to_an_end(four):
    """Rates are drawn at most so high that two failures fall between two checkpoints."""
    report = failing(four, "", "checkpoint.interval='6 h'", "run.steps=50_000", "run.repeats=16")
    assert report.wall_interval_s[1] < 1e9


def test_events_are_at_least_one(four):
    with pytest.raises(UserError) as error:
        failing(four, ", events=0")
    assert ["failures.cause.0.events" in fault for fault in error.value.faults] == [True]


def test_goodput_is_at_most_one():
    """0.1 + 0.2 is more than 0.3 in floating point."""
    assert goodput_of(History(0.3, 1, 1.0, {"compute": 0.1, "exchange": 0.2}, {})) == 1.0


def test_a_share_is_at_most_one():
    assert Range(0.97, 0.1, most=1.0).ends() == (pytest.approx(0.97 * np.exp(-0.1 * Z90), rel=1e-4), 1.0)


@given(st.floats(1e-3, 1e3), st.floats(0, 2))
def test_an_interval_holds_its_middle(value, width):
    low, high = Range(value, width).ends()
    assert low <= value <= high


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=9), st.floats(0.1, 10))
def test_a_width_does_not_depend_on_units(values, unit):
    assert range_of(unit * value for value in values).width == pytest.approx(range_of(values).width, abs=1e-9)


@pytest.mark.parametrize("values", [[3.0], [0.0, 0.0], []])
def test_what_is_one_number_has_no_width(values):
    assert range_of(values).width == 0


def test_many_repeats_speak_for_themselves():
    """Of 99 the fifth and the last but four have 5 % of new ones beyond them, some of them zero or not."""
    found = [range_of(range(first, first + 99)) for first in (0, 1)]

    assert [one.ends() for one in found] == [pytest.approx((4.0, 94.0)), pytest.approx((5.0, 95.0))]


def test_many_repeats_say_how_likely_a_deadline_holds():
    """Of 999 runs of 1 s, with a failure of as many seconds as there were runs before it."""
    histories = [History(1.0 + i, 1, 1.0, {"compute": 1.0, "repair": float(i)}, {}) for i in range(999)]
    found = range_with_failures([one.wall_s for one in histories], histories, 1)

    assert [found.share_below(seconds) for seconds in (1.0, 10.0, 800.0)] == pytest.approx([0.001, 0.01, 0.8], abs=1e-3)


def test_the_share_of_repeats_without_failures_has_none():
    """Of six of eight runs; the other two have the same failure."""
    histories = [History(1.0 + x, 1, 1.0, {"compute": 1.0, "repair": x}, {}) for x in (0.0,) * 6 + (0.5,) * 2]
    counts = range_of([0.0] * 6 + [3.0] * 2)
    of_time = range_with_failures([one.wall_s for one in histories], histories, 1)

    assert (counts.ends(), counts.share_below(2.0)) == ((0.0, pytest.approx(3.0)), 0.75)
    assert (of_time.ends(), of_time.share_below(1.2)) == (pytest.approx((1.0, 1.5)), 0.75)


@pytest.mark.parametrize("mean", [0.5, 2.0, 20.0])
def test_nine_in_ten_counts_are_in_the_interval_of_few_others(mean):
    """Counts of Poisson, as a report shows them: rounded. Where they are few, more than nine in ten."""
    counts = np.random.default_rng(0).poisson(mean, (2000, 9)).tolist()
    ends = [range_of(map(float, few)).ends() for *few, _ in counts]
    held = np.mean([round(low) <= row[-1] <= round(high) for row, (low, high) in zip(counts, ends, strict=True)])

    assert 0.9 < held < 0.97


def test_a_range_is_students_prediction_of_one_more_value():
    """Of logarithms 0 and 2: 1 with a deviation of sqrt(2), t = 6.314 and sqrt(3 / 2)."""
    _, high = range_of([1.0, np.exp(2)]).ends()

    assert np.log(high) == pytest.approx(1 + 6.3138 * np.sqrt(2) * np.sqrt(1.5), rel=1e-4)


def test_nine_in_ten_new_runs_have_as_many_failures_as_a_report_says(four):
    """Of the failures of five days, 40 on average: a range of eight seeds, and a new one, 300 times."""
    resolved = failing(four, ", events=1_000_000_000", resolve=True)

    def failures(seed: int) -> int:
        return next(i for i, failure in enumerate(resolved.failures(seed)) if failure.at_s > 5 * 86400)

    held = [
        low <= failures(first + 8) <= high
        for first in range(0, 2700, 9)
        for low, high in [range_of(failures(first + i) for i in range(8)).ends()]
    ]

    least, most = binom.interval(0.998, len(held), 0.9)
    assert least <= sum(held) <= most


def test_a_report_lies_about_the_mean_of_its_repeats(four):
    """Whatever the seed's own run is: of eight runs with the same rates, ln(failures) on average."""
    changes = ", events=1_000_000_000", "run={steps=100_000, repeats=8}"
    resolved = failing(four, *changes, resolve=True)
    counts = [resolved.simulate(seed).counts["failures"] for seed in range(8)]
    low, high = failing(four, *changes).failures_interval

    assert np.sqrt(low * high) == pytest.approx(np.exp(np.mean(np.log(counts))))


@pytest.mark.parametrize(
    ("metric", "quantity"),
    [
        ("wall_s / steps", "time"), ("breakdown_s.compute / wall_s", "time"), ("goodput", "time"),
        ("counts.failures", "failures"), ("mtbf_s", "failures"), ("counts.client_bytes", ""),
        ("breakdown_s.checkpoint / wall_s", ""),
    ],
)  # fmt: skip
def test_a_metric_has_the_errors_of_its_kind(metric, quantity):
    assert quantity_of(metric) == quantity


def test_errors_of_a_mode_that_was_never_measured_are_not_known():
    errors = RunErrors({"time": 0.1}, {"here": {"time": 0.2}}, frozenset({"all_reduce"}))
    asked = ("all_reduce", ""), ("all_reduce", "here"), ("gossip", "")
    assert [errors.width("time", mode, source) for mode, source in asked] == [0.1, 0.2, 0.0]


def test_many_sources_show_the_models_width():
    assert model_width(rows(sources=1000, each=1)) == pytest.approx(0.05, rel=0.05)


def test_what_repeats_explain_is_no_error_of_the_model():
    assert model_width(rows(sources=1000, each=1, spread=0.0, own=0.1)) < 0.02


def test_one_source_with_many_rows_does_not_outvote_others():
    few = rows(sources=7, each=1)
    loud = rows(sources=1, each=100, spread=1.0, seed=1).assign(source="loud")
    assert model_width(pd.concat([few, loud])) < 0.2


def test_few_sources_tell_nothing():
    assert [widths(rows(sources=n)) == {} for n in (LEAST_SOURCES - 1, LEAST_SOURCES)] == [True, False]


def test_no_run_beats_its_own_steps_but_for_their_errors():
    """Six days of steps, whatever failures add to them: the walls of a hunt were 6.8 to 4,922 days."""
    histories = [History(6.0 * (1 + x), 1, 1.0, {"compute": 6.0, "repair": 6.0 * x}, {}) for x in (0.1, 1, 5, 800)]
    error = 0.07
    of_time = range_with_failures([one.wall_s for one in histories], histories, 1, error)
    of_goodput = range_with_failures(map(goodput_of, histories), histories, -1, error)

    within = of_time.ends()[0] / 6, 1 / of_goodput.ends()[1], NormalDist().cdf(log(5 / 6) / error)
    least = np.exp(-Z90 * error), np.exp(-Z90 * error), of_time.share_below(5.0)
    assert [one >= bound for one, bound in zip(within, least, strict=True)] == [True, True, True]


@pytest.mark.parametrize("factors", [[1.0], np.arange(1, 1000).tolist(), [0.0, *range(1, 100)]])
@pytest.mark.parametrize("width", [0.01, 0.2])
def test_a_deadline_holds_as_likely_as_the_interval_says(factors, width):
    of_time = Range(100.0, width, factors)
    assert [of_time.share_below(end) for end in of_time.ends()] == pytest.approx([0.05, 0.95], abs=1e-3)


def test_a_time_that_is_sure_holds_its_deadline_or_does_not():
    assert [Range(100.0).share_below(deadline) for deadline in (99.0, 100.0)] == [0.0, 1.0]


def test_a_report_says_how_likely_the_deadline_holds(four):
    found = failing(four, ", events=4", "run.deadline='30 h'")
    assert 0 < found.deadline_probability == found.ranges.wall_s.share_below(30 * 3600.0) < 0.5


STATED = "failures={cause=[{name='host', part='node', mtbf='10000 h'}]}", *FAILING
"""A run of steps of 2 s, with 60 s for a checkpoint after every 20 minutes: a stall of 0.1 s for each step."""


def test_no_run_is_shorter_than_its_stated_steps_and_stalls(four):
    low_s, _ = simulate(four, [*STATED, "run.steps=60_000"]).report.wall_interval_s

    assert low_s == pytest.approx(60_000 * 2.1, rel=1e-3)


def test_no_run_is_shorter_or_more_useful_than_its_stated_pauses_let_it_be(four):
    report = simulate(four, ["pause=[{every=10, time='1 s'}]", "run.steps=60_000"]).report

    assert (report.wall_interval_s[0], report.goodput_interval[1]) == pytest.approx((60_000 * 2.1, 2 / 2.1), rel=1e-3)


def test_no_run_of_a_given_time_has_more_steps_than_fit_into_it(four):
    _, high = simulate(four, [*STATED, "run={wall='10 d'}"]).report.steps_interval

    assert high == pytest.approx(10 * 86_400 / 2.1, rel=1e-3)


def test_goodput_leaves_what_stated_stalls_take(four):
    _, high = simulate(four, [*STATED, "run.steps=60_000"]).report.goodput_interval

    assert high == pytest.approx(2 / 2.1, rel=1e-3)


def test_no_deadline_before_the_least_time_holds():
    assert Range(100.0, 0.2, least=90.0).share_below(89.0) == 0.0


def test_limits_are_no_part_of_what_a_number_is_unsure_by():
    assert Range(100.0, 0.2, least=99.0, most=101.0).spread == pytest.approx(0.2)


@pytest.mark.parametrize("sources", [5, pytest.param(12, marks=pytest.mark.slow)])
def test_intervals_hold_nine_in_ten_of_left_out_sources(sources):
    """The mean over synthetic ledgers; few sources make wider intervals."""
    held = []
    for seed in range(25):
        every = rows(sources, each=1, seed=seed)
        for name in every["source"]:
            reach = Z90 * model_width(every[every["source"] != name])
            (error,) = every.loc[every["source"] == name, "error"]
            held.append(abs(np.log1p(error)) < reach)
    assert np.mean(held) == pytest.approx(0.9, abs=0.04)


# What exchanges leave open that the cluster prices. Four workers of 8 H100, steps of 2 s.

PRICED = "sync={workers=4}", "step.gradient=100 GB", "run.repeats=1"


def priced(path, *changes):
    """The report of such a run, the price of its exchange, and the width that is not the model's own."""
    found = simulate(path, [*PRICED, *changes])
    own = shipped_run_errors().width("time", found.report.mode)
    return found.report, found.resolved.exposed[0], np.sqrt(found.report.spread**2 - own**2)


def test_an_exchange_that_the_profile_prices_is_not_given(unlinked):
    report, exposed, _ = priced(unlinked, "sync.overlap.order=none")
    share = report.history.breakdown_s["exchange"] / report.wall_s

    label = PROVENANCE[exposed.price.provenance]
    assert report.provenance == pytest.approx({"given": 1 - share, label: share})


def test_a_run_is_as_unsure_as_its_exchange_for_its_share_of_the_time(unlinked):
    report, exposed, width = priced(unlinked, "sync.overlap.order=none")
    share = report.history.breakdown_s["exchange"] / report.wall_s

    assert width == pytest.approx(exposed.price.spread * share)


def test_all_of_an_exchange_is_unsure_where_steps_hide_some_of_it(unlinked):
    """After two steps of local SGD an exchange of which one step hides 2 s: what it takes longer is not hidden."""
    report, exposed, width = priced(unlinked, "sync={mode='local', inner=2, delay=1}", "step.gradient=1000 GB")
    rounds = report.steps / 2
    exchange_s = report.history.breakdown_s["exchange"] + 2 * rounds

    assert width == pytest.approx(exposed.price.spread * exchange_s / report.wall_s)


def test_an_exchange_inside_groups_of_local_workers_is_after_each_of_their_steps(unlinked):
    report, exposed, width = priced(unlinked, "sync={mode='local', inner=1000, inside={workers=2}, bandwidth='1 TB/s'}")
    inside_s = 1000 * exposed.seconds

    assert report.history.breakdown_s["compute"] == pytest.approx(1000 * 2)
    label = PROVENANCE[exposed.price.provenance]
    assert report.provenance[label] == pytest.approx(inside_s / report.wall_s)
    assert width == pytest.approx(exposed.price.spread * inside_s / report.wall_s)


def test_stated_links_leave_nothing_open(four):
    assert simulate(four, ["run.repeats=1"]).resolved.exposed == ()
