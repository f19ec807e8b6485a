"""A self-contained HTML page of figures and tables: opens from disk, needs no network, follows light and dark."""

import os
import shutil
from collections.abc import Iterable, Mapping
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

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


def html(path: Path | str, title: str, figures: Mapping[str, "go.Figure"], tables: Iterable[Table] = ()) -> None:
    """Write the page, with figures by what they show (for those who cannot see them).

    Raises:
        UserError: the file cannot be written.
    """
    write_atomic(path, page(title, figures, tables).encode())


def page(title: str, figures: Mapping[str, "go.Figure"], tables: Iterable[Table] = ()) -> str:
    """The page as text."""
    from plotly.offline import get_plotlyjs

    parts = [
        f"<h1>{escape(title)}</h1>",
        *(figure_html(i, alt, figure) for i, (alt, figure) in enumerate(figures.items())),
        *(_table(table) for table in tables),
    ]
    body = "\n".join(parts)
    return PAGE.format(title=escape(title), style=STYLE, plotly=get_plotlyjs(), body=body, script=SCRIPT)


def figure_html(number: int, alt: str, figure: "go.Figure") -> str:
    """A figure as a part of a page, the number making its id unique there."""
    drawn = figure.to_html(full_html=False, include_plotlyjs=False, div_id=f"figure-{number}", config=CONFIG)
    return f'<figure aria-label="{escape(alt)}">{drawn}</figure>'


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(header)}</th>' for header in table.headers)
    rows = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    return (
        f"<table><caption>{escape(table.caption)}</caption>"
        f"<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table>"
    )


def _cell(value: object) -> str:
    number = ' class="number"' if isinstance(value, int | float) else ""
    return f"<td{number}>{escape(f'{value:.4g}' if isinstance(value, float) else str(value))}</td>"


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
<script>{plotly}</script>
</head>
<body>
<main>
{body}
</main>
<script>{script}</script>
</body>
</html>
"""

STYLE = f"""
:root {{ color-scheme: light dark; --text: {TEXT}; --page: #ffffff; --line: #d0d7de; }}
@media (prefers-color-scheme: dark) {{ :root {{ --text: {TEXT_ON_DARK}; --page: #16191d; --line: #3d444d; }} }}
html {{ scrollbar-gutter: stable; }} /* else figures are drawn before the page is long, and are then too wide */
body {{ margin: 0; font: 15px/1.5 {FONT}; color: var(--text); background: var(--page); }}
main {{ max-width: 1500px; margin: 0 auto; padding: 16px 24px 48px; }}
h1 {{ font-size: 1.5rem; margin: 8px 0 16px; }}
figure {{ margin: 0 0 24px; overflow-x: auto; }}
.plotly-graph-div {{ min-width: 720px; }}
table {{ border-collapse: collapse; margin: 0 0 24px; font-variant-numeric: tabular-nums; }}
caption {{ text-align: left; font-weight: 600; padding: 8px 0; }}
th, td {{ text-align: left; padding: 4px 16px 4px 0; border-bottom: 1px solid var(--line); }}
.number {{ text-align: right; }}
"""

SCRIPT = f"""
const dark = matchMedia("(prefers-color-scheme: dark)");
function recolour() {{
  for (const figure of document.querySelectorAll(".plotly-graph-div"))
    Plotly.relayout(figure, {{"font.color": dark.matches ? "{TEXT_ON_DARK}" : "{TEXT}"}});
}}
dark.addEventListener("change", recolour);
recolour();
"""


# PNG files of figures, drawn by kaleido in a Chromium that is installed.

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTH_PX, SCALE = 1400, 2


def png(figure: "go.Figure", path: Path | str) -> None:
    """Write the figure as a PNG file on white, without its buttons.

    Raises:
        UserError: no Chromium or no kaleido is installed, or the file cannot be written.
    """
    browser = png_browser()
    import kaleido

    opts = {"format": "png", "width": WIDTH_PX, "height": figure.layout.height, "scale": SCALE}
    white = type(figure)(figure).update_layout(paper_bgcolor="white", plot_bgcolor="white")
    white.layout.updatemenus = ()
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
