"""The page of plan search: what an address says of it, what it finds, and its way through a browser."""

import pytest
from playwright.sync_api import expect
from runcast.dashboard import plan_search
from runcast.dashboard.library import Library
from runcast.dashboard.plan_search import SearchRequest, read_address
from runcast.dashboard.question import Question, parse_query
from runcast.simulator.answers.search import Wanted, search_file

ASKED = SearchRequest(
    Question("mine"),
    {"objective": "memory", "for": "torchtitan", "tp": 4, "headroom": 0.05, "schedules": "1f1b", "uneven": True},
)
FEW = {"budget": 10, "pp": 2, "cp": 1}
"""Wishes that few plans meet."""


def test_an_address_holds_question_and_wishes():
    assert read_address(ASKED.query(), "") == ASKED


@pytest.mark.parametrize("query", ["?base=mine&search:tp=four", "?base=mine&search:other=1", "?base=mine&search:tp="])
def test_what_is_no_wish_is_passed_over(query):
    assert read_address(query, "") == SearchRequest(Question("mine"))


@pytest.fixture(scope="module")
def found(folder):
    """What a search of the scenario `mine` finds."""
    return plan_search.run(Library(folder), SearchRequest(Question("mine"), FEW), 1, lambda progress: None)


@pytest.mark.slow
def test_a_search_finds_what_the_command_finds(found, folder):
    wanted = Wanted(fix={"parallel.pp": 2, "parallel.cp": 1})

    assert found.winner == search_file(folder / "mine.toml", budget=10, wanted=wanted, workers=1).winner is not None


def test_the_winner_opens_as_its_own_question(found, folder):
    drawn = str(plan_search.draw(found, SearchRequest(Question("mine"))))
    plan = Question("mine").change(found.rows[found.winner].changes)

    assert f"/training{plan.query()}" in drawn
    assert parse_query(plan.query(), "") == plan
    assert "--tensor-model-parallel-size" in drawn


@pytest.mark.slow
def test_a_search_for_a_tool_gives_its_file(folder):
    asked = SearchRequest(Question("mine"), {"for": "torchtitan", "budget": 10})
    drawn = str(plan_search.draw(plan_search.run(Library(folder), asked, 1, lambda progress: None), asked))

    assert "Configuration of torchtitan" in drawn
    assert "tensor_parallel_degree" in drawn


def test_what_does_not_fit_says_how_many_plans_and_what_else_may_be_tried(folder):
    asked = SearchRequest(Question("mine", {"batch.seq_len": 131_072}), {"budget": 10, "headroom": 0.9})
    found = plan_search.run(Library(folder), asked, 1, lambda progress: None)

    assert "no plan fits" in str(plan_search.draw(found, asked)[0])


def test_the_number_of_plans_is_said_before_a_search(folder):
    drawn = plan_search.count_plans(Library(folder), SearchRequest(Question("mine"), {"tp": 4}))

    assert "Plans" in str(drawn)


def test_a_search_goes_from_its_constraints_to_the_page_of_its_winner(page):
    page.goto("/search?base=mine&search:budget=20")
    page.get_by_label("Only TP").fill("4")
    page.wait_for_url("**&search:tp=4&search:budget=20")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_role("heading", name="Best plan")).to_be_visible(timeout=120_000)
    page.get_by_role("link", name="Open in Training step").click()

    expect(page.get_by_label("Tensor (TP)")).to_have_value("4")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_search_that_is_stopped_shows_what_it_has(page):
    page.goto("/search?base=train-llama3-70b-64xh100&search:tp=4&search:cp=2")
    expect(page.get_by_role("textbox", name="Best by")).to_have_value("throughput")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator("#search-far")).to_contain_text("best so far", timeout=120_000)
    page.get_by_role("button", name="Stop").click()

    expect(page.get_by_text("of those that were simulated")).to_be_visible(timeout=60_000)


def test_stop_ends_a_search_as_soon_as_it_can_be_pressed(page):
    page.goto("/search?base=train-llama3-70b-64xh100&search:tp=4")
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_role("button", name="Stop").click(timeout=60_000)

    expect(page.get_by_text("No plan yet that fits")).to_be_visible(timeout=60_000)
