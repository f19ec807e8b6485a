"""The slowest of ranks that differ, against closed forms."""

import numpy as np
import pytest
from runcast.simulator.systems.run.slowest import slowest_of
from runcast.simulator.systems.run.speed import Crew
from runcast.simulator.systems.run.spread import Spread, Throttle

SHARES = np.array([0.001, 0.1, 0.5, 0.9, 0.999, 0.999999])
STEADY, JITTER = Spread(), Spread(kind="gaussian", spread=0.05)


def test_of_two_ranks_with_two_times_each_the_slower_one_counts():
    either = Spread(kind="trace", values=(1, 3))
    found = slowest_of([(either, np.array([1.0, 1.5]))])

    assert (found.mean, found.deviation) == pytest.approx((np.mean([1.5, 3, 4.5, 4.5]), np.std([1.5, 3, 4.5, 4.5])))


@pytest.mark.parametrize("ranks", [1, 2, 1000, 16384])
@pytest.mark.parametrize("kind", ["gaussian", "lognormal", "pareto"])
def test_equal_ranks_are_done_when_each_is(kind, ranks):
    one = Spread(kind=kind, spread=0.3)

    assert slowest_of([(one, np.ones(ranks))]).quantile(SHARES) == pytest.approx(
        one.quantile(SHARES ** (1 / ranks)), rel=5e-4
    )


def test_a_rank_that_is_far_slower_than_the_others_is_waited_for_alone():
    found = slowest_of([(JITTER, np.array([1.0] * 1000 + [5.0]))])

    assert found.quantile(SHARES) == pytest.approx(5 * JITTER.quantile(SHARES), rel=5e-4)


def test_any_hot_rank_makes_all_wait():
    found = slowest_of([(STEADY, np.ones(32))], Throttle(factor=2, share=0.01))

    assert found.mean == pytest.approx(2 - 0.99**32)


def test_ranks_of_several_distributions_are_done_when_each_is():
    late = Spread(kind="lognormal", spread=0.5)
    found = slowest_of([(JITTER, np.ones(1)), (late, np.full(1, 1.1))])
    times = np.array([0.95, 1.0, 1.1, 1.5])
    below = JITTER.share_below(times) * late.share_below(times / 1.1)

    assert found.share_below(times) == pytest.approx(below, rel=1e-2)
    assert found.quantile(below) == pytest.approx(times, rel=5e-4)


@pytest.mark.parametrize("kind", ["gaussian", "lognormal", "pareto"])
def test_the_share_below_a_quantile_is_its_share(kind):
    one = Spread(kind=kind, spread=0.3)

    assert one.share_below(one.quantile(SHARES)) == pytest.approx(SHARES)


@pytest.mark.parametrize(
    "one", [Spread(spread=0.1), Spread(kind="lognormal", spread=0.5), Spread(kind="pareto", spread=0.3)]
)
@pytest.mark.parametrize("ranks", [2, 8, 1024])
def test_the_slowest_of_equal_ranks_is_an_order_statistic(one, ranks):
    """Of a unit, 99.99 % of whose steps are below t if F(t)^n is: beyond the last of a thousand quantiles."""
    unit = Crew(np.ones(ranks), one, each=ranks).units.jitter
    share = np.array([1e-4, 0.5, 0.9999])
    drawn = one.quantile(np.random.default_rng(0).beta(ranks, 1, 1_000_000))

    assert unit.quantile(share) == pytest.approx(one.quantile(share ** (1 / ranks)), rel=1e-12)
    assert unit.share_below(unit.quantile(share)) == pytest.approx(share)
    assert unit.mean == pytest.approx(drawn.mean(), rel=2e-3)
