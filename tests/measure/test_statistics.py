import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure.show import quantile, spread, spread_word

TIMES = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=50)


@given(TIMES, st.floats(0, 1))
def test_quantiles_are_those_of_numpy(samples, share):
    assert quantile(samples, share) == pytest.approx(np.quantile(samples, share))


@pytest.mark.parametrize(
    ("samples", "told"),
    [([1.0], ""), ([95, 100, 105], ""), ([90, 100, 110], ""), ([80, 100, 120], "wide"), ([50, 100, 150], "very wide")],
)
def test_wide_from_a_tenth_and_very_wide_from_a_quarter(samples, told):
    assert spread_word(samples) == told


def test_spread_is_the_middle_half_over_the_median():
    assert spread([80, 90, 100, 110, 120]) == pytest.approx(0.2)
