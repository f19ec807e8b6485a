"""Durations as text: as many digits as tell them apart; bytes without powers of ten."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from runcast.simulator.base.units import digits_apart, format_bytes, format_count, format_long, format_seconds


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(16.041, 3, "16 s"), (16.041, 5, "16.041 s"), (1234.56, 4, "1,235 s"), (1234.56, 5, "1,234.6 s"), (0.0, 5, "0 s")],
)
def test_digits_of_a_duration(value, digits, text):
    assert format_seconds(value, digits) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(512, "512 B"), (1000 * 2**20, "1,000 MiB"), (999.6 * 2**20, "1,000 MiB"), (5.888 * 2**30, "5.89 GiB")],
)
def test_bytes_as_a_reader_sizes_memory(value, text):
    assert format_bytes(value) == text


@pytest.mark.parametrize(("other", "digits"), [(16.04, 3), (20.0, 3), (15.96, 4), (16.03, 4)])
def test_the_fewest_digits_that_tell_two_apart(other, digits):
    assert digits_apart(16.04, [other]) == digits


@given(st.floats(1e-8, 1e7), st.floats(1e-5, 0.5))
@example(20493.0, 1e-5)
def test_what_differs_by_more_than_the_least_looks_so(value, change):
    """As durations are written that may be hours."""
    digits = digits_apart(value, [value * (1 + change)], least=1e-6)

    assert format_long(value, digits) != format_long(value * (1 + change), digits)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (3600.0, "3,600 s"),
        (7200.0, "2 h"),
        (54 * 86_400.0, "54 days"),
        (999.7 * 86_400, "1,000 days"),
        (1.6e8, "1,852 days"),
    ],
)
def test_long_durations_have_three_digits_or_all_before_the_point(seconds, text):
    assert format_long(seconds) == text


@pytest.mark.parametrize(("value", "digits", "text"), [(45.8912 * 86_400, 4, "45.89 days"), (16.041, 5, "16.041 s")])
def test_digits_of_a_long_duration(value, digits, text):
    assert format_long(value, digits) == text


@pytest.mark.parametrize(
    ("count", "what", "text"),
    [(1, "micro-batch", "1 micro-batch"), (0, "rank", "0 ranks"), (2048, "micro-batch", "2,048 micro-batches")],
)
def test_one_of_something_has_no_plural(count, what, text):
    assert format_count(count, what) == text
