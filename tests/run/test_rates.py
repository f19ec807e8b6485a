"""Failure rates that are estimates: gamma and lognormal as closed forms have them, and clusters that differ."""

from itertools import takewhile
from math import exp, log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.systems.run.training.failures import Cause, Failures, failures
from runcast.simulator.systems.run.training.rates import (
    Rate,
    draw_rates,
    published_rates,
    shares,
    spread_between_clusters,
    spread_of,
    varies,
)

MTBF_S, SPREAD, MANY = 100.0, 0.5, 4000


def failures_of(*causes):
    """Failures of causes, each with changes to a part that fails every 100 s."""
    return Failures(cause=tuple(Cause(**{"name": "a", "part": "job", "mtbf": MTBF_S} | one) for one in causes))


def factors(of, spread=SPREAD, most=float("inf"), many=MANY):
    """How many times as often each cause fails as stated, shape [repeats, causes]."""
    drawn = (draw_rates(of, i, spread, most) for i in range(1, 1 + many))
    return np.array([[MTBF_S / cause.mtbf for cause in one.cause] for one in drawn])


def count(of, index, until_s, spread=SPREAD):
    """Failures until then in a repeat."""
    drawn = draw_rates(of, index, spread)
    every = failures(
        drawn, {"job": 1}, 0.0, lambda _part, _number: (0,), lambda *of: np.random.default_rng((index, *of))
    )
    return sum(1 for _ in takewhile(lambda one: one.at_s < until_s, every))


@pytest.mark.parametrize("events", [1, 4, 23, 419])
def test_a_counted_rate_has_the_mean_and_variance_of_a_gamma_distribution(events):
    found = factors(failures_of({"events": events}))
    assert (found.mean(), found.var() * events) == pytest.approx((1, 1), rel=0.02)


def test_an_uncounted_rate_is_lognormal_about_the_stated_one():
    found = factors(failures_of({}))
    assert (np.median(found), np.log(found).std(), found.mean()) == pytest.approx((1, 0.5, exp(0.125)), rel=0.01)


@pytest.mark.parametrize(
    ("cause", "mean", "relative_variance"),
    [({"events": 4}, 1.0, 1 / 4), ({}, exp(SPREAD**2 / 2), exp(SPREAD**2) - 1)],
    ids=["gamma", "lognormal"],
)
def test_failures_are_as_dispersed_as_a_mixture_of_poisson_processes(cause, mean, relative_variance):
    """Mean m = E[rate] T; variance m + m^2 Var[rate] / E[rate]^2: for gamma, the negative binomial distribution."""
    counts = np.array([count(failures_of(cause), i, 20 * MTBF_S) for i in range(1, 1501)])
    m = 20 * mean
    assert (counts.mean(), counts.var()) == pytest.approx((m, m + m**2 * relative_variance), rel=0.06)


def test_the_first_repeat_has_the_stated_rates():
    of = failures_of({}, {"events": 3})
    assert draw_rates(of, 0, SPREAD) is of


def test_causes_that_nobody_counted_are_of_one_cluster():
    found = factors(failures_of({}, {"mtbf": MTBF_S}, {"events": 9}), many=50)
    assert (np.ptp(found[:, 0] - found[:, 1]), abs(np.corrcoef(found[:, 1], found[:, 2])[0, 1]) < 0.3) == (0, True)


def test_planned_stops_are_ones_own_choice_unless_they_were_counted():
    found = factors(failures_of({"effect": "planned"}, {"effect": "planned", "events": 4}), many=20)
    assert (set(found[:, 0]), found[:, 1].std() > 0.2) == ({1.0}, True)


@pytest.mark.parametrize(
    ("cause", "is_unsure"),
    [({}, True), ({"effect": "planned"}, False), ({"effect": "planned", "events": 9}, True)],
)
def test_rates_vary_unless_they_are_planned(cause, is_unsure):
    assert varies(failures_of(cause)) == is_unsure


def test_a_rate_is_never_above_the_most():
    assert factors(failures_of({}, {"events": 2}), spread=2.0, most=1.5).max() == 1.5


@given(st.integers(1, 6), st.integers(0, 10_000))
def test_shares_lie_inside_the_unit_cube(dimensions, index):
    assert [0 <= share < 1 for share in shares(index, dimensions)] == [True] * dimensions


@given(st.integers(1, 6))
def test_the_first_share_is_the_middle(dimensions):
    assert set(shares(0, dimensions)) == {0.5}


@pytest.mark.parametrize("repeats", [8, 16])
def test_as_many_repeats_as_usual_show_the_width(repeats):
    """Random draws of eight would be off by a quarter."""
    found = [log(draw_rates(failures_of({}), i, 1.0).cause[0].mtbf) for i in range(repeats)]
    assert np.std(found, ddof=1) == pytest.approx(1, rel=0.1)


def test_clusters_of_one_rate_are_not_apart():
    assert spread_of([Rate(str(i), str(i), 0.005) for i in range(5)]) == 0


def test_many_clusters_show_how_far_two_of_them_are_apart():
    rng = np.random.default_rng(0)
    rates = [Rate(str(i), "", 0.005 * exp(0.6 * rng.normal())) for i in range(2000)]
    assert spread_of(rates) == pytest.approx(0.6 * sqrt(2), rel=0.05)


def test_what_chance_does_to_counts_is_no_difference_of_clusters():
    rng = np.random.default_rng(0)
    counts = rng.poisson(30, 4000)
    assert spread_of([Rate("", "", n / 1e4, n) for n in counts.tolist()]) < 0.1


def test_an_interval_holds_the_failures_of_nine_in_ten_other_clusters():
    """Both clusters are off the mean by s: borrowed rates have the width of few published ones, with Student's t."""
    rng, s, held = np.random.default_rng(1), 0.5, []
    for _ in range(2000):
        known = [Rate("", "", exp(s * z)) for z in rng.normal(size=8)]
        here, width = s * rng.normal(), spread_of(known)
        held.append(abs(here - log(known[0].per_node_day)) < 1.645 * width)
    assert np.mean(held) == pytest.approx(0.9, abs=0.03)


def test_a_published_count_gives_the_rate():
    (found,) = (rate for rate in published_rates() if rate.cluster == "Llama 3 405B")
    assert (found.per_node_day, found.failures) == (419 / (2048 * 54), 419)


def test_every_published_rate_has_a_source_and_is_of_the_usual_size():
    assert [rate.cluster for rate in published_rates() if not (rate.source and 1e-3 < rate.per_node_day < 3e-2)] == []


def test_clusters_of_a_source_can_be_left_out():
    without = [rate for rate in published_rates() if "2410.21680" not in rate.source]
    assert spread_between_clusters("Reliability of ML research clusters (arXiv 2410.21680)") == spread_of(without)
