"""Distributions of answer lengths: what is drawn is what was asked for, and the same again."""

import numpy as np
import pytest
from runcast.simulator.systems.lengths import LARGEST_TAIL, Lengths


def test_fixed():
    assert Lengths.constant(7).draw(3, seed=0, batch=0) == [7, 7, 7]


@pytest.mark.parametrize(("mean", "p99"), [(1000.0, 1001.0), (3000.0, 14000.0), (100.0, 100 * LARGEST_TAIL)])
def test_a_lognormal_has_the_mean_and_the_percentile_that_were_given(mean, p99):
    lengths = Lengths.lognormal(mean, p99)

    exact = np.exp([lengths.mu + lengths.sigma**2 / 2, lengths.mu + 2.3263478740408408 * lengths.sigma])

    assert exact.tolist() == pytest.approx([mean, p99])


def test_what_is_drawn_has_them_too():
    drawn = Lengths.lognormal(3000, 14000).draw(200_000, seed=1, batch=0)

    assert [np.mean(drawn), np.percentile(drawn, 99)] == pytest.approx([3000, 14000], rel=0.02)


def test_a_histogram_has_its_shares():
    drawn = Lengths.histogram([10, 20], [1, 3]).draw(100_000, seed=0, batch=0)

    assert (set(drawn), drawn.count(20) / 100_000) == ({10, 20}, pytest.approx(0.75, abs=0.01))


def test_longer_answers_are_cut():
    assert max(Lengths.lognormal(3000, 14000, most=5000).draw(1000, seed=0, batch=0)) == 5000


def test_a_batch_is_the_same_for_the_same_seed_and_its_own_otherwise():
    lengths = Lengths.lognormal(3000, 14000)
    first = lengths.draw(10, seed=0, batch=0)

    assert lengths.draw(10, seed=0, batch=0) == first
    assert lengths.draw(10, seed=0, batch=1) != first != lengths.draw(10, seed=1, batch=0)
