"""A self-contained HTML page of figures and tables: opens from disk, needs no network, follows light and dark.

How it looks is said in page.html.j2, a template of Jinja2; fit.js fits figures into its width.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..base.errors import UserError
from ..base.files import write_atomic
from ..report.report import Table
from .theme import FONT, TEXT, TEXT_ON_DARK

if TYPE_CHECKING:
    import plotly.graph_objects as go

CONFIG = {
    "responsive": True,
    "displaylogo": False,
    "showSendToCloud": False,  # a report stays where it is
    "modeBarButtonsToRemove": ["select2d", "lasso2d"],
}


class Marked(str):
    """Text of a cell that a reader shall not overlook; its row stands out."""

    __slots__ = ()


class Section(NamedTuple):
    """A part of a page; `facts` are pairs of a name and what it is, figures go by what they show (for those who cannot
    see them).
    """

    heading: str = ""
    text: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    figures: "Mapping[str, go.Figure]" = {}  # noqa: RUF012 - a Mapping, which nobody writes to
    tables: Sequence[Table] = ()


def write_html(path: Path | str, title: str, sections: Sequence[Section]) -> None:
    """Write the page.

    Raises:
        UserError: the file cannot be written.
    """
    write_atomic(path, page(title, sections).encode())


def page(title: str, sections: Sequence[Section]) -> str:
    """The page as text, with links to its sections if there are several.

    Tables keep line breaks in cells and print fractions with one decimal.
    """
    from jinja2 import Environment
    from plotly.offline import get_plotlyjs

    number = count()

    def drawn(figure: "go.Figure") -> str:
        name = f"figure-{next(number)}"
        text: str = figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=CONFIG)
        return text

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.filters |= {"drawn": drawn, "shown": _shown, "is_number": _is_number}
    environment.tests["marked"] = lambda cell: isinstance(cell, Marked)
    template = environment.from_string((files(__package__) / "page.html.j2").read_text(encoding="utf-8"))
    look = {"font": FONT, "ink": TEXT, "ink_on_dark": TEXT_ON_DARK}
    return template.render(title=title, sections=sections, plotly=get_plotlyjs(), fit=fit_script(), **look)


def fit_script() -> str:
    """The script by which plotly's figures fit into the width of a page, in reports and in the dashboard."""
    return (files(__package__) / "fit.js").read_text(encoding="utf-8")


def _is_number(rows: Sequence[Sequence[object]], column: int) -> bool:
    """Whether a column of a table holds numbers."""
    return any(isinstance(row[column], int | float) for row in rows)


def _shown(cell: object) -> str:
    if isinstance(cell, float):
        return f"{round(cell, 1) + 0.0:,.1f}"  # no -0.0
    return f"{cell:,d}" if isinstance(cell, int) else str(cell)


# PNG files of figures, drawn by kaleido in a Chromium that is installed.

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTH_PX, SCALE = 1400, 2


def png(figure: "go.Figure", path: Path | str) -> None:
    """Write the figure as a PNG file on white, without its buttons and without what is shown when one asks for it.

    Raises:
        UserError: no Chromium or no kaleido is installed, or the file cannot be written.
    """
    browser = png_browser()
    import kaleido

    opts = {"format": "png", "width": WIDTH_PX, "height": figure.layout.height, "scale": SCALE}
    white = type(figure)(figure).update_layout(paper_bgcolor="white", plot_bgcolor="white")
    white.layout.updatemenus = ()
    white.data = [trace for trace in white.data if trace.visible != "legendonly"]
    write_atomic(path, kaleido.calc_fig_sync(white, opts=opts, kopts={"path": browser, "mathjax": False}))


def png_browser() -> str:
    """The Chromium that draws PNG files.

    Raises:
        UserError: it is not installed, or kaleido is not.
    """
    if find_spec("kaleido") is None:
        raise UserError("a PNG needs kaleido: pip install 'runcast[png]'")
    named = os.environ.get("BROWSER_PATH", "")
    if found := next(filter(None, map(shutil.which, [named, *BROWSERS] if named else BROWSERS)), None):
        return found
    raise UserError(
        "a PNG needs a Chromium: install Debian package chromium, or set BROWSER_PATH to a Chrome or Chromium"
    )
