"""The page that explains: its address, its numbers, its sliders, its work in the background."""

from contextlib import suppress

import psutil
import pytest
from playwright.sync_api import expect
from runcast.dashboard.answers import Answers, case_of
from runcast.dashboard.library import Library
from runcast.dashboard.page import Here
from runcast.dashboard.pages import explain, explain_levers
from runcast.dashboard.question import Question
from runcast.simulator.answers import explain as api
from runcast.simulator.base.errors import UserError
from runcast.simulator.base.units import format_seconds

TINY = "data/scenarios/tiny-2ranks.toml"


@pytest.fixture(scope="module")
def looks():
    return Answers(Library())


def test_sliders_come_back_from_the_address():
    question = Question("tiny-2ranks", {"update.bucket": "1 MiB"})
    factors = {"cluster.nic": 1.5, "reload.s": 0.5}

    assert explain.read_address(Here(Library()), explain.address(question.query(), factors)) == (question, factors)


@pytest.mark.parametrize("said", ["x", "nan", "inf", "0", "-1", "3", "1e999"])
def test_factors_that_no_slider_has_are_passed_over(said):
    assert explain.read_address(Here(Library()), f"?base=tiny-2ranks&times:cluster.nic={said}")[1] == {}


def test_an_address_that_asks_nothing_asks_the_pages_own():
    assert explain.read_address(Here(Library()), "") == (Question(explain.BASE), {})


@pytest.mark.parametrize(
    "query", ["?base=none", "?base=tiny-2ranks&cluster=../x", "?base=collective-all-reduce-512xh100"]
)
def test_an_address_that_cannot_be_followed_is_told_above_the_pages_own(query):
    with pytest.raises(UserError, match="address"):
        explain.read_address(Here(Library()), query)

    assert "cannot be followed" in str(explain.PAGE.draw(Here(Library()), query))


def test_a_look_is_kept_by_what_is_asked(looks):
    first = looks.look(Question("tiny-2ranks"))

    same = looks.look(Question("tiny-2ranks", {"nodes": 1}))
    other = looks.look(Question("tiny-2ranks", {"update.bucket": "2 MiB"}))

    assert (same is first, other is first) == (True, False)


def test_the_first_number_is_that_of_the_python_api(looks):
    drawn = explain.draw_look(looks.look(Question("tiny-2ranks")))

    first = drawn[0].children.children[0].children
    total_s = api.explain(TINY, quick=True).total_s
    assert (first[0].children, first[1].children[0]) == ("Update time", format_seconds(total_s))


def test_a_step_says_whether_it_fits_and_what_its_interval_is_made_of(looks):
    found = looks.look(Question("train-llama3-8b-8xh100"))
    report = found.case.report
    drawn = str(explain.draw_look(found))

    assert [line for line in (*report.interval_notes, "fits with probability") if line not in drawn] == []


def test_numbers_are_turned_and_unknown_ones_passed_over(looks):
    found = looks.look(Question("tiny-2ranks"))
    name = "init_group.s"

    turned = found.turn({name: 2.0, "none.such": 2.0, "reload.s": 1.0})

    assert turned.total_s == pytest.approx(found.case.total_s + found.knobs[name].now)


def test_a_lone_collective_is_not_explained():
    with pytest.raises(UserError, match="weight_update or train_step or rl_cycle or run"):
        case_of(Library(), Question("collective-all-reduce-512xh100"))


def test_a_question_is_offered_as_files():
    question = Question("tiny-2ranks", {"nodes": 1})

    assert f"/download/scenario.toml{question.query()}" in str(explain.links(question))


@pytest.mark.parametrize("name", ["run-jobs", "rl-async-glm-4.5-air-h100"])
def test_a_run_and_a_cycle_are_explained_by_their_causes(looks, name):
    found = looks.look(Question(name))

    drawn = str(explain_levers.draw_look(found))

    assert [line for line in found.words.sentences if line not in drawn] == []


@pytest.mark.slow
def test_what_helps_a_run_is_named_and_links_to_both_sides_where_the_change_says_all():
    found = api.explain("data/scenarios/run-jobs.toml")

    drawn = str(explain_levers.draw_what_ifs(found, Question("run-jobs")))

    assert [one.name for one in found.best if one.name not in drawn] == []
    assert "%26nodes%3D71" in drawn


def test_what_helps_links_to_both_sides():
    found = api.explain(TINY)

    drawn = str(explain.draw_what_ifs(found, Question("tiny-2ranks")))

    assert [key for one in found.tried for key in one.changes if f"%26{key}%3D" not in drawn] == []


def test_a_slider_is_answered_told_in_the_address_and_set_back(page):
    page.goto("/explain?base=tiny-2ranks")
    slider = page.get_by_role("slider", name="init_group.s, times")
    slider.wait_for(timeout=60_000)

    slider.focus()
    page.keyboard.press("End")
    turned = Answers(Library()).look(Question("tiny-2ranks")).turn({"init_group.s": 2.0})
    expect(page.locator("#explain-turned")).to_contain_text(format_seconds(turned.total_s))
    page.wait_for_url("**/explain?*times:init_group.s=2*")

    page.get_by_role("button", name="Set all back").click()
    page.get_by_text("turned to").wait_for(state="detached")
    page.wait_for_function("() => !location.search.includes('times')")


def test_what_ifs_are_tried_when_asked_for(page):
    page.goto("/explain?base=tiny-2ranks")
    page.get_by_role("slider").first.wait_for(timeout=60_000)

    page.get_by_role("button", name="Simulate again, and try what-ifs").click()
    page.get_by_text("what-ifs were simulated").wait_for(timeout=90_000)

    tried = len(api.explain(TINY).tried)
    expect(page.locator("#explain-help").get_by_text(f"{tried} what-ifs were simulated")).to_have_count(1)


def test_a_run_is_explained_when_asked_for(page):
    page.goto("/explain?base=run-jobs")
    expect(page.locator("#explain-look")).to_contain_text("Computing takes", timeout=60_000)
    expect(page.locator("#explain-weighed")).to_be_hidden()

    page.get_by_role("button", name="Simulate again, and try what-ifs").click()

    tried = len(api.explain("data/scenarios/run-jobs.toml").tried)
    found = page.locator("#explain-help").get_by_text(f"{tried} what-ifs were simulated")
    expect(found).to_have_count(1, timeout=90_000)


def test_weighing_is_cancelled(page):
    before = jobs()
    page.goto("/explain?base=train-deepseek-v3-2048xh800")
    page.locator("#explain-worth-progress", has_text=" of at most ").wait_for(timeout=60_000)
    started = jobs() - before

    page.locator("#explain-worth-cancel").click()
    page.locator("#explain-worth", has_text="Stopped").wait_for()
    ended, lasting = psutil.wait_procs(started, timeout=15)  # weighing takes it longer

    assert (len(ended), lasting) == (1, [])


def test_a_heavy_question_is_cancelled_and_the_next_one_answered(page):
    page.goto("/explain?base=train-llama3-70b-64xh100&batch.global=32000")  # half a minute
    page.get_by_role("button", name="Cancel").first.click(timeout=30_000)
    expect(page.locator("#explain-look")).to_have_text("Stopped before the end.")
    page.get_by_label("Changes").fill("batch.global = 32\nlevel = 'coarse'")

    expect(page.locator("#explain-look")).to_contain_text("Step time", timeout=30_000)


def jobs() -> set[psutil.Process]:
    """Processes in which the server does what takes long."""
    return {one for one in psutil.Process().children(recursive=True) if "multiprocess.spawn" in told(one)}


def told(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def test_a_fault_is_told_beside_the_changes(page):
    page.goto("/explain?base=tiny-2ranks")
    page.locator("#explain-look .numbers").wait_for()

    page.get_by_label("Changes").fill("update.bucket = -1")

    expect(page.locator(".mantine-Textarea-error")).to_contain_text("update.bucket")


def test_the_page_is_as_wide_as_its_window(page, pictured):
    page.goto("/explain?base=tiny-2ranks")
    page.get_by_role("slider").first.wait_for(timeout=60_000)
    pictured("explain")

    page.set_viewport_size({"width": 390, "height": 1000})

    page.wait_for_function("document.documentElement.scrollWidth <= 390")  # figures follow their window
