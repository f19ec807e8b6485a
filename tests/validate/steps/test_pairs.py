"""Pairs of rows that differ in one choice alone."""

import pytest
from runcast.simulator.validate.steps import read_cases
from runcast.simulator.validate.steps.pairs import pairs_of, scores_of_pairs


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
