"""How likely a plan is the best one: of two as their difference says, of all together 1."""

import pytest
from runcast.simulator.answers.search.chances import probabilities_of_best
from runcast.simulator.uncertainty import Budget, difference

FIRST = Budget({"fit: gemm": 0.1, "site: ": 0.2}, own=0.05, common=0.04, shares={"gemm": 0.8, "tp": 0.2})
SECOND = Budget({"fit: gemm": 0.08, "fit: tp": 0.1, "site: ": 0.2}, own=0.06, common=0.05, shares={"gemm": 1.0})


@pytest.mark.parametrize("ratio", [0.95, 1.0, 1.1])
def test_of_two_plans_it_is_the_probability_that_one_is_faster(ratio):
    faster = difference(1.0, ratio, FIRST, SECOND).faster_probability

    assert probabilities_of_best([1.0, ratio], [FIRST, SECOND]) == pytest.approx([1 - faster, faster], abs=0.025)


def test_errors_that_all_plans_share_leave_the_fastest_the_best():
    shared = Budget({"site: ": 0.3}, own=0.0)

    assert probabilities_of_best([1.0, 1.001, 0.999], [shared] * 3) == [0.0, 0.0, 1.0]


def test_together_they_are_one():
    assert sum(probabilities_of_best([1.0, 1.02, 0.99], [FIRST, SECOND, FIRST])) == pytest.approx(1.0)


def test_of_no_plans_there_is_none():
    assert probabilities_of_best([], []) == []
