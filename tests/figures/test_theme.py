"""What all figures share: they are read on light pages and on dark ones."""

import pandas as pd
import plotly.graph_objects as go
import pytest
from runcast.simulator.figures.rank_memory import memory_by_owner
from runcast.simulator.figures.theme import FULL, GRID, rgb, style

PAGES = {"light": "#ffffff", "dark": "#242424"}


def luminance(colour: str) -> float:
    """As WCAG has it."""
    parts = [value / 255 for value in rgb(colour)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_the_line_of_a_full_device_is_seen(page):
    assert contrast(FULL, page) >= 3


def test_text_beside_lines_of_memory_has_the_ink_of_the_page():
    table = pd.DataFrame({"time_s": [0.0, 1.0], "weights": [1e9, 2e9], "total": [1e9, 2e9]})
    drawn = memory_by_owner(table, 80 * 2**30, 2.0, 0)

    assert [one.font.color for one in drawn.layout.annotations] == [None, None]


def test_grid_lines_of_both_axes_suit_any_page():
    drawn = style(go.Figure(), "", "", 100)

    assert (drawn.layout.xaxis.gridcolor, drawn.layout.yaxis.gridcolor) == (GRID, GRID)
