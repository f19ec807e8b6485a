"""HTML pages and PNG files."""

import re
from importlib import import_module
from pathlib import Path

import pytest
from runcast.simulator import UserError
from runcast.simulator.figures import Section, page, png, write_html
from runcast.simulator.report.report import Table


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
