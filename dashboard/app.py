"""The Dash app: pages put together, rules of what a browser may load and send."""

import re
from pathlib import Path

import dash
from dash import Dash, State
from flask import Response, request

from . import downloads, shell
from .answers import Library
from .background import Spawning
from .page import Here, Page

MOST_UPLOADED_BYTES = 2 * 2**20
"""Of one request: a config or a scenario is some kilobytes."""

_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; "
    "form-action 'self'; base-uri 'self'"
)
"""Nothing is loaded from, or sent to, another host; Dash and plotly make functions and styles in the page."""


_HERE = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?")
"""Names by which a browser of this machine asks."""


def make_app(folder: Path | None = None, background: Spawning | None = None, open_to_all: bool = False) -> Dash:
    """The app over shipped files and those of a folder; it serves nothing yet.

    `background` does what takes long. Unless `open_to_all`, it answers under names of this machine only.
    """
    from .pages import PAGES

    here = Here(Library(folder))
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
        background_callback_manager=background or Spawning(),
    )
    for page in PAGES:
        _register(page, here)
        page.connect(app, here)
    app.layout = shell.shell(PAGES)
    shell.connect(app)
    downloads.connect(app.server, here)
    app.server.config["MAX_CONTENT_LENGTH"] = MOST_UPLOADED_BYTES
    if not open_to_all:
        app.server.before_request(_asked_here)
    app.server.after_request(_guarded)
    return app


def _register(page: Page, here: Here) -> None:
    def layout(address: str = "", **_: object) -> object:
        return page.layout(here, address or "")

    module = f"{__name__}{page.path}"
    dash.register_page(module, path=page.path, name=page.name, title=f"{page.name}: runcast", layout=layout)


def _asked_here() -> Response | None:
    """Refuses other names: a site elsewhere may have its own name lead to this machine, and read what it answers."""
    if _HERE.fullmatch(request.host):
        return None
    return Response("this server answers on 127.0.0.1 and localhost only\n", 421, mimetype="text/plain")


def _guarded(response: Response) -> Response:
    response.headers["Content-Security-Policy"] = _POLICY
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    return response
