"""The Dash app: pages put together, rules of what a browser may load and send."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import dash
from dash import Dash, State
from diskcache import Cache
from flask import Response

from . import downloads, shell
from .background import Spawning
from .library import Library
from .page import Here, Page

MOST_UPLOADED_BYTES = 2 * 2**20
"""Of one request: a config or a scenario is some kilobytes."""

_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; frame-ancestors 'none'"
)
"""Nothing is loaded from, or sent to, another host; Dash and plotly make functions and styles in the page."""


def make_app(folder: Path | None = None, pages: Sequence[Page] | None = None) -> Dash:
    """The app over shipped files and those of a folder; it serves nothing yet."""
    from .pages import PAGES

    chosen = PAGES if pages is None else tuple(pages)
    here = Here(Library(folder))
    results = TemporaryDirectory(prefix="runcast-dashboard-")  # of this user alone, gone when the process ends
    app = Dash(
        __name__,
        use_pages=True,
        pages_folder="",
        suppress_callback_exceptions=True,
        serve_locally=True,
        update_title="",
        title="runcast",
        routing_callback_inputs={"address": State(shell.ADDRESS, "search")},
        index_string=shell.INDEX,
        background_callback_manager=Spawning(Cache(results.name)),
    )
    app.server.config["BACKGROUND_RESULTS"] = results
    for page in chosen:
        _register(page, here)
        page.connect(app, here)
    app.layout = shell.shell(chosen)
    shell.connect(app)
    downloads.connect(app.server, here)
    app.server.config["MAX_CONTENT_LENGTH"] = MOST_UPLOADED_BYTES
    app.server.after_request(_guarded)
    return app


def _register(page: Page, here: Here) -> None:
    def layout(address: str = "", **_: object) -> object:
        return page.layout(here, address or "")

    module = f"{__name__}{page.path}"
    dash.register_page(module, path=page.path, name=page.name, title=f"{page.name}: runcast", layout=layout)


def _guarded(response: Response) -> Response:
    response.headers["Content-Security-Policy"] = _POLICY
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    return response
