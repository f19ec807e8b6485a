"""The page of ledgers: numbers are the ledger's own, whatever is chosen; updates are waited for; its address."""

import json
import re

import pandas as pd
import pytest
from playwright.sync_api import expect
from runcast.dashboard import ledgers
from runcast.dashboard.figures.validation import WRONG, coverage_bars, ratios, scatter
from runcast.dashboard.ledgers import (
    LEFT_OUT,
    STEPS,
    UPDATES,
    Ledgers,
    run_rows,
    scores,
    scores_by,
    simulate_rows,
    update_rows,
)
from runcast.dashboard.pages.validation import Shown, draw, records
from runcast.dashboard.question import choices_of
from runcast.simulator.answers.validate import UpdateLedger
from runcast.simulator.answers.validate.executed import read_executed_ledger
from runcast.simulator.answers.validate.runs import in_words
from runcast.simulator.answers.validate.steps import restore, shipped_table
from runcast.simulator.answers.validate.updates import shipped_table as shipped_updates
from runcast.simulator.runner import InProcess


@pytest.fixture(scope="module")
def steps():
    return restore(shipped_table().with_name("training_predictions.csv"))


@pytest.fixture(scope="module")
def both():
    return Ledgers({})


@pytest.fixture
def updates():
    """Two updates: one predicted 10 % too long and inside its interval, one at half of it and outside."""
    table = pd.DataFrame(
        {
            "line": [2, 3], "system": ["a", "b"], "stack": ["s", "s"], "model": ["m", "m"], "method": ["x", "y"],
            "phase": ["update", "update"], "gpus": ["8 to 8"] * 2, "seconds": [1.0, 4.0], "predicted_s": [1.1, 2.0],
            "error": [0.1, -0.5], "interval_low_s": [0.9, 1.5], "interval_high_s": [1.3, 3.0],
            "model_left_out": [0.2, float("nan")], "system_left_out": [0.3, -0.6],
        }
    )  # fmt: skip
    return UpdateLedger(shipped_updates(), table, {}, 0)


@pytest.mark.parametrize("column", LEFT_OUT[STEPS])
def test_scores_are_those_of_the_ledger(steps, both, column):
    (expected,) = steps.summary.query("family == 'all' and errors == @LEFT_OUT[@STEPS][@column]").to_dict("records")
    found = scores(both.rows(STEPS, column))
    told = ("rows", "median_abs_error", "p90_abs_error", "bias", "held", "held_of")
    assert {key: found[key] for key in told} == pytest.approx({key: expected[key] for key in told})


def test_scores_by_source_are_those_of_the_ledger(steps, both):
    expected = steps.summary.query("family == 'source' and errors == 'group left out'").set_index("name")["held"]
    found = scores_by(both.rows(STEPS, "group_left_out"), "source").set_index("name")["held"]
    assert found.to_dict() == expected.to_dict()


def test_the_worst_row_is_the_first_and_says_what_is_known(steps, both):
    first = records(both.rows(STEPS, "error"))[0]
    assert (first["id"], bool(first["known"])) == (steps.worst_first.iloc[0]["id"], True)


def test_seconds_are_those_that_would_have_been_predicted(both):
    rows = both.rows(STEPS, "source_left_out")
    assert (rows["predicted_s"] / rows["measured_s"] - 1).to_numpy() == pytest.approx(rows["error"].to_numpy())


def test_updates_have_the_form_of_steps(updates):
    rows = update_rows(updates, "error")
    assert (list(rows["inside"]), list(rows["source"]), rows["gpu"].iloc[0]) == ([True, False], ["a", "b"], "H800")


def test_intervals_of_updates_are_not_known_with_rows_left_out(updates):
    found = scores(update_rows(updates, "model_left_out"))
    assert (found["rows"], found["held_of"], found["bias"]) == (1, 0, 0.2)


@pytest.fixture(scope="module")
def executed():
    return read_executed_ledger(runner=InProcess())


def test_runs_have_the_form_of_steps_and_amounts_as_text(executed):
    rows = run_rows(executed)

    assert (rows["error"].tolist(), set(rows["inside"])) == (executed.scored["error"].tolist(), {True, False})
    words = {row["id"]: row["predicted"] for row in in_words(executed.scored)}
    assert dict(zip(rows["id"], rows["predicted"], strict=True)) == words


def test_scores_of_runs_are_those_of_the_ledger(executed):
    found, expected = scores(run_rows(executed)), executed.to_json()

    told = ("median_abs_error", "p90_abs_error", "bias", "held", "held_of")
    assert {key: found[key] for key in told} == {key: expected[key] for key in told}


def test_a_run_is_a_point_at_its_ratio_in_the_line_of_its_group(executed):
    rows = run_rows(executed)

    (points,) = ratios(rows, "subject").data

    assert dict(zip(points.y, points.x, strict=True)).keys() == set(rows["subject"])
    assert list(points.x) == pytest.approx((1 + rows["error"]).tolist(), rel=1e-3)


def test_a_page_of_runs_shows_each_row(executed):
    *_, grid = draw(run_rows(executed), Shown("executed", by="subject"))

    assert [row["id"] for row in grid.children[-1].rowData] == run_rows(executed)["id"].tolist()


def test_updates_are_there_once_they_were_simulated(updates):
    cache = {}
    both = Ledgers(cache)
    before = both.rows(UPDATES, "error")
    cache[UPDATES] = updates

    assert (before, list(both.rows(UPDATES, "error")["error"])) == (None, [-0.5, 0.1])


def test_updates_are_simulated_once_for_all(tmp_path, updates, monkeypatch):
    monkeypatch.setitem(ledgers.READERS, UPDATES, lambda runner, watch: watch(1, 2) or updates)
    monkeypatch.setattr(ledgers.os, "nice", lambda by: None)
    heard = []
    for _ in range(2):
        simulate_rows(UPDATES, str(tmp_path), lambda *far: heard.append(far))

    assert heard == [(1, 2)]


@pytest.mark.parametrize(
    "asked", [Shown(), Shown(STEPS, "stack_left_out", "torchtitan", "gpu"), Shown(UPDATES, "error", "a&<b>", "method")]
)
def test_an_address_says_what_is_shown(asked):
    assert Shown.read(choices_of(asked.query())) == asked


@pytest.mark.parametrize("query", ["?kind=__class__", "?errors=model_left_out&by=method", "?" + "x=1&" * 9999])
def test_what_is_not_known_in_an_address_stands_as_at_first(query):
    assert Shown.read(choices_of(query)) == Shown()


def test_every_row_is_a_point_and_groups_are_counted(both):
    rows = both.rows(STEPS, "error")
    wide, narrow, equal, *groups = scatter(rows, "gpu").data
    counts = rows["gpu"].value_counts()
    assert (wide.name, narrow.name, equal.name, [len(group.x) for group in groups]) == (
        "±25%", "±10%", "equal", sorted(counts, reverse=True),
    )  # fmt: skip


def test_names_with_markup_are_text(updates):
    rows = update_rows(updates, "error").assign(model="<b>m", source="<i>s")
    *_, points = scatter(rows, "source").data
    assert (points.name, "&lt;b&gt;m on 8 to 8" in points.hovertext[0]) == ("&lt;i&gt;s (2)", True)


def test_a_count_that_cannot_be_chance_is_marked():
    table = pd.DataFrame({"name": ["a", "b"], "held": [9, 1], "held_of": [10, 9], "verdict": ["", "over-confident"]})
    (bars,) = coverage_bars(table).data
    assert (list(bars.x), [colour == WRONG for colour in bars.marker.color]) == ([0.9, 1 / 9], [False, True])


def test_rows_without_intervals_have_no_bars(updates):
    found = draw(update_rows(updates, "system_left_out"), Shown(UPDATES, "system_left_out"))
    assert len(found) == 2  # the scatter and the table


def test_the_page_has_the_numbers_of_the_ledger(page, both):
    found = scores(both.rows(STEPS, "group_left_out"))
    page.goto("/validation?errors=group_left_out")
    told = [
        f"{found['rows']:,}", f"{found['median_abs_error']:.1%}", f"{found['p90_abs_error']:.1%}",
        f"{found['bias']:+.1%}", f"{found['held'] / found['held_of']:.0%}",
    ]  # fmt: skip

    expect(page.locator(".numbers dd")).to_contain_text(told)


def test_a_source_is_kept_in_the_address_and_narrows_the_rows(page, both):
    page.goto("/validation?source=torchtitan")
    expected = both.rows(STEPS, "error")["source"].eq("torchtitan").sum()

    expect(page.locator(".numbers dd").first).to_have_text(f"{expected}of 1 source")
    expect(page).to_have_url(re.compile("kind=train_step.*source=torchtitan"))


def test_rows_are_taken_along_as_csv(page):
    page.goto("/validation?source=torchtitan")
    page.wait_for_selector(".ag-row")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Rows, the worst first as CSV").click()
    table = pd.read_csv(saved.value.path())

    assert (saved.value.suggested_filename, len(table)) == ("validation.csv", 12)


def test_numbers_are_plain_json(both):
    rows = both.rows(STEPS, "error")
    assert json.loads(json.dumps(records(rows)))[0] == records(rows)[0]


def test_a_simulation_is_cancelled_as_soon_as_cancel_can_be_pressed_and_begins_again(page, hold_back):
    with hold_back("validation-done") as release:
        page.goto("/validation?kind=weight_update")
    cancel = page.locator("#validation-cancel")
    expect(cancel).to_be_disabled()
    release()
    cancel.click(timeout=60_000)
    page.get_by_role("link", name="Simulate them").click()

    expect(page.locator("#validation-far")).to_contain_text("Simulating")
    expect(page.locator("#validation-waiting")).to_be_visible()


def test_a_simulation_is_waited_for_to_its_end(page, pictured):
    """Of the smallest ledger: the others wait in the same way, and draw rows of the same form."""
    page.goto("/validation?kind=executed")

    expect(page.locator(".numbers dt").first).to_have_text("Rows", timeout=300_000)
    expect(page.locator("#validation-waiting")).to_be_hidden()
    pictured("validation-executed")
