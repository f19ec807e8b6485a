"""HTML pages and PNG files."""

import re
from contextlib import suppress
from importlib import import_module
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import TimeoutError as NotYet
from runcast.simulator import UserError, simulate
from runcast.simulator.answers.outputs import figures_of
from runcast.simulator.figures import Section, page, png, write_html
from runcast.simulator.figures.profile import Axis, predicted_lines
from runcast.simulator.report.report import Table

TEXTS = (Path(__file__).parents[1] / "texts.js").read_text()


@pytest.fixture
def figure():
    import plotly.graph_objects as go

    return go.Figure(go.Bar(x=[1, 2], y=[3, 4]), layout_height=300)


def test_a_page_is_self_contained(figure, tmp_path: Path) -> None:
    tables = [Table("Phases", ["phase", "s"], [("h2d", 1.5)])]
    write_html(tmp_path / "x.html", "A < B", [Section(figures={"one": figure, "two": figure}, tables=tables)])
    text = (tmp_path / "x.html").read_text()
    assert text.startswith('<!doctype html>\n<html lang="en">')
    assert "<title>A &lt; B</title>" in text
    assert text.count("<h1>A &lt; B</h1>") == 1
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="', text)
    assert text.count("Plotly.newPlot(") == 2
    assert text.count("plotly.js v") == 1
    assert '<td>h2d</td><td class="number">1.5</td>' in text


def test_tables_alone_make_a_page() -> None:
    assert "<caption>x &amp; y</caption>" in page("t", [Section(tables=[Table("x & y", ["a"], [])])])


def test_equal_figures_give_equal_pages(figure) -> None:
    assert page("t", [Section(figures={"one": figure})]) == page("t", [Section(figures={"one": figure})])


@pytest.mark.slow
def test_a_png_is_written(figure, tmp_path: Path, chromium: str) -> None:
    png(figure, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert figure.layout.paper_bgcolor is None


def test_without_a_browser_the_error_says_what_to_install(figure, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("BROWSER_PATH", raising=False)
    with pytest.raises(UserError, match="install Debian package chromium, or set BROWSER_PATH"):
        png(figure, tmp_path / "x.png")


def test_without_kaleido_the_error_says_what_to_install(figure, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(import_module(png.__module__), "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'runcast\[png\]'"):
        png(figure, tmp_path / "x.png")


def lines_of_panels():
    """Three panels whose lines have long names."""
    panels = "all_reduce · nccl 2.29.2", "grouped_gemm.bf16 · trtllm/1.3.0rc20/moe_torch_flow_cutlass", "c"
    lines, sizes = product(panels, range(8)), [2.0**i for i in range(10, 30)]
    rows = [
        (panel, f"copy.{i} · {'engine ' * 4}", x, x * (1 + i), x, 9 * x, x > 1e7) for panel, i in lines for x in sizes
    ]
    table = pd.DataFrame(rows, columns=["panel", "line", "x", "y", "low", "high", "outside"])
    return predicted_lines(table, "Predicted over size", "bands", Axis("bytes", binary=True), Axis("rate", "B/s"))


@pytest.mark.slow
@pytest.mark.parametrize("width_px", [1440, 820, 390])
def test_texts_of_a_report_are_whole_and_apart_at_any_width(width_px, browser, tmp_path: Path) -> None:
    drawn = [figures_of(simulate(name)) for name in ("tiny-train-pp4", "tiny-2ranks", "kimi-k2-256xh20")]
    sections = [Section(figures=some) for some in (*drawn, {"Predicted over size": lines_of_panels()})]
    write_html(tmp_path / "report.html", "Report", sections)
    opened = browser.new_page(viewport={"width": width_px, "height": 1000})
    opened.goto((tmp_path / "report.html").as_uri())
    with suppress(NotYet):
        opened.wait_for_function(f"!{TEXTS}.length", timeout=15_000)
    wide = opened.evaluate(
        "[...document.querySelectorAll('figure')].filter((one) => one.scrollWidth > one.clientWidth).length"
    )

    assert (opened.evaluate(TEXTS), wide) == ([], 0)
    opened.close()
