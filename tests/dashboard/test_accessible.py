"""axe finds no fault on any page: light and dark, wide and narrow, with answers and with bad news."""

from contextlib import suppress
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import TimeoutError as NotYet
from runcast.dashboard.pages import PAGES

from .conftest import WIDTHS_PX, serving

ALL_IS_THERE = "!document.querySelector('[data-dash-is-loading]')"


@pytest.mark.parametrize("one", PAGES, ids=lambda one: one.path)
def test_a_page_has_no_fault(page, one):
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


BAD_NEWS = {
    "/training?base=mine&parallel.tp=3": '[role="alert"]',
    "/training?level=coarse&recompute.mode=none": ".number.bad",
    "/training?cluster=../mine": '[role="alert"]',
    "/update?update.bucket=1": '[role="alert"]',
}
"""Addresses that are refused or do not fit, and what then stands on the page."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("path", "shown"), BAD_NEWS.items(), ids=BAD_NEWS)
def test_bad_news_have_no_fault(page, scheme, path, shown):
    page.emulate_media(color_scheme=scheme)
    page.goto(path)
    page.wait_for_selector(shown)

    assert faults_of_all(page) == []


@pytest.mark.slow
def test_a_page_without_sweeps_has_no_fault(browser):
    with serving() as address, browser.new_context(base_url=address, color_scheme="dark") as context:
        page = context.new_page()
        page.goto("/sweeps")
        page.wait_for_selector(".answer .mantine-Alert-title")

        assert faults_of_all(page) == []


@pytest.mark.parametrize("one", PAGES, ids=lambda one: one.path)
def test_a_narrow_page_scrolls_down_only(page, one):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(one.path)
    page.wait_for_selector("h1")
    page.wait_for_load_state("networkidle")

    page.wait_for_function("document.documentElement.scrollWidth <= 390")


def test_a_table_below_the_screen_of_a_phone_has_no_fault(page):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/run?base=run-llama3-70b-512xh100")
    page.wait_for_selector(".ag-row", state="attached")
    page.wait_for_timeout(1000)  # its columns get their widths

    assert faults_of_all(page) == []


FIGURES = {
    "/training": "Kernels of a rank",
    "/update": "Memory",
    "/update?base=what-if-scale-from-trainers": "Memory",
    "/cycle": "Timeline of the cycle",
    "/run": "Timeline of the run",
    "/collective": "Timeline of the collective",
    "/cluster": "Network",
    "/explain?base=tiny-2ranks": "Effect of a change by 10 %",
    "/explain?base=kimi-k2-256xh20": "Effect of a change by 10 %",
    "/compare?a=base%3Dtiny-2ranks&b=base%3Dtiny-2ranks%26update.bucket%3D2+MiB": "Timeline of B",
    "/sweeps?sweep=bucket-tiny": "Parallel coordinates",
    "/calibration": "gemm.bf16: errors by size",
    "/calibration?profile=b200-sxm&class=all_reduce": "all_reduce: predicted over size",
    "/calibration?class=grouped_gemm.bf16": "grouped_gemm.bf16: errors by size",
    "/validation": "Coverage of 90 % intervals, by source",
}
"""Pages by what one of their figures shows."""
WIDER = """[...document.querySelectorAll('.wide:not(.timeline):has(.js-plotly-plot)')]
    .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.ariaLabel)"""
COVERED = """[...document.querySelectorAll('.js-plotly-plot:has(.updatemenu-container)')].filter((drawn) => {
    const at = (of) => drawn.querySelector(of).getBoundingClientRect();
    const said = at('.gtitle-subtitle'), menu = at('.updatemenu-container');
    return menu.top < said.bottom && menu.bottom > said.top && menu.left < said.right;
}).map((drawn) => drawn.closest('[aria-label]').ariaLabel)"""
TEXTS = (Path(__file__).parents[1] / "texts.js").read_text()
IS_NARROW = "document.querySelector('.wide:not(.timeline) .js-plotly-plot')?.layout?.meta === 'narrow'"
LOW = """[...document.querySelectorAll('.js-plotly-plot')]
    .map((one) => [one.clientHeight, one._fullLayout._size.h]).filter(([all, inside]) => all < 200 || inside < 50)"""


@pytest.mark.parametrize(("path", "figure"), FIGURES.items(), ids=FIGURES)
def test_texts_of_figures_are_whole_and_apart(page, path, figure):
    page.goto(path)
    page.locator(f'[aria-label="{figure}"] .js-plotly-plot').wait_for(timeout=120_000)

    assert faults_of_figures(page) == []


def test_texts_of_a_search_are_whole_and_apart(page):
    page.goto("/search?base=mine&search:budget=20")
    page.get_by_role("button", name="Search", exact=True).click()
    page.locator('[aria-label="Plans by speed and memory"] .js-plotly-plot').wait_for(timeout=120_000)

    assert faults_of_figures(page) == []


CUT_CHOICES = """[...document.querySelectorAll('.form input[aria-haspopup=listbox]')]
    .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.value)"""


@pytest.mark.parametrize("path", ["/training", "/update", "/cycle", "/run", "/explain?base=rl-async-glm-4.5-air-h100"])
def test_choices_are_read_whole(page, path):
    page.goto(path)
    page.wait_for_load_state("networkidle")
    page.locator(".answer .number").first.wait_for(timeout=60_000)

    assert page.evaluate(CUT_CHOICES) == []


PLACES_PX = (1440, 820, 390)
"""A screen, a tablet, a phone."""


def faults_of_figures(page):
    """What is wrong with figures, and at which width: beyond their place, below buttons, and their texts."""
    faults = f"[...{WIDER}, ...{COVERED}, ...{TEXTS}]"
    page.wait_for_load_state("networkidle")
    page.wait_for_function(ALL_IS_THERE, timeout=90_000)
    found = []
    for width in PLACES_PX:
        page.set_viewport_size({"width": width, "height": 1000})
        page.wait_for_timeout(400)  # figures are drawn to their new width
        with suppress(NotYet):
            page.wait_for_function(f"!{faults}.length", timeout=15_000)
        found += [(width, fault) for fault in page.evaluate(faults)]
    return found


def test_figures_keep_their_height_as_a_page_turns_narrow_and_back(page):
    page.goto("/training?base=mine")
    page.wait_for_selector(".js-plotly-plot .xtick text")
    for width in (390, 1440, 390):
        page.set_viewport_size({"width": width, "height": 1000})
        page.wait_for_function(IS_NARROW if width == 390 else ALL_IS_THERE)
        page.wait_for_timeout(400)  # figures are drawn to their new width

    assert page.evaluate(LOW) == []


def faults_of_all(page):
    """The faults that stay on a page with all that it waits for: what is asked for anew is faint until it is there."""
    for _ in range(3):
        page.wait_for_load_state("networkidle")
        page.wait_for_function(ALL_IS_THERE, timeout=90_000)
        found = faults(page)
        if not found:
            break
    return found


def faults(page):
    """Rules that are broken, and where."""
    found = Axe().run(page).response["violations"]
    return [(one["id"], node["html"][:200]) for one in found for node in one["nodes"]]
