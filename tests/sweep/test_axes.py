"""Axes and grids: what is enumerated, in which order, and back."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.answers.sweep.grid import Axis, Grid, find_replaced, spread

SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=5)


def grid(sizes):
    return Grid(tuple(Axis.of(f"k{i}", range(size)) for i, size in enumerate(sizes)))


def test_all_axes_are_crossed_and_the_last_one_varies_fastest():
    crossed = Grid((Axis.of("a", [1, 2]), Axis.of_points([{"b": 3, "c": 5}, {"b": 4, "c": 6}])))

    assert [crossed.tables(i) for i in range(len(crossed))] == [
        ({"a": 1}, {"b": 3, "c": 5}),
        ({"a": 1}, {"b": 4, "c": 6}),
        ({"a": 2}, {"b": 3, "c": 5}),
        ({"a": 2}, {"b": 4, "c": 6}),
    ]


def test_axes_that_meet_on_a_key_are_both_made_one_after_the_other():
    crossed = Grid((Axis.of("a", [1, 2]), Axis.of("a", [{"times": 3}])))

    assert [crossed.tables(i) for i in range(2)] == [({"a": 1}, {"a": {"times": 3}}), ({"a": 2}, {"a": {"times": 3}})]


KEYS = st.sampled_from(["a", "a.b", "a.b.c", "ab", "c"])


@given(st.lists(st.tuples(KEYS, st.sampled_from([1, {"times": 2}])), min_size=1, max_size=4))
def test_no_value_takes_the_place_of_what_an_earlier_axis_changes(axes):
    def replaces(one, other):
        return axes[one][1] == 1 and f"{axes[other][0]}.".startswith(f"{axes[one][0]}.")

    found = find_replaced([Axis.of(key, [value]) for key, value in axes])
    expected = [(one, other) for one in range(len(axes)) for other in range(one) if replaces(one, other)]

    assert (found is not None, found is None or (found[0], found[2]) in expected) == (bool(expected), True)


@given(SIZES)
def test_no_two_numbers_change_the_same(sizes):
    some = grid(sizes)

    assert (len(some), len({some.shown(i) for i in range(len(some))})) == (math.prod(sizes),) * 2


def test_listed_points_leave_columns_empty():
    listed = Grid((Axis.of_points([{"a": 1}, {"b": 2, "a": 3}]),))

    assert (listed.columns, [listed.shown(i) for i in range(2)]) == (("a", "b"), [(1, None), (3, 2)])


def test_a_second_axis_of_what_ifs_has_a_column_of_its_own():
    twice = Grid((Axis(("what_if",), ()), Axis(("what_if",), ())))

    assert twice.columns == ("what_if", "what_if 2")


@pytest.mark.parametrize(
    ("said", "values"),
    [
        ((1, 9, 2), [1, 3, 5, 7, 9]),
        ((1, 10, 4), [1, 5, 9]),
        ((9, 1, -4), [9, 5, 1]),
        ((0, 0.3, 0.1), [0, 0.1, 0.2, 0.3]),
        (("1 GiB", "2 GiB", "512 MiB"), ["1 GiB", "1.5 GiB", "2 GiB"]),
        (("0 GiB", "2 GiB", "1 GiB"), ["0 GiB", 2.0**30, 2.0**31]),
        ((1, 64, None, 4), [1, 4, 16, 64]),
        (("1 GiB", "16 GiB", None, 2), ["1 GiB", "2 GiB", "4 GiB", "8 GiB", "16 GiB"]),
        ((64, 1, None, 0.25), [64, 16, 4, 1]),
        ((1, 4, None, None, 4), [1, 2, 3, 4]),
        ((0, 1, None, None, 3), [0, 0.5, 1]),
    ],
)
def test_a_range_has_these_values(said, values):
    assert spread(*said) == values


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ((1, 9, -2), "never lead from 1 to 9"),
        ((1, 9, 0), "never lead"),
        ((1, 9, None, 1), "never leads from 1"),
        ((0, 9, None, 2), "never leads from 0"),
        (("1 GiB", "4 s", "1 GiB"), "are not of one kind"),
        (("1 GiB", "much", "1 GiB"), "neither a number nor a quantity"),
        ((1, 10**9, 1), "more than 100,000 values"),
        ((1, 2, None, None, 1), "2 or more"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(said, why):
    with pytest.raises(ValueError, match=why):
        spread(*said)
