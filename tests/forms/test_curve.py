"""Measured curves: through their points, rising between them, flat below and straight above."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.profile.forms import Curve
from scipy.interpolate import PchipInterpolator

from ..examples import examples

SIZES = 2.0 ** np.arange(10, 20)
TIMES = 1e-5 + SIZES / 1e10

RISING = st.lists(st.tuples(st.floats(1.01, 50), st.floats(1, 50)), min_size=2, max_size=12).map(
    lambda steps: np.cumprod([(1.0, 1e-6), *steps], axis=0)[1:].T
)
"""Sizes that rise and seconds that do not fall."""


@given(RISING)
def test_a_curve_goes_through_its_points(points):
    sizes, seconds = points
    assert Curve(sizes, seconds)(sizes) == pytest.approx(seconds, rel=1e-9)


@examples(50)
@given(RISING)
def test_a_curve_rises_between_its_points_and_beyond(points):
    sizes, seconds = points
    times = Curve(sizes, seconds)(np.geomspace(sizes[0] / 4, sizes[-1] * 4, 3000))
    assert (np.diff(times) >= -1e-12 * times[1:]).all()


@examples(200)
@given(RISING)
def test_between_its_points_a_curve_is_the_pchip_of_scipy(points):
    sizes, seconds = points
    between = np.geomspace(sizes[0], sizes[-1], 100)[1:-1]
    theirs = np.exp(PchipInterpolator(np.log(sizes), np.log(seconds))(np.log(between)))
    assert Curve(sizes, seconds)(between) == pytest.approx(theirs, rel=1e-11)


@examples(50)
@given(st.lists(st.floats(1e-6, 1), min_size=2, max_size=20), st.integers(2, 60))
def test_a_curve_through_any_measurements_rises(seconds, points):
    sizes = 2.0 ** np.arange(len(seconds))
    curve = Curve.fit(sizes, np.array(seconds), points)
    assert (np.diff(curve(np.geomspace(1, 2 * sizes[-1], 1000))) >= -1e-12).all()


def test_measured_points_on_the_grid_are_kept():
    assert Curve.fit(SIZES, TIMES, len(SIZES))(SIZES) == pytest.approx(TIMES)


def test_measured_points_off_the_grid_are_nearly_kept():
    assert Curve.fit(SIZES, TIMES)(SIZES) == pytest.approx(TIMES, rel=0.01)


def test_noise_that_falls_is_flattened_to_its_geometric_mean():
    curve = Curve.fit(np.array([1.0, 2, 4, 8]), np.array([1.0, 4, 1, 8]), 4)
    assert curve.seconds == pytest.approx([1, 2, 2, 8])


def test_where_a_size_repeats_its_median_counts():
    curve = Curve.fit(np.array([1.0, 1, 1, 2]), np.array([1.0, 2, 100, 3]), 2)
    assert curve.seconds == pytest.approx([2, 3])


def test_points_may_come_in_any_order():
    backwards = Curve.fit(SIZES[::-1], TIMES[::-1])
    assert backwards.seconds.tolist() == Curve.fit(SIZES, TIMES).seconds.tolist()


def test_below_the_first_size_a_message_costs_what_that_one_does():
    assert Curve(SIZES, TIMES)(SIZES[0] / np.array([1, 2, 1000])) == pytest.approx(TIMES[0])


def test_beyond_the_last_size_the_rate_is_that_of_the_last_octave():
    last = SIZES[-1]
    beyond = Curve(SIZES, TIMES)(last * np.array([2.0, 8, 1024]))
    assert beyond == pytest.approx(1e-5 + last * np.array([2, 8, 1024]) / 1e10)


def test_what_lies_below_the_last_octave_does_not_count():
    bent = Curve(np.array([1.0, 50, 100]), np.array([1e-3, 1, 3]))
    assert bent(np.array([200.0])) == pytest.approx(3 + 100 * 2 / 50)


def test_a_curve_shorter_than_an_octave_still_has_a_rate():
    assert Curve(np.array([100.0, 120]), np.array([1.0, 2]))(np.array([140.0])) == pytest.approx(3)


def test_a_curve_survives_json():
    curve = Curve.fit(SIZES, TIMES)
    sizes, seconds = json.loads(json.dumps([curve.bytes.tolist(), curve.seconds.tolist()]))
    assert Curve(np.array(sizes), np.array(seconds))(SIZES).tolist() == curve(SIZES).tolist()
