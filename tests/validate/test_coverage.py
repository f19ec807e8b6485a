"""How often intervals hold, told as a share or a count, and whether that can be chance."""

import pandas as pd
import pytest
from runcast.simulator.answers.validate.scores import count_held, coverage, verdict, warn


@pytest.mark.parametrize(("held", "rows", "said"), [(0, 0, "-"), (17, 19, "17/19"), (18, 20, "90.0")])
def test_few_rows_are_counted(held, rows, said):
    assert coverage(held, rows) == said


@pytest.mark.parametrize(
    ("held", "rows", "said"),
    [
        (0, 0, ""), (9, 10, ""), (10, 10, ""), (1, 2, ""), (90, 100, ""), (79, 100, ""),
        (98, 100, ""), (60, 100, "over-confident"), (100, 100, "under-confident"), (1118, 1128, "under-confident"),
        (870, 1128, "over-confident"), (0, 2, "over-confident"),
    ],
)  # fmt: skip
def test_what_is_clearly_too_little_or_too_much_is_named(held, rows, said):
    assert verdict(held, rows) == said


def test_the_test_is_the_exact_binomial_one():
    """P(X <= 5 of 10 at 0.8) = 0.0328, P(X <= 6) = 0.1209; P(X >= 99 of 99 at 0.97) = 0.0490, of 98 0.0505."""
    assert [verdict(5, 10), verdict(6, 10), verdict(99, 99), verdict(98, 98)] == [
        "over-confident", "", "under-confident", "",
    ]  # fmt: skip


def test_a_line_names_the_rows():
    assert [*warn("stack a", 5, 10), *warn("stack b", 9, 10)] == [
        "over-confident: stack a: 5 of 10 rows in the 90 % interval"
    ]


def test_rows_of_which_nothing_is_known_do_not_count():
    found = count_held(pd.Series([True, False, None], dtype=object))

    assert (found["held"], found["held_of"], found["interval_coverage"]) == (1, 2, 0.5)
