"""Two sides made by hand: what differs, by how much, and whether that is sure."""

from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.answers.compare import Input, compare
from runcast.simulator.answers.compare.comparison import complete
from runcast.simulator.answers.compare.text import lines, sentences
from runcast.simulator.base.errors import UserError
from runcast.simulator.uncertainty import Budget

from .sides import side

A = side({"gemm": 6.0, "tp": 3.0, "dp": 1.0}, interval=(9.0, 11.0), inputs={"nodes": 1, "batch.micro": 1})
B = side({"gemm": 6.0, "tp": 1.0, "pipeline": 1.5}, interval=(8.0, 9.5), inputs={"nodes": 2, "batch.micro": 1})
PARTS = st.dictionaries(st.sampled_from(["gemm", "tp", "dp", "pipeline", "host"]), st.integers(0, 2**20), min_size=1)


@given(PARTS, PARTS)
def test_differences_of_terms_sum_to_the_difference_of_totals(a, b):
    found = compare(side({"memory": 2.0**-20, **a}), side({"memory": 2.0**-20, **b}))

    assert fsum(term.difference_s for term in found.terms) == pytest.approx(found.difference_s, rel=1e-12, abs=1e-12)


@given(PARTS, PARTS)
def test_the_other_way_round_all_differences_change_their_sign(a, b):
    a, b = side({"memory": 1.0, **a}), side({"memory": 1.0, **b})
    there, back = compare(a, b), compare(b, a)

    assert {term.name: term.difference_s for term in there.terms if not there.is_nothing(term)} == {
        term.name: -term.difference_s for term in back.terms if not there.is_nothing(term)
    }


def test_terms_stand_by_size_and_what_one_side_lacks_is_zero():
    found = compare(A, B)

    assert [(*term, term.difference_s, found.share(term)) for term in found.terms] == [
        ("tp", 3.0, 1.0, -2.0, 2.0 / 1.5),
        ("pipeline", 0.0, 1.5, 1.5, -1.0),
        ("dp", 1.0, 0.0, -1.0, 1.0 / 1.5),
        ("gemm", 6.0, 6.0, 0.0, None),
    ]


def test_most_of_it_is_what_goes_the_way_of_the_total():
    found = compare(A, B)
    named = [term.name for term in found.largest_terms], [term.name for term in found.opposite_terms]

    assert named == (["tp", "dp"], ["pipeline"])


def test_a_side_against_itself_has_no_differences():
    found = compare(A, A)

    assert (found.inputs, found.difference_s, found.ratio, found.largest_terms, found.same) == ((), 0.0, 1.0, (), True)


def test_inputs_of_which_a_side_knows_few_are_compared_where_both_know_them():
    known = side({"gemm": 1.0}, inputs={"nodes": 1, "batch.micro": 1}, all_inputs=True)
    few = side({"gemm": 1.0}, source="report", inputs={"nodes": 2, "gpus": 8})
    whole = side({"gemm": 1.0}, inputs={"nodes": 2, "gpus": 8}, all_inputs=True)

    assert (compare(known, few).inputs, compare(known, whole).inputs) == (
        (Input("nodes", 1, 2),),
        (Input("nodes", 1, 2), Input("batch.micro", 1, None), Input("gpus", None, 8)),
    )


@pytest.mark.parametrize(
    ("a", "b", "within"),
    [((9.0, 11.0), (8.0, 9.5), True), ((9.9, 10.1), (8.0, 9.5), False), (None, (8.0, 10.0), True),
     (None, (8.0, 9.9), False), (None, None, None)],
)  # fmt: skip
def test_intervals_that_overlap(a, b, within):
    one, other = side({"gemm": 10.0}, interval=a), side({"gemm": 9.0}, interval=b)

    assert compare(one, other).within_uncertainty is within


@pytest.mark.parametrize("measured_first", [True, False])
def test_the_error_of_a_prediction_is_signed_whichever_side_it_is(measured_first):
    measured, predicted = side({"gemm": 8.0, "tp": 2.0}, source="run"), side({"gemm": 8.0, "tp": 3.0, "dp": 1.0})
    found = compare(*([measured, predicted] if measured_first else [predicted, measured]))

    assert (found.error, {term.name: found.error_of(term) for term in found.terms}) == (
        pytest.approx(0.2),
        {"tp": 0.5, "dp": None, "gemm": 0.0},
    )


def test_two_predictions_have_no_error():
    assert (compare(A, B).error, compare(A, B).error_of(compare(A, B).terms[0])) == (None, None)


def test_a_side_without_terms_is_compared_by_its_total():
    found = compare(side({}, total_s=9.0, source="run", metrics={"tokens_per_s": 5.0}), A)

    assert (found.terms, list(sentences(found))) == (
        (),
        [
            "predicted 10 s, measured 9 s: the prediction is +11.1% off",
            "A is inside the 90 % interval of the prediction, 9 s to 11 s",
            "A has no terms: only totals and metrics are compared",
        ],
    )


def test_an_error_between_different_questions_is_told():
    found = compare(side({"gemm": 1.0}, source="run", inputs={"gpus": 8}), side({"gemm": 20.0}, inputs={"gpus": 64}))

    assert list(sentences(found)) == [
        "predicted 20 s, measured 1 s: the prediction is 20 times as long",
        "most of it is gemm (+19 s)",
        "the two do not ask the same (gpus): the error is not the prediction's alone",
    ]


def test_two_kinds_do_not_go_together():
    with pytest.raises(UserError, match=r"is a training step, but u\.toml is a weight update: expected two"):
        compare(A, side({"h2d": 1.0}, kind="weight_update", where="u.toml"))


def test_what_terms_leave_of_a_total_is_a_term():
    assert (complete({"gemm": 1.0}, 1.5), complete({"gemm": 1.5 - 1e-12}, 1.5)) == (
        {"gemm": 1.0, "unnamed": 0.5},
        {"gemm": 1.5 - 1e-12},
    )


def test_the_comparison_in_words():
    assert (
        list(lines(compare(A, B)))[2:]
        == """
inputs that differ:
key    A  B
nodes  1  2

term         A      B   B - A  share
tp         3 s    1 s    -2 s   133%
pipeline   0 s  1.5 s  +1.5 s  -100%
dp         1 s    0 s    -1 s    67%
gemm       6 s    6 s     0 s      -
total     10 s  8.5 s  -1.5 s   100%

A takes 10 s, B 8.5 s: 1.5 s less (-15.0%)
most of it is tp (-2 s) and dp (-1 s); pipeline (+1.5 s) the other way
the 90 % intervals, 9 s to 11 s and 8 s to 9.5 s, overlap: within the uncertainty of the predictions
""".splitlines()
    )


def test_the_comparison_as_csv():
    assert compare(A, B).to_csv().splitlines() == [
        "term,a_s,b_s,difference_s,share,error",
        "tp,3.0,1.0,-2.0,1.3333333333333333,",
        "pipeline,0.0,1.5,1.5,-1.0,",
        "dp,1.0,0.0,-1.0,0.6666666666666666,",
        "gemm,6.0,6.0,0.0,,",
        "total,10.0,8.5,-1.5,1.0,",
    ]


def test_sides_of_different_work_are_held_against_each_other_for_as_much_of_it():
    budget = Budget({"software": 0.1}, 0.0, 0.0, {"gemm": 1.0})
    small, large = (
        side({"gemm": seconds}, interval=(0.9 * seconds, 1.1 * seconds), budget=budget, work=tokens)
        for seconds, tokens in ((1.0, 100_000.0), (1.9, 200_000.0))
    )
    found = compare(small, large)

    assert (found.same, found.ratio, found.difference.faster_probability) == (False, pytest.approx(0.95), 1.0)
    assert list(sentences(found)) == [
        "A and B do different work, 100,000 and 200,000 tokens; for a million A takes 10 s, B 9.5 s: 500 ms less "
        "(-5.0%)",
        "B is faster with probability over 99%: B takes between -5.0% and -5.0% "
        "(90 %, without the errors that both share)",
        "in all A takes 1 s, B 1.9 s: 900 ms longer (+90.0%)",
        "most of it is gemm (+900 ms)",
    ]


def test_runs_of_a_given_time_are_compared_by_their_throughput():
    """The time of both is sure, and the throughput is not."""
    day = {"kind": "run", "interval": (86_400.0, 86_400.0)}
    found = compare(
        side({"compute": 86_400.0}, work=2e6, rate_interval=(20.0, 25.0), **day),
        side({"compute": 86_400.0}, work=1e6, rate_interval=(10.0, 12.5), **day),
    )

    assert (found.same, found.ratio, found.within_uncertainty, found.interval_of(found.b)) == (
        False, 2.0, False, (8e4, 1e5),
    )  # fmt: skip


def test_work_that_differs_by_less_than_a_step_of_a_run_is_the_same():
    found = compare(side({"compute": 1.0}, kind="run", work=1e6), side({"compute": 2.0}, kind="run", work=1e6 + 500))

    assert (found.different_work, found.ratio) == (False, 2.0)


def test_what_takes_days_is_told_in_days():
    day_s = 86_400.0
    found = compare(*(side({"compute": days * day_s}, kind="run") for days in (45.89, 22.92)))

    assert next(sentences(found)) == "A takes 45.9 days, B 22.9 days: 23 days less (0.499 times A)"
