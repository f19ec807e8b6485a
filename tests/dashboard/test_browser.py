"""Every page in a browser: it opens with one heading, nothing goes wrong in it, and a picture of it is kept."""

import pytest
from runcast.dashboard.pages import PAGES


@pytest.mark.parametrize("one", PAGES, ids=lambda one: one.path)
def test_a_page_opens_with_one_heading_and_is_pictured(page, pictured, one):
    page.goto(one.path)
    page.wait_for_selector("h1")
    page.wait_for_load_state("networkidle")
    files = pictured(one.path.strip("/") or "start")

    assert (page.locator("h1").count(), all(file.stat().st_size > 5_000 for file in files)) == (1, True)


def test_a_dark_page_has_light_text_in_its_figures(page):
    page.emulate_media(color_scheme="dark")
    page.goto("/training?base=mine")
    page.wait_for_selector(".js-plotly-plot .xtick text")
    colour = page.locator(".js-plotly-plot .xtick text").first.evaluate("text => getComputedStyle(text).fill")

    assert min(parts_of(colour)) > 150


def test_buttons_of_a_dark_figure_are_dark(page):
    page.emulate_media(color_scheme="dark")
    page.goto("/training?base=mine")
    button = page.locator(".js-plotly-plot .updatemenu-item-rect").first
    button.wait_for()

    assert max(parts_of(button.evaluate("one => getComputedStyle(one).fill"))) < 100


def parts_of(colour):
    """Red, green and blue of a colour as browsers write it."""
    return [int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]


def test_all_pages_are_reached_by_the_menu(page):
    page.goto("/")
    page.wait_for_selector("h1")

    assert set(page.locator("nav a").evaluate_all("all => all.map(one => one.pathname)")) == {one.path for one in PAGES}


STYLE = "(one, name) => getComputedStyle(one)[name]"


def test_the_answer_is_larger_than_other_numbers_and_notes_are_folded(page):
    page.goto("/training?base=mine")
    page.wait_for_selector(".headline .number")
    sizes = page.locator(".headline dd").evaluate_all(
        "all => all.map(one => parseFloat(getComputedStyle(one).fontSize))"
    )

    opened = page.locator(".answer details").first.evaluate("one => one.open")
    assert (sizes[0] > 1.3 * max(sizes[1:]), opened) == (True, False)


def test_fields_stay_beside_results_that_one_scrolls_to(page):
    page.goto("/training?base=mine")
    page.locator("#training-timeline .barlayer").wait_for(state="attached")
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")

    assert page.get_by_label("Scenario", exact=True).first.bounding_box()["y"] < page.viewport_size["height"]
    assert page.locator("form.form").bounding_box()["y"] > 0


def test_a_select_finds_what_is_typed(page, folder):
    page.goto("/training?base=mine")
    cluster = page.get_by_role("textbox", name="Cluster", exact=True)
    cluster.click()
    cluster.fill("h200-h")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**&cluster=h200-hgx*")

    assert cluster.input_value() == "h200-hgx"
