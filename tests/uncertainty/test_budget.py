"""What two predictions share cancels in their difference; what each has alone does not."""

from math import exp, hypot
from pathlib import Path

import numpy as np
import pytest
from runcast.simulator import simulate
from runcast.simulator.predict import TrainPrediction
from runcast.simulator.uncertainty import Budget, Fit, budget_line, difference, ratio_deviation, shipped_fit

STEP = Path(__file__).parents[2] / "data/scenarios/train-llama3-8b-8xh100.toml"
FIT = Fit(np.zeros((0, 0)), {}, {}, frozenset(), alike=0.1)


def budget(own: float = 0.0, common: float = 0.0, shares: dict[str, float] | None = None, **shared: float) -> Budget:
    return Budget(shared, own, common, shares or {})


def test_errors_add_as_squares():
    assert budget(0.3, site=0.4).deviation == pytest.approx(0.5)


def test_an_error_that_both_have_cancels():
    assert ratio_deviation(budget(0.05, site=0.2), budget(0.02, site=0.2), FIT) == pytest.approx(hypot(0.05, 0.02))


def test_an_error_that_one_has_stays():
    assert ratio_deviation(budget(site=0.2), budget(other=0.1), FIT) == pytest.approx(hypot(0.2, 0.1))


def test_an_error_of_both_counts_for_how_much_more_one_has_of_it():
    assert ratio_deviation(budget(gemm=0.2), budget(gemm=0.05), FIT) == pytest.approx(0.15)


def test_configurations_that_spend_their_time_alike_have_their_own_error_in_common():
    twins = [budget(0.5, 0.4, {"gemm": 0.7, "tp": 0.3})] * 2
    assert ratio_deviation(*twins, FIT) == pytest.approx((2 * 0.5**2 - 2 * 0.4**2) ** 0.5)


def test_the_less_alike_the_less_is_common():
    one, other = (budget(0.5, 0.4, {"gemm": share, "tp": 1 - share}) for share in (0.7, 0.6))
    assert ratio_deviation(one, other, FIT) ** 2 == pytest.approx(2 * 0.5**2 - 2 * 0.4**2 * exp(-1))


def test_a_difference_is_an_interval_and_a_probability():
    found = difference(2.0, 1.0, budget(site=0.2), budget(own=0.1, site=0.2), FIT)
    reach = exp(1.6448536 * 0.1)
    assert found == pytest.approx((0.5, 0.5 / reach, 0.5 * reach, 1.0))


def test_without_errors_the_faster_one_is_faster():
    assert [difference(2.0, b_s, budget(), budget(), FIT).faster_probability for b_s in (1.0, 3.0)] == [1.0, 0.0]


def test_a_report_gives_its_budget_back():
    written = budget(0.1, 0.05, {"gemm": 1.0}, site=0.2).to_json()
    assert Budget.from_json(written).to_json() == written


@pytest.mark.parametrize("size", [1e6, -1e6, float("nan"), "nan"])
def test_an_error_that_no_report_has_is_refused(size):
    with pytest.raises(ValueError, match="shared"):
        Budget.from_json({"shared": {"site: one": size}, "own": 0.1})


def predicted(*changes: str) -> TrainPrediction:
    found = simulate(STEP, changes)
    assert isinstance(found, TrainPrediction)
    return found


def test_the_interval_of_a_report_is_that_of_its_budget():
    report = predicted().report
    width = np.log(report.interval_high_s / report.interval_low_s) / 2 / 1.6448536
    assert report.budget.deviation == pytest.approx(width)


def test_plans_of_one_site_differ_by_a_third_less_than_each_may_be_off():
    """They share the errors of their stack, device and site; what a plan has of its own is the rest."""
    one, other = (predicted(*changes).report.budget for changes in ((), ("batch.micro=2",)))
    assert ratio_deviation(one, other, shipped_fit()) < 2 / 3 * one.deviation


def test_stacks_of_one_site_have_no_site_in_common():
    one, other = (predicted(f"stack={stack}").report.budget for stack in ("nemo", "torchtitan"))
    assert ratio_deviation(one, other, shipped_fit()) > one.by_kind()["site"]


def test_the_largest_errors_are_named_first():
    assert budget_line(budget(0.1, site=0.2)) == (
        "90 % interval of about ±37%, the root of the sum of squares of: your site 33%, this configuration 16%"
    )


def test_differences_of_the_ledger_lie_in_their_intervals():
    """Of pairs of rows of one source, with their groups or their source out of the fit."""
    assert all(0.85 <= held <= 0.95 for held in shipped_fit().differences.values())
