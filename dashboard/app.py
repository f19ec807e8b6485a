"""The Dash app: the frame around pages, and rules of what a browser may load and send. Pages know nothing of either."""

import gzip
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import dash
import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, html, page_container
from flask import Response, request

from ..simulator.figures import fit_script
from ..simulator.figures.theme import FONT
from . import downloads
from .background import Spawning
from .library import Library
from .page import Here, Page

if TYPE_CHECKING:
    from dash.development.base_component import Component

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

_TEXTS = ("application/javascript", "text/javascript", "text/css", "application/json", "text/html")
_WORTH_BYTES = 2**14  # what is smaller is there at once
_INDEX = """<!doctype html>
<html lang="en">
<head>{%metas%}<title>{%title%}</title>{%favicon%}{%css%}</head>
<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer><script>{%fit%}</script></body>
</html>"""
_RENDERER = """var renderer = new DashRenderer({
    request_pre: window.dash_clientside.overtaken.asked,
    request_post: window.dash_clientside.overtaken.answered,
});"""
"""Dash's own, which drops answers that were overtaken (assets/overtaken.js)."""
_THEME = {
    "primaryColor": "blue",
    "primaryShade": {"light": 8, "dark": 8},
    "fontFamily": FONT,
}


def make_app(folder: Path | None = None, background: Spawning | None = None, open_to_all: bool = False) -> Dash:
    """The app over shipped files and those of a folder; it serves nothing yet.

    `background` does what takes long. Unless `open_to_all`, it answers under names of this machine only.
    """
    from .pages import PAGES

    background = background or Spawning()
    here = Here(Library(folder), background.handle)
    app = Dash(
        __name__,
        use_pages=True,
        pages_folder="",
        suppress_callback_exceptions=True,
        serve_locally=True,
        update_title="",
        title="runcast",
        routing_callback_inputs={"address": State("_pages_location", "search")},
        index_string=_INDEX.replace("{%fit%}", fit_script()),
        background_callback_manager=background,
    )
    for page in PAGES:
        _register(page, here)
        page.connect(app, here)
    app.layout = _frame(PAGES)
    app.renderer = _RENDERER
    app.clientside_callback(  # the menu of narrow screens
        "(opened, navbar) => ({...navbar, collapsed: {mobile: !opened}})",
        Output("shell", "navbar"),
        Input("menu", "opened"),
        State("shell", "navbar"),
    )
    app.clientside_callback(  # which closes when it leads somewhere, to the same page too
        "() => false", Output("menu", "opened"), Input("pages", "n_clicks"), prevent_initial_call=True
    )
    downloads.connect(app.server, here)
    app.server.config["MAX_CONTENT_LENGTH"] = MOST_UPLOADED_BYTES
    if not open_to_all:
        app.server.before_request(_refuse_other_names)
    app.server.after_request(_compress)
    app.server.after_request(_guard)
    return app


def _register(page: Page, here: Here) -> None:
    def layout(address: str = "", **_: object) -> object:
        return page.draw(here, address or "")

    module = f"{__name__}{page.path}"
    dash.register_page(module, path=page.path, name=page.name, title=f"{page.name}: runcast", layout=layout)


def _frame(pages: Sequence[Page]) -> "Component":
    """Header, navigation, light or dark; the page of the address is drawn inside."""
    menu = dmc.Burger(id="menu", size="sm", hiddenFrom="sm", opened=False, **{"aria-label": "Menu"})
    name = html.A("runcast", href="/", className="brand")
    dark = dmc.ColorSchemeToggle(lightIcon="☀", darkIcon="☾", **{"aria-label": "Light or dark"})
    header = dmc.Group([dmc.Group([menu, name]), dark], h="100%", px="md", justify="space-between")
    links = [dmc.NavLink(label=page.name, description=page.menu, href=page.path, active="exact") for page in pages]
    shell = dmc.AppShell(
        [
            dmc.AppShellHeader(header),
            dmc.AppShellNavbar(html.Nav(links, id="pages", **{"aria-label": "Pages"}), p="xs"),
            dmc.AppShellMain(html.Div(page_container, id="page")),
        ],
        header={"height": 56},
        navbar={"width": 224, "breakpoint": "sm", "collapsed": {"mobile": True}},
        padding="md",
        transitionDuration=0,  # else figures are drawn for widths in between
        id="shell",
    )
    skip = html.A("Skip to the page", href="#page", className="skip")
    return dmc.MantineProvider([skip, shell], id="theme", theme=_THEME, defaultColorScheme="auto")


def _refuse_other_names() -> Response | None:
    """A site elsewhere may have its own name lead to this machine, and read what it answers."""
    if _HERE.fullmatch(request.host):
        return None
    return Response("this server answers on 127.0.0.1 and localhost only\n", 421, mimetype="text/plain")


def _compress(response: Response) -> Response:
    """Scripts and figures are some megabytes, and a third of that for a browser that takes gzip."""
    plain = response.mimetype in _TEXTS and response.content_encoding is None and response.status_code == 200
    if not plain or "gzip" not in request.accept_encodings or (response.content_length or 0) < _WORTH_BYTES:
        return response
    response.direct_passthrough = False
    response.set_data(gzip.compress(response.get_data(), compresslevel=1, mtime=0))
    response.content_encoding = "gzip"
    response.vary.add("Accept-Encoding")
    return response


def _guard(response: Response) -> Response:
    response.headers["Content-Security-Policy"] = _POLICY
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    return response
