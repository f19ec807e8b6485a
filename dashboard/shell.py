"""What is around every page: header, navigation, light or dark. Pages know nothing of it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, html, page_container

from .page import Page

if TYPE_CHECKING:
    from dash.development.base_component import Component

INDEX = """<!doctype html>
<html lang="en">
<head>{%metas%}<title>{%title%}</title>{%favicon%}{%css%}</head>
<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>"""
ADDRESS = "_pages_location"
"""Dash's own element of the address."""
THEME = {
    "primaryColor": "blue",
    "primaryShade": {"light": 8, "dark": 8},
    "fontFamily": "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
}


def shell(pages: Sequence[Page]) -> "Component":
    """The frame; the page of the address is drawn inside."""
    return dmc.MantineProvider(
        [
            html.A("Skip to the page", href="#page", className="skip"),
            dmc.AppShell(
                [_header(), _navigation(pages), dmc.AppShellMain(html.Div(page_container, id="page"))],
                header={"height": 56},
                navbar={"width": 224, "breakpoint": "sm", "collapsed": {"mobile": True}},
                padding="md",
                id="shell",
            ),
        ],
        id="theme",
        theme=THEME,
        defaultColorScheme="auto",
    )


def _header() -> "Component":
    menu = dmc.Burger(id="menu", size="sm", hiddenFrom="sm", opened=False, **{"aria-label": "Menu"})
    name = html.A("runcast", href="/", className="brand")
    dark = dmc.ColorSchemeToggle(lightIcon="☀", darkIcon="☾", **{"aria-label": "Light or dark"})
    return dmc.AppShellHeader(dmc.Group([dmc.Group([menu, name]), dark], h="100%", px="md", justify="space-between"))


def _navigation(pages: Sequence[Page]) -> "Component":
    links = [dmc.NavLink(label=page.name, description=page.about, href=page.path, active="exact") for page in pages]
    return dmc.AppShellNavbar(html.Nav(links, **{"aria-label": "Pages"}), p="xs")


def connect(app: Dash) -> None:
    """Opens and closes the menu of narrow screens."""
    app.clientside_callback(
        """(opened, navbar) => ({...navbar, collapsed: {mobile: !opened}})""",
        Output("shell", "navbar"),
        Input("menu", "opened"),
        State("shell", "navbar"),
    )


def keep_in_address(app: Dash, store: str) -> None:
    """The query in a Store stands in the address from then on; the page is not drawn anew."""
    app.clientside_callback(
        """(query) => {
            if (query !== undefined && query !== null && query !== window.location.search)
                window.history.replaceState(window.history.state, "", window.location.pathname + query);
            return window.dash_clientside.no_update;
        }""",
        Output(store, "id"),
        Input(store, "data"),
    )
