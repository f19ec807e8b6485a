"""PNG files of figures, drawn by kaleido in a Chromium that is installed."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.errors import UserError
from ..base.files import write_atomic

if TYPE_CHECKING:
    import plotly.graph_objects as go

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
