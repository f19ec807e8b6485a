"""What figures of all pages can: be saved by the browser, and be drawn anew for what is seen of them."""

import pytest
from playwright.sync_api import expect
from runcast.dashboard.zooming import nearer, window_of
from runcast.simulator import simulate
from runcast.simulator.figures import gantt

ZOOM = """Plotly.relayout(document.querySelector("#training-pipeline .js-plotly-plot"),
    {"xaxis.range[0]": 1, "xaxis.range[1]": 1.05})"""


@pytest.mark.parametrize(
    ("moved", "window"),
    [
        (None, None),
        ({"autosize": True}, None),
        ({"font.color": "#fff"}, None),
        ({"xaxis.range[0]": 2.0, "xaxis.range[1]": 3.5}, (2.0, 3.5)),
        ({"xaxis.range": [2, 3]}, (2.0, 3.0)),
        ({"xaxis.range[0]": 3.0, "xaxis.range[1]": 3.0}, None),
        ({"xaxis.range[0]": "x", "xaxis.range[1]": 3.0}, None),
        ({"xaxis.autorange": True}, (0.0, 9.0)),
    ],
)
def test_what_is_seen_after_a_zoom(moved, window):
    assert window_of(moved, 9.0) == window


def test_a_zoom_changes_bars_window_and_subtitle():
    timeline = simulate("data/scenarios/tiny-2ranks.toml").timeline

    operations = nearer(gantt(timeline, window_s=(0.5, 1.0))).to_plotly_json()["operations"]

    assert [(one["location"], one["operation"]) for one in operations] == [
        (["data"], "Assign"),
        (["layout", "xaxis", "range"], "Assign"),
        (["layout", "title", "subtitle", "text"], "Assign"),
    ]


def saved(page, kind: str) -> bytes:
    with page.expect_download() as one:
        page.get_by_role("button", name=f"Where the time goes, by rank as {kind}").click()
    assert one.value.suggested_filename == f"where-the-time-goes-by-rank.{kind.lower()}"
    return one.value.path().read_bytes()


@pytest.mark.parametrize(("kind", "begins"), [("PNG", b"\x89PNG"), ("SVG", b"<svg")])
def test_a_figure_is_saved(page, kind, begins):
    page.goto("/training?base=mine")
    page.locator(".js-plotly-plot .barlayer").nth(1).wait_for(state="attached")

    found = saved(page, kind)

    assert found[: len(begins)] == begins


def test_a_part_of_a_pipeline_is_told_apart(page):
    page.goto("/training?base=train-llama3-70b-64xh100")
    said = page.locator("#training-pipeline .gtitle-subtitle")
    expect(said).to_contain_text("drawn together")
    expect(page.locator(".dash-graph--pending")).to_have_count(0)

    page.evaluate(ZOOM)

    expect(said).not_to_contain_text("drawn together")
