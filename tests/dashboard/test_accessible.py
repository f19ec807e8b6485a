"""axe finds no serious and no critical fault on any page: light and dark, wide and narrow."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from runcast.dashboard.pages import PAGES

from .conftest import WIDTHS_PX

GRAVE = ("serious", "critical")
ALL_IS_THERE = "!document.querySelector('[data-dash-is-loading]')"


@pytest.mark.slow
@pytest.mark.parametrize("one", PAGES, ids=lambda one: one.path)
def test_a_page_has_no_grave_fault(page, one):
    page.emulate_media(color_scheme="light")
    page.goto(one.path)
    page.wait_for_selector("h1")
    found = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_selector(f'[data-mantine-color-scheme="{scheme}"]')
        for width in WIDTHS_PX:
            page.set_viewport_size({"width": width, "height": 1000})
            found[scheme, width] = faults_of_all(page)

    assert {seen: some for seen, some in found.items() if some} == {}


def test_a_refusal_has_no_grave_fault(page):
    page.goto("/training?base=mine&parallel.tp=3")
    page.wait_for_selector('[role="alert"]')

    assert faults(page) == []


@pytest.mark.slow
@pytest.mark.parametrize("one", PAGES, ids=lambda one: one.path)
def test_a_narrow_page_scrolls_down_only(page, one):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(one.path)
    page.wait_for_selector("h1")
    page.wait_for_load_state("networkidle")

    page.wait_for_function("document.documentElement.scrollWidth <= 390")


FIGURES = (
    "/training?base=mine",
    "/explain?base=tiny-2ranks",
    "/sweeps?sweep=bucket-tiny",
    "/validation",
    "/collective",
)
WIDER = """[...document.querySelectorAll('.wide:not(.timeline):has(.js-plotly-plot)')]
    .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.ariaLabel)"""
CUT = """[...document.querySelectorAll('.wide:not(.timeline) :is(.gtitle, .gtitle-subtitle, .annotation-text)')]
    .filter((one) => one.getBoundingClientRect().right > innerWidth).map((one) => one.textContent)"""
COVERED = """[...document.querySelectorAll('.js-plotly-plot:has(.updatemenu-container)')].filter((drawn) => {
    const at = (of) => drawn.querySelector(of).getBoundingClientRect();
    const said = at('.gtitle-subtitle'), menu = at('.updatemenu-container');
    return menu.top < said.bottom && menu.bottom > said.top && menu.left < said.right;
}).length"""
IS_NARROW = "document.querySelector('.wide:not(.timeline) .js-plotly-plot')?.layout?.meta === 'narrow'"
LOW = """[...document.querySelectorAll('.js-plotly-plot')]
    .map((one) => [one.clientHeight, one._fullLayout._size.h]).filter(([all, inside]) => all < 200 || inside < 50)"""


@pytest.mark.slow
@pytest.mark.parametrize("path", FIGURES)
def test_figures_of_a_narrow_page_are_no_wider_than_it(page, path):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(path)
    page.wait_for_load_state("networkidle")
    page.wait_for_function(ALL_IS_THERE, timeout=90_000)
    page.wait_for_function(IS_NARROW)

    assert (page.evaluate(WIDER), page.evaluate(CUT), page.evaluate(COVERED)) == ([], [], 0)


@pytest.mark.slow
def test_figures_keep_their_height_as_a_page_turns_narrow_and_back(page):
    page.goto("/training?base=mine")
    page.wait_for_selector(".js-plotly-plot .xtick text")
    for width in (390, 1440, 390):
        page.set_viewport_size({"width": width, "height": 1000})
        page.wait_for_function(IS_NARROW if width == 390 else ALL_IS_THERE)
        page.wait_for_timeout(400)  # figures are drawn to their new width

    assert page.evaluate(LOW) == []


def faults_of_all(page):
    """The faults of a page with all that it waits for, which is faint until it is there."""
    page.wait_for_load_state("networkidle")
    page.wait_for_function(ALL_IS_THERE, timeout=90_000)
    return faults(page)


def faults(page):
    """Rules that are broken gravely, and where."""
    found = Axe().run(page).response["violations"]
    return [(one["id"], node["html"][:200]) for one in found if one["impact"] in GRAVE for node in one["nodes"]]
