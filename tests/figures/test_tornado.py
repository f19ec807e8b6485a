"""Tornado and waterfall: bars are as long as their numbers, in the order given, and each begins where it should."""

import pytest
from runcast.simulator.figures import Section, page, tornado, waterfall

CHANGES = {"time_factor.gemm = 0.99": (-0.15, 0.16), "cluster.nic = 50 GB/s": (-0.004, 0.0)}
SECONDS = {"gemm": 1.25, "tp": 0.5, "pipeline": 0.25}


def test_bars_of_a_tornado_are_shares_of_the_total():
    better, worse = tornado(CHANGES, 2.0, "step").data

    assert (list(better.y), list(better.x)) == (list(CHANGES), [-7.5, -0.2])
    assert list(worse.x) == [8.0, 0.0]
    assert list(worse.text) == ["+8.00 %", ""]


def test_the_axis_of_a_tornado_leaves_room_for_its_text():
    low, high = tornado(CHANGES, 2.0, "step").layout.xaxis.range

    assert (low, high) == (pytest.approx(-8.0 * 1.35), pytest.approx(8.0 * 1.35))


def test_a_tornado_without_bars_is_a_figure():
    assert tornado({}, 1.0, "step").layout.xaxis.range == (-1.35, 1.35)


def test_bars_of_a_waterfall_follow_each_other_to_the_total():
    (bars,) = waterfall(SECONDS, "step").data

    assert list(bars.y) == [*SECONDS, "step"]
    assert list(bars.base) == [0.0, 1.25, 1.75, 0.0]
    assert [start + length for start, length in zip(bars.base, bars.x, strict=True)] == [1.25, 1.75, 2.0, 2.0]


def test_phases_of_an_update_have_colours_of_their_own():
    (bars,) = waterfall({"init": 1.0, "h2d": 1.0, "reload": 1.0, "sync": 1.0, "release": 1.0}, "update").data

    assert len(set(bars.marker.color)) == 6


def test_both_stand_on_a_page():
    figures = {"Tornado": tornado(CHANGES, 2.0, "step"), "Waterfall": waterfall(SECONDS, "step")}
    text = page("why", [Section(figures=figures)])

    assert text.count('<figure aria-label="') == 2
