"""Errors that a model states: of rows left out, by bands of sizes, with a spread that holds what it promises."""

import numpy as np
import pytest
from runcast.calibrate.fitting.errors import bands, cross_validate, growth
from runcast.simulator.profile import Z90
from runcast.simulator.profile.forms import cost_class

MEMORY, LINK = cost_class("memory.add"), cost_class("send_recv")
SIZES = 2.0 ** np.arange(12, 31)


def columns(sizes):
    return {"bytes": np.asarray(sizes, float)}


class Watched:
    """Predicts one second for every row, and remembers what it was fitted to."""

    def __init__(self, seconds=1.0):
        self.seconds, self.fitted = seconds, []

    def __call__(self, rows):
        self.fitted.append(rows.tolist())
        return np.full(len(rows), self.seconds)


def test_whole_groups_are_left_out_each_once():
    watched, groups = Watched(), np.array(["a", "b", "a", "c"], object)
    missed, _ = cross_validate(MEMORY, columns([1, 2, 3, 4]), np.ones(4), groups, watched)
    assert watched.fitted == [[False, True, False, True], [True, False, True, True], [True, True, True, False]]
    assert missed.tolist() == [0, 0, 0, 0]


def test_many_groups_are_left_out_in_fifths():
    watched, groups = Watched(), np.array([f"g{i}" for i in range(40)] * 2, object)
    cross_validate(MEMORY, columns(np.arange(80)), np.ones(80), groups, watched)
    left_out = ~np.array(watched.fitted)
    assert (len(left_out), left_out.sum(0).tolist(), (left_out[:, :40] == left_out[:, 40:]).all()) == (
        5,
        [1] * 80,
        True,
    )


def test_of_links_every_second_size_is_left_out_but_the_ends():
    watched = Watched()
    missed, _ = cross_validate(LINK, columns([1, 2, 3, 4, 4, 5, 6]), np.ones(7), np.array(["a"] * 7, object), watched)
    assert watched.fitted == [[True, False, True, False, False, True, True]]
    assert np.isnan(missed).tolist() == watched.fitted[0]


@pytest.mark.parametrize("sizes", [[1], [1, 2], [5, 5, 5]])
def test_too_few_sizes_leave_nothing_out(sizes):
    watched = Watched()
    missed, _ = cross_validate(LINK, columns(sizes), np.ones(len(sizes)), np.array(["a"] * len(sizes), object), watched)
    assert (watched.fitted, np.isnan(missed).all()) == ([], True)


def test_held_out_errors_really_hold_out(made, fit):
    sizes = np.tile(SIZES, 2)
    secret = np.repeat([1.25, 0.8], len(SIZES))
    groups = np.repeat(["slow", "fast"], len(SIZES))
    model = fit("memory.add", made("memory.add", {}, noise=secret, group=groups, bytes=sizes))
    # fitted to both it lies between them; fitted to one it misses the other by 1.25/0.8
    assert (model.held_out.p90, model.fitted.p90) == (pytest.approx(0.56, abs=0.03), pytest.approx(0.25, abs=0.03))


def test_held_out_errors_are_as_wide_as_secret_factors_of_the_groups(made, fit):
    secret = np.exp(np.random.default_rng(0).normal(0, 0.2, 30))
    groups = np.repeat([f"model {i}" for i in range(30)], len(SIZES))
    table = made("memory.add", {}, noise=np.repeat(secret, len(SIZES)), group=groups, bytes=np.tile(SIZES, 30))
    model = fit("memory.add", table)
    assert model.held_out.median == pytest.approx(0.6745 * 0.2, rel=0.35)
    assert model.fitted.median < model.held_out.median


def test_more_nodes_are_the_headline_unless_there_are_two_alone(made, fit):
    sizes, nodes = np.array([(s, n) for s in SIZES for n in (2, 4)]).T
    groups = np.where(nodes == 2, "two", "four")
    noise = np.where(nodes == 2, 1.0, 1.1)
    table = made("all_reduce.network", {}, noise=noise, group=groups, bytes=sizes, gpus=8 * nodes, nodes=nodes)
    only_two = table[table["nodes"] == 2]
    both, alone = fit("all_reduce.network", table), fit("all_reduce.network", only_two)
    assert (both.held_out.rows, alone.held_out.rows, alone.left_out) == (19, 9, "every second size")


@pytest.mark.parametrize("sigma", [0.05, 0.2])
@pytest.mark.parametrize("seed", [0, 1])
def test_nine_of_ten_fresh_rows_lie_in_the_90_percent_interval(sigma, seed, made, fit):
    random = np.random.default_rng(seed)
    measured, fresh = (
        made("send_recv", {}, noise=np.exp(random.normal(0, sigma, 600)), bytes=np.geomspace(1e3, 1e9, 600))
        for _ in range(2)
    )
    asked = fit("send_recv", measured).estimate({"bytes": fresh["bytes"].to_numpy()})
    inside = np.abs(np.log(asked.seconds / fresh["seconds"])) <= Z90 * asked.spread
    assert 0.85 <= inside.mean() <= 0.95


def test_no_spread_is_below_what_repeats_differ_by(made, fit):
    assert {band.spread for band in fit("send_recv", made("send_recv", {}, bytes=SIZES)).bands} == {0.02}


def test_with_too_few_rows_the_spread_is_assumed(made, fit):
    (band,) = fit("send_recv", made("send_recv", {}, bytes=[1e6, 2e6])).bands
    assert (band.size, band.spread, band.rows) == (0.0, 0.15, 0)


def test_bands_begin_at_zero_and_where_sizes_change_their_nature():
    sizes = [2.0**10, 2.0**16 - 1, 2.0**16, 2.0**20, 2.0**26, 2.0**40]
    found = bands(LINK, columns(sizes), np.zeros(6))
    assert [(band.size, band.rows) for band in found] == [(0, 2), (2**16, 1), (2**20, 1), (2**26, 2)]


def test_bands_without_rows_are_left_out_and_the_first_still_begins_at_zero():
    found = bands(LINK, columns([2.0**21, 2.0**27]), np.array([0.1, np.nan]))
    assert [(band.size, band.rows) for band in found] == [(0, 1)]


def test_a_band_of_many_rows_has_a_spread_of_its_own():
    small, large = np.full(40, 2.0**10), np.full(10, 2.0**30)
    missed = np.concatenate([np.full(40, 0.1 * Z90), np.full(10, 0.5)])
    few, many = bands(LINK, columns([*small, *large]), missed)[::-1]
    assert many.spread == pytest.approx(0.1)
    assert few.spread == pytest.approx(np.quantile(missed, 0.9) / Z90)


def test_a_bias_is_part_of_the_spread():
    (band,) = bands(LINK, columns(np.full(50, 1.0)), np.full(50, -0.3))
    assert (band.bias, band.spread) == (pytest.approx(np.expm1(-0.3)), pytest.approx(0.3 / Z90))


# ---- beyond the range


def test_growth_is_larger_where_the_top_misbehaves(made, fit):
    sizes = np.geomspace(1e3, 1e9, 200)
    slow = np.where(sizes > 1e8, 3.0, 1.0)
    tame, wild = (fit("all_gather", made("all_gather", {}, noise=f, bytes=sizes, gpus=8)) for f in (1.0, slow))
    assert wild.growth["bytes"] > 2 * tame.growth["bytes"]


def test_growth_is_what_leaving_the_top_out_was_seen_to_cost():
    sizes = np.repeat([1.0, 16.0], [80, 20])
    found = growth(LINK, columns(sizes) | {"link_bytes_per_s": np.ones(100)}, np.ones(100), 0.1, Watched(np.e))
    assert found["bytes"] == 0.05  # one size is left: nothing to learn from
    sizes[0] = 0.5
    found = growth(LINK, columns(sizes) | {"link_bytes_per_s": np.ones(100)}, np.ones(100), 0.1, Watched(np.e))
    assert found == {"bytes": pytest.approx((1 / Z90 - 0.1) / 4), "link_bytes_per_s": 0.1}


def test_growth_over_ranks_leaves_the_most_of_them_out(made, fit):
    sizes, gpus = np.array([(s, n) for s in SIZES for n in (2, 4, 8)] * 2).T
    slow = np.where(gpus == 8, 2.0, 1.0)
    wild, tame = (fit("all_gather", made("all_gather", {}, noise=f, bytes=sizes, gpus=gpus)) for f in (slow, 1.0))
    assert wild.growth["gpus"] > 2 * tame.growth["gpus"]


@pytest.mark.parametrize("kind", ["send_recv", "memory.add"])
def test_few_samples_have_the_growth_that_is_assumed(kind, made, fit):
    found = fit(kind, made(kind, {}, bytes=SIZES)).growth
    size = 0.05 if kind == "send_recv" else 0.15  # the rate of a long transfer no longer changes
    assert found == {axis: size if axis == "bytes" else 0.1 for axis in cost_class(kind).axes}


def test_growth_stays_within_what_a_profile_may_say(made, fit):
    sizes = np.linspace(100e6, 100.1e6, 200)
    table = made("memory.add", {}, noise=np.where(sizes > 100.08e6, 2.0, 1.0), bytes=sizes)
    assert fit("memory.add", table).growth["bytes"] <= 5
