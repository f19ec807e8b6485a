"""What figures of all pages can: be saved by the browser, and be drawn anew for what is seen of them."""

import pytest
from playwright.sync_api import expect
from runcast.dashboard.zoom import patch, window_of
from runcast.simulator import simulate
from runcast.simulator.figures import gantt

from .conftest import ZOOMS_ARE_HEARD

ZOOM = """Plotly.relayout(document.querySelector("#training-timeline .js-plotly-plot"),
    {"xaxis.range[0]": 1, "xaxis.range[1]": 1.05})"""


@pytest.mark.parametrize(
    ("seen", "window"),
    [
        (None, None),
        ([2.0, 3.5], (2.0, 3.5)),
        ([3, 2], (2.0, 3.0)),
        ([3.0, 3.0], None),
        (["x", 3.0], None),
        ([1.0], None),
        ("some", None),
        ("all", (0.0, 9.0)),
        (["2001-01-01 00:00", "2001-01-02 00:00:01.5"], (0.0, 86_401.5)),
        (["2001-01-01 00:00", "tomorrow"], None),
        ([None, 3.0], None),
    ],
)
def test_what_is_seen_after_a_zoom(seen, window):
    assert window_of(seen, 9.0) == window


MOVES = (
    (None, None),
    ({"autosize": True}, None),
    ({"font.color": "#fff"}, None),
    ({"xaxis.range[0]": 2.5, "xaxis.range[1]": 3.5}, [2.5, 3.5]),
    ({"xaxis.range": [2, 3]}, [2, 3]),
    ({"xaxis.autorange": True}, "all"),
)
"""What plotly tells of a figure that was moved, and what of that is a zoom."""


def test_what_plotly_tells_is_a_zoom_or_nothing(page):
    page.goto("/")

    found = [page.evaluate("(moved) => dash_clientside.zoom.seen(moved)", moved) for moved, _ in MOVES]

    assert found == [seen for _, seen in MOVES]


def test_a_zoom_changes_bars_window_and_subtitle():
    timeline = simulate("data/scenarios/tiny-2ranks.toml").timeline

    operations = patch(gantt(timeline, window_s=(0.5, 1.0))).to_plotly_json()["operations"]

    assert [(one["location"], one["operation"]) for one in operations] == [
        (["data"], "Assign"),
        (["layout", "xaxis", "range"], "Assign"),
        (["layout", "xaxis", "autorange"], "Assign"),
        (["layout", "title", "subtitle", "text"], "Assign"),
    ]


def saved(page, kind: str) -> bytes:
    with page.expect_download() as one:
        page.get_by_role("button", name=f"Where the time goes, by rank as {kind}").click()
    assert one.value.suggested_filename == f"where-the-time-goes-by-rank.{kind.lower()}"
    return one.value.path().read_bytes()


@pytest.mark.parametrize(
    ("kind", "begins"), [("PNG", b"\x89PNG"), pytest.param("SVG", b"<svg", marks=pytest.mark.slow)]
)
def test_a_figure_is_saved(page, kind, begins):
    page.goto("/training?base=mine")
    page.locator(".js-plotly-plot .barlayer").nth(1).wait_for(state="attached")

    found = saved(page, kind)

    assert found[: len(begins)] == begins


TIMELINE = "#training-timeline"
ENDS = f"document.querySelector('{TIMELINE} .js-plotly-plot')._fullLayout.xaxis.range"


def is_drawn(answer):
    """Whether an answer draws the timeline anew."""
    return f"{TIMELINE[1:]}.figure" in (answer.request.post_data or "")


def a_timeline(page):
    """The timeline of a small step, and which seconds of it are seen."""
    page.goto("/training?base=mine")
    page.locator(f"{TIMELINE} .barlayer").wait_for(state="attached")
    page.wait_for_function(ZOOMS_ARE_HEARD)
    return page.locator(f".timeline:has({TIMELINE})"), page.evaluate(ENDS)


def test_the_wheel_zooms_with_ctrl_and_scrolls_the_page_without(page):
    region, (_, end) = a_timeline(page)
    region.locator(".nsewdrag").hover(force=True)
    where = page.evaluate("scrollY")
    page.keyboard.down("Control")
    with page.expect_response(is_drawn):
        page.mouse.wheel(0, -100)
    seen, still = page.evaluate(ENDS), page.evaluate("scrollY")
    page.keyboard.up("Control")
    page.mouse.wheel(0, 50)
    page.wait_for_function(f"scrollY > {where}")

    assert (seen[1] < end, still, page.evaluate(ENDS)) == (True, where, seen)


def test_keys_zoom_and_move_a_timeline_that_was_clicked(page):
    region, (begin, end) = a_timeline(page)
    region.click()
    whole, half = (0, 1), (0.25, 0.75)
    for key, (first, last) in (
        ("+", half), ("ArrowRight", (0.375, 0.875)), ("ArrowLeft", half), ("-", whole), ("+", half), ("0", whole),
    ):  # fmt: skip
        with page.expect_response(is_drawn):
            page.keyboard.press(key)
        ends = [begin + part * (end - begin) for part in (first, last)]
        page.wait_for_function(f"{ENDS}.every((at, i) => Math.abs(at - {ends}[i]) < 1e-6 * {end})")


def test_keys_move_a_timeline_no_farther_than_its_end(page):
    region, (_, end) = a_timeline(page)
    region.click()
    page.keyboard.press("+")
    for _ in range(4):  # by a quarter of what is seen
        page.keyboard.press("ArrowRight")

    assert page.evaluate(ENDS) == pytest.approx([end / 2, end])


def test_a_part_of_a_pipeline_is_told_apart(page):
    page.goto("/training?base=train-llama3-70b-64xh100")
    said = page.locator("#training-timeline .gtitle-subtitle")
    page.wait_for_function(ZOOMS_ARE_HEARD)
    page.locator("#training-timeline .updatemenu-button", has_text="all").click()
    expect(said).to_contain_text("drawn together")
    expect(page.locator(".dash-graph--pending")).to_have_count(0)

    page.evaluate(ZOOM)

    expect(said).not_to_contain_text("drawn together")
