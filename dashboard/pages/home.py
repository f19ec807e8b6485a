"""The first page: what one may ask here."""

from typing import TYPE_CHECKING

from dash import Dash, html

from .. import parts
from ..page import Here, Page

if TYPE_CHECKING:
    from dash.development.base_component import Component

ABOUT = "Forecasts of training steps and RL weight updates: how long, how sure, why, and what would make them faster."


def home(pages: tuple[Page, ...]) -> Page:
    """The page that leads to these."""

    def layout(_: Here, __: str) -> "Component":
        found = [html.Li([html.A(page.name, href=page.path), html.Span(page.about)]) for page in pages]
        return html.Div([parts.heading("runcast", ABOUT), html.Ul(found, className="pages")])

    return Page("/", "Start", "what to ask", layout, _nothing)


def _nothing(_: Dash, __: Here) -> None:
    """It has no callbacks."""
