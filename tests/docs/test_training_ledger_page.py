"""The page of the ledger of training steps is what its predictions say."""

import pytest
from runcast.simulator.answers.validate.steps import read_cases, restore, shipped_table
from runcast.simulator.answers.validate.steps.ledger import known_reason, scores_by_family
from runcast.simulator.base.files import digest, read_json, read_toml

from .training_ledger_page import GOLDEN, PAGE, goals, misses, page, svg, training_ledger

NAMED = {"id": "a", "stack": "nanotron", "pattern": "dp"}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    """Every row predicted 10 % too slow, but for the first, which is not predicted."""
    first, *others = read_cases(shipped_table())
    seconds = ((case.key, 1.1 * (case.seconds or 1)) for case in others)
    lines = [f"{key},{value},{value / 2},{2 * value},10," for key, value in seconds]
    path = tmp_path_factory.mktemp("page") / "predictions.csv"
    head = "id,predicted_s,interval_low_s,interval_high_s,predicted_gib,reason"
    path.write_text("\n".join([head, f"{first.key},,,,,too little", *lines]) + "\n")
    return restore(path)


@pytest.mark.slow
def test_the_page_is_what_is_kept():
    if not (GOLDEN.is_file() and PAGE.is_file()):
        pytest.skip(f"{GOLDEN.name} or {PAGE.name} is not there: make ledger writes them")
    assert PAGE.read_text() == page(restore(GOLDEN))


@pytest.fixture(scope="module")
def written(ledger):
    """The page of it."""
    return page(ledger)


def test_every_part_is_on_the_page(written):
    parts = [line.removeprefix("## ") for line in written.splitlines() if line.startswith("## ")]
    assert parts == [
        "What was scored", "Errors", "Goals, and families that miss them", "Before and after", "Memory",
        "The 50 rows that are furthest off", "Rows that contradict their neighbours",
        "Rows that are not predicted, or not scored",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "1,160 of 1,161 rows predicted, 1,157 scored;",
        "| all | 1157 | 100.0 | 10.0 / 10.0, +10.0 |",
        "- line 2: too little",
    ],
)
def test_numbers_are_on_the_page(written, line):
    assert line in written


def test_goals_are_not_known_before_a_fit(ledger):
    fitted = ledger.table.assign(group_left_out=float("nan"), stack_left_out=float("nan"))
    unfitted = type(ledger)(ledger.path, fitted, ledger.reasons, 0, ledger.cases)
    assert {goal["reached"] for goal in goals(unfitted)} == {"not known"}


def test_a_goal_that_is_missed_says_in_what(ledger):
    fitted = ledger.table.assign(group_left_out=0.05, stack_left_out=-0.2)
    missed = [goal["missed"] for goal in goals(type(ledger)(ledger.path, fitted, ledger.reasons, 0, ledger.cases))]
    assert missed == ["median, bias", "median", "-", "median", "-"]


def test_families_are_held_to_the_goal_of_their_kind(ledger):
    rows = ledger.scored.assign(group_left_out=0.05)
    found = [row["name"] for row in misses(scores_by_family(rows), {}) if row["family"] == "architecture"]
    assert found == ["dense"]


@pytest.mark.parametrize(
    ("key", "known"),
    [("a", "why"), ("b", ""), ("stack=nanotron", "why"), ("stack=nanotron, pattern=tp", ""), ("pattern=dp", "why")],
)
def test_what_is_known_is_of_a_row_or_of_its_families(key, known):
    assert known_reason(NAMED, {"contradicts": {}, "known": {key: "why"}}) == known


def test_a_row_that_contradicts_its_neighbours_says_how():
    assert known_reason(NAMED, {"contradicts": {"a": "1 and 2"}, "known": {}}) == "contradicts its neighbours: 1 and 2"


def test_what_is_known_is_of_rows_and_families_that_exist(ledger):
    ids = {case.key for case in ledger.cases}
    keys = read_toml(shipped_table().with_suffix(".toml"))["known"]
    families = [part.partition("=") for key in keys if "=" in key for part in key.split(", ")]

    unknown = [key for key in keys if "=" not in key and key not in ids]
    assert (unknown, [name for name, _, value in families if value not in set(ledger.table[name])]) == ([], [])


def test_the_figure_has_every_row_and_a_band(ledger):
    figure = training_ledger(ledger.scored, "title", "subtitle")
    band, equal, *stacks = figure.data
    counts = ledger.scored["stack"].value_counts()
    shown = band.name, equal.name, [len(trace.x) for trace in stacks]
    assert shown == ("±25%", "equal", sorted(counts, reverse=True))


@pytest.mark.slow
def test_the_figure_is_an_svg(ledger, chromium):
    assert svg(training_ledger(ledger.scored, "title", "subtitle"))[:4] == b"<svg"


def test_what_was_left_out_was_left_out_of_this_table():
    fit = read_json(shipped_table().with_name("training_fit.json"))
    assert fit["about"]["sha256"] == digest(shipped_table())
