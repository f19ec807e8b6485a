"""Pairs of rows that differ in one choice alone."""

from pathlib import Path

import pandas as pd
import pytest
from runcast.simulator import simulate
from runcast.simulator.answers.validate.steps import read_cases, shipped_table
from runcast.simulator.answers.validate.steps.pairs import pairs_of, scores_of_pairs

STEP = Path(__file__).parents[3] / "data/scenarios/train-llama3-70b-64xh100.toml"


@pytest.fixture
def pairs(written):
    def found(*rows, seconds=()):
        cases = read_cases(written(*rows))
        return pairs_of(cases, dict(zip((case.line for case in cases), seconds, strict=True)))

    return found


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("recompute", {"recompute": "none"}, {"recompute": "selective(norm,act)"}),
        ("sequence parallelism", {"sp": "0"}, {"sp": "1"}),
        ("interleaving", {"vpp": "1"}, {"vpp": "2", "schedule": "1F1B-I"}),
        ("zero bubble", {"schedule": "1F1B"}, {"schedule": "ZB-1p"}),
        ("fp8", {"precision": "bf16"}, {"precision": "mxfp8"}),
        ("overlap of tp", {"overlap_tp": ""}, {"overlap_tp": "async_tp"}),
        ("overlap of tp", {"overlap_tp": "0"}, {"overlap_tp": "1"}),
    ],
)
def test_rows_that_differ_in_one_choice_are_a_pair(pairs, kind, before, after):
    found = pairs(after, before, seconds=[(2.0, 1.5), (1.0, 1.0)])
    assert found[["kind", "before_line", "after_line"]].to_numpy().tolist() == [[kind, 3, 2]]


@pytest.mark.parametrize(
    "other",
    [
        {"sp": "0", "gbs": "64"},
        {"sp": "0", "recompute": "full"},
        {"recompute": ""},
        {"precision": "fp16"},
        {"iter_time_s": "2"},
        {"source": "there", "sp": "0"},
    ],
)
def test_rows_that_differ_in_more_or_in_nothing_known_are_none(pairs, other):
    assert len(pairs({}, other, seconds=[(1.0, 1.0), (2.0, 2.0)])) == 0


@pytest.mark.parametrize(
    ("measured", "predicted", "counts", "sign_right", "share"),
    [(1.2, 1.1, True, True, 0.5), (0.8, 1.1, True, False, -0.5), (1.005, 0.9, False, None, None)],
)
def test_the_size_of_an_effect_is_its_share_of_the_measured_one(pairs, measured, predicted, counts, sign_right, share):
    (row,) = pairs({"sp": "0"}, {}, seconds=[(1.0, 2.0), (measured, 2 * predicted)]).to_dict("records")

    told = row["counts"], row["sign_right"], row["effect_share"]
    assert told == (counts, sign_right, share and pytest.approx(share))


def test_scores_are_of_the_effects_that_count(pairs):
    rows = {"sp": "0"}, {}, {"sp": "0", "gbs": "64"}, {"gbs": "64"}, {"sp": "0", "gbs": "96"}, {"gbs": "96"}
    found = pairs(*rows, seconds=[(1.0, 1.0), (1.2, 1.1), (1.0, 1.0), (0.8, 1.1), (1.0, 1.0), (1.005, 0.9)])

    scores = scores_of_pairs(found).set_index("kind").loc["all"].tolist()

    assert scores == pytest.approx([3, 2, 0.5, 1.0])


SIBLINGS = {  # published steps of equal configuration, the device that came first first: seconds of both
    ("GB300 for GB200", "Llama-2-70B", 72): 0.863, ("GB300 for GB200", "Llama-3-70B", 64): 0.954,
    ("GB300 for GB200", "Llama-3.1-405B", 128): 0.882, ("GB300 for GB200", "Qwen3-30B-A3B", 8): 0.821,
    ("GB300 for GB200", "GPT-OSS-120B", 64): 0.846, ("B300 for B200", "Llama-3-8B", 8): 1.007,
    ("B300 for B200", "GPT-OSS-120B", 64): 0.863,
}  # fmt: skip
"""Later device over earlier one; of several releases the one that gains most."""


@pytest.fixture(scope="module")
def siblings():
    """Of the shipped ledger, with the predictions that are kept beside it."""
    kept = pd.read_csv(shipped_table().with_name("training_predictions.csv")).set_index("id")["predicted_s"]
    cases = [case for case in read_cases(shipped_table()) if case.seconds and case.key in kept.index]
    pairs = pairs_of(cases, {case.line: (case.cells.number("iter_time_s"), kept[case.key]) for case in cases})
    return pairs[pairs["kind"].isin(["GB300 for GB200", "B300 for B200"])]


def test_siblings_are_compared_wherever_both_were_published(siblings):
    measured = siblings.groupby(["kind", "model", "gpus"])["measured_ratio"].min()
    assert measured.to_dict() == {pair: pytest.approx(ratio, abs=1e-3) for pair, ratio in SIBLINGS.items()}


def test_a_sibling_that_was_measured_faster_is_predicted_faster(siblings):
    counted = siblings[siblings["counts"]]
    wrong = counted[~counted["sign_right"].astype(bool)]
    assert wrong[["kind", "model", "before_line", "after_line"]].to_numpy().tolist() == []


@pytest.mark.parametrize(
    ("earlier", "later", "nodes", "compute"),
    [
        ("dgx-b200", "b300-hgx", 8, "bf16"),
        ("dgx-b200", "b300-hgx", 8, "fp8"),
        ("gb200-nvl72", "gb300-nvl72", 16, "bf16"),
        ("gb200-nvl72", "gb300-nvl72", 16, "fp8"),
    ],
)
def test_a_later_sibling_of_equal_peak_is_no_slower(earlier, later, nodes, compute):
    """A dense model, of which no row set the rates of the later device."""

    def step_s(cluster):
        changes = ["level=coarse", f"cluster={cluster}", f"nodes={nodes}", f"precision.compute={compute}"]
        return simulate(STEP, changes).report.step_time_s

    assert step_s(later) <= step_s(earlier) * 1.002
