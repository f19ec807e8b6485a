"""The page that compares: what its address says, which sides differ where, and the numbers of the Python API."""

import os
import shutil
from pathlib import Path

import pytest
from dash import dcc
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect
from runcast.dashboard.forms.typed_form import add_what_if, question_of, text_of
from runcast.dashboard.library import Library
from runcast.dashboard.page import Here
from runcast.dashboard.pages import compare
from runcast.dashboard.question import NAMES, Question, compare_link, parse_sides_query, sides_query
from runcast.dashboard.tables import csv
from runcast.simulator.answers.compare import Operand, open_side
from runcast.simulator.base.errors import UserError
from runcast.simulator.base.units import format_seconds
from runcast.simulator.figures import first_look
from runcast.simulator.predict import simulate
from runcast.simulator.scenario import what_ifs

from .conftest import ZOOMS_ARE_HEARD

FIXTURES = Path(__file__).parents[1] / "traces/fixtures"
TINY = "data/scenarios/tiny-2ranks.toml"
RUN, RANK = "megatron-llama3-70b.log", "megatron-rank0.json.gz"
CHANGES = st.dictionaries(st.from_regex(r"[a-z_]{2,8}\.[a-z_]{1,8}", fullmatch=True), st.integers() | st.booleans())
SIDES = st.lists(st.builds(Question, st.sampled_from(["tiny-2ranks", "mine"]), CHANGES), min_size=1, max_size=4)


@given(SIDES)
def test_sides_come_back_from_their_address(sides):
    assert parse_sides_query(sides_query(sides), "other") == sides


@given(CHANGES)
def test_changes_come_back_from_their_lines(changes):
    question = Question("tiny-2ranks", changes)

    assert question_of("tiny-2ranks", text_of(question)) == question


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("parallel.tp", "expected key=value"),
        ("nodes = 1\nnodes = 2", "is there twice"),
        ("model.config = ../x.json", "expected a name of the catalogue"),
    ],
)
def test_lines_that_are_no_changes_are_refused(lines, fault):
    with pytest.raises(UserError, match=fault):
        question_of("tiny-2ranks", lines)


@pytest.mark.parametrize("name", list(what_ifs()))
def test_a_named_what_if_is_written_as_lines_that_say_it(name):
    written = add_what_if("nodes = 1\ncluster.nic = 100 Gb/s", name)

    assert dict(question_of("tiny-2ranks", written).changes).items() >= dict(what_ifs()[name].changes).items()


@pytest.mark.parametrize("query", ["", "?x=1"])
def test_an_address_that_asks_nothing_is_answered_with_two_sides_of_the_pages_own(query):
    assert compare.questions_of(Here(Library()), query) == list(compare.OWN)


@pytest.mark.parametrize("query", ["?a=base%3Dnone", "?a=base%3Dtiny-2ranks%26cluster%3D../x"])
def test_an_address_that_cannot_be_followed_is_told_above_the_pages_own(query):
    with pytest.raises(UserError, match="address"):
        compare.questions_of(Here(Library()), query)

    assert "cannot be followed" in str(compare.PAGE.draw(Here(Library()), query))


def test_a_question_that_is_sent_from_another_page_is_asked():
    question = Question("train-llama3-8b-8xh100", {"parallel.tp": 4})

    query = compare_link(question).href.removeprefix("/compare")

    assert compare.questions_of(Here(Library()), query) == [question, question]


def test_one_side_is_held_against_itself():
    assert compare.questions_of(Here(Library()), "?a=base%3Dtiny-2ranks") == [Question("tiny-2ranks")] * 2


def test_rows_of_several_pairs_stand_beside_one_another():
    pairs = {"B": [("nodes", "1", "2")], "C": [("tp", "8", "4"), ("nodes", "1", "3")]}

    assert compare.join_rows(pairs, lambda a: (a,)) == [("nodes", "1", "2", "3"), ("tp", "8", "8", "4")]


def test_times_are_those_of_the_python_api():
    here = Here(Library())
    questions = [Question("tiny-2ranks"), Question("tiny-2ranks", {"update.bucket": "2 MiB"})]

    sides = {name: compare.make_side(here, one) for name, one in zip(NAMES, questions, strict=False)}
    drawn = compare.draw_comparison(sides, questions)

    times = [simulate(TINY, changes).report.update_time_s for changes in ((), ("update.bucket=2 MiB",))]
    assert [card.children[1].children[0] for card in drawn[0].children] == [format_seconds(s) for s in times]


@pytest.mark.parametrize(
    ("base", "explained"),
    [("tiny-2ranks", True), ("collective-all-reduce-512xh100", False), ("rl-async-glm-4.5-air-h100", True)],
)
def test_every_side_is_offered_as_a_file_and_explained_where_it_can_be(base, explained):
    here, question = Here(Library()), Question(base)

    sides = {name: compare.make_side(here, question) for name in NAMES[:2]}
    drawn = str(compare.draw_comparison(sides, [question] * 2))

    assert (drawn.count(f"/download/scenario.toml{question.query()}"), "/explain?" in drawn) == (2, explained)


def test_sides_of_different_kinds_are_not_compared():
    here = Here(Library())
    sides = {name: compare.make_side(here, Question(base)) for name, base in
             zip(NAMES, ("tiny-2ranks", "train-llama3-8b-8xh100"), strict=False)}  # fmt: skip

    with pytest.raises(UserError, match="expected two of one kind"):
        compare.draw_comparison(sides, [Question("x")] * 2)


def test_text_that_a_spreadsheet_would_compute_is_text_in_csv():
    assert csv(("name", "x"), [("=1+1", "-5 s")]) == "name,x\r\n'=1+1,-5 s\r\n"


def test_a_change_is_compared_and_told_in_the_address(page):
    page.goto("/compare?a=base%3Dtiny-2ranks&b=base%3Dtiny-2ranks")
    page.get_by_text("A and B take the same time").first.wait_for()

    page.get_by_label("Changes").nth(1).fill("update.bucket = 2 MiB")

    b_s = simulate(TINY, ["update.bucket=2 MiB"]).report.update_time_s
    expect(page.locator(".numbers")).to_contain_text(format_seconds(b_s))
    page.wait_for_url("**/compare?*update.bucket*")


def test_a_fault_is_told_beside_the_changes_and_goes_away(page):
    page.goto("/compare?a=base%3Dtiny-2ranks&b=base%3Dtiny-2ranks")
    page.get_by_text("A and B take the same time").first.wait_for()

    page.get_by_label("Changes").nth(1).fill("update.bucket = -1")
    page.locator(".mantine-Textarea-error").wait_for()
    page.get_by_label("Changes").nth(1).fill("")
    page.get_by_text("A and B take the same time").first.wait_for()

    expect(page.locator(".mantine-Textarea-error")).to_have_count(0)


def test_a_heavy_comparison_is_cancelled(page):
    page.goto("/compare?a=base%3Dtrain-llama3-70b-64xh100%26batch.global%3D32000&b=base%3Dtiny-2ranks")  # half a minute
    page.get_by_role("button", name="Cancel").click(timeout=30_000)
    expect(page.locator("#compare-answer")).to_have_text("Stopped before the end.")


def test_a_side_is_added_and_a_named_what_if_fills_its_lines(page):
    page.goto("/compare?a=base%3Dtiny-2ranks&b=base%3Dtiny-2ranks")
    page.get_by_text("A and B take the same time").first.wait_for()

    page.get_by_role("button", name="Add a side").click()
    page.get_by_label("Add a named what-if").nth(2).click()
    page.get_by_role("option", name="bucket /2").click()
    expect(page.get_by_label("Changes").nth(2)).to_have_value("update.bucket = {times = 0.5}")


def test_the_page_is_as_wide_as_its_window(page, pictured):
    page.goto("/compare?a=base%3Dtiny-2ranks&b=base%3Dtiny-2ranks%26update.bucket%3D2+MiB")
    page.locator("#compare-timelines .js-plotly-plot").first.wait_for()
    pictured("compare")

    page.set_viewport_size({"width": 390, "height": 1000})

    page.wait_for_function("document.documentElement.scrollWidth <= 390")  # figures follow their window


def test_a_zoom_into_one_timeline_tells_ops_of_both_apart_and_leaves_together(page):
    page.goto(
        "/compare?a=base%3Dqwen3-235b-a22b-8xh800%26update.bucket%3D3+GiB&b=base%3Dqwen3-235b-a22b-8xh800%26update.bucket%3D2.5+GiB"
    )
    drawn = page.locator("#compare-timelines .js-plotly-plot")
    expect(drawn).to_have_count(2, timeout=60_000)
    expect(drawn.filter(has_text=TOGETHER)).to_have_count(2)
    page.wait_for_function(ZOOMS_ARE_HEARD)

    page.evaluate(f"Plotly.relayout({FIRST_PLOT}, {{'xaxis.range[0]': 3, 'xaxis.range[1]': 3.2}})")
    expect(drawn.filter(has_text=TOGETHER)).to_have_count(0)
    page.wait_for_function(f"JSON.stringify({RANGES}) === '[[3,3.2],[3,3.2]]'")
    page.evaluate(f"Plotly.relayout({FIRST_PLOT}, {{'xaxis.autorange': true}})")
    expect(drawn.filter(has_text=TOGETHER)).to_have_count(2)

    page.wait_for_function(f"(([a, b]) => a[0] === 0 && a[1] === b[1] && a[1] > 6)({RANGES})")


TOGETHER = "are drawn together"
PLOTS = "[...document.querySelectorAll('#compare-timelines .js-plotly-plot')]"
FIRST_PLOT = f"{PLOTS}[0]"
RANGES = f"{PLOTS}.map((drawn) => drawn.layout.xaxis.range)"


def test_pipelines_begin_with_the_longer_warm_up(with_runs):
    questions = [Question("train-llama3-70b-64xh100", {"batch.global": batch}) for batch in (512, 256)]
    sides = {name: compare.make_side(with_runs, one) for name, one in zip("AB", questions, strict=True)}

    *_, timelines = compare.draw_comparison(sides, questions)

    graphs = [one for one in timelines._traverse() if isinstance(one, dcc.Graph)]
    warm_up = first_look(sides["A"].drawn.timeline, sides["A"].drawn.grid)
    assert [one.figure.layout.xaxis.range for one in graphs] == [pytest.approx(tuple(warm_up))] * 2


# Real runs of the data folder


@pytest.fixture
def with_runs(tmp_path):
    """A data folder with a log, a trace, a folder of traces, and what is none of these."""
    for name in (RUN, RANK):
        shutil.copy(FIXTURES / name, tmp_path)
    (tmp_path / "ranks").mkdir()
    shutil.copy(FIXTURES / RANK, tmp_path / "ranks")
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "report.csv").write_text("point\n0\n")
    (tmp_path / "profile.json").write_text("{}")
    (tmp_path / "broken.json.gz").write_text("not packed")
    (tmp_path / "mine.toml").write_text(Path(TINY).read_text())
    return Here(Library(tmp_path))


def test_logs_and_traces_of_the_folder_are_runs(with_runs):
    found = with_runs.library.runs()

    assert list(found) == [RUN, RANK, "ranks"]


def test_a_run_stands_beside_its_prediction(with_runs):
    questions = compare.questions_of(with_runs, sides_query([Question(RUN), Question("train-llama3-70b-64xh100")]))
    sides = {name: compare.make_side(with_runs, one) for name, one in zip("AB", questions, strict=True)}

    drawn = str(compare.draw_comparison(sides, questions))

    measured = format_seconds(open_side(Operand(FIXTURES / RUN)).total_s)
    assert (f"measured {measured}: the prediction is" in drawn, "Explain A" in drawn) == (True, False)


def test_a_run_is_read_once_until_its_file_changes(with_runs):
    first, again = with_runs.answers.run(RUN), with_runs.answers.run(RUN)
    os.utime(with_runs.library.runs()[RUN], ns=(0, 0))

    changed = with_runs.answers.run(RUN)

    assert (again is first, changed is first) == (True, False)


def test_a_run_cannot_be_changed(with_runs):
    with pytest.raises(UserError) as raised:
        compare.make_side(with_runs, Question(RUN, {"nodes": 2}))

    assert str(raised.value) == f"{RUN}: is a real run; only a scenario can be changed"


@pytest.mark.parametrize("name", ["../megatron.log", "/etc/hosts", "sweep"])
def test_a_run_is_of_the_listing(with_runs, name):
    with pytest.raises(UserError, match="base"):
        with_runs.answers.run(name)
