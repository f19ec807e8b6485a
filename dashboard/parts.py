"""Pieces that pages are made of: numbers with their names, figures with a heading, notes."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dash import dcc, html

if TYPE_CHECKING:
    from dash.development.base_component import Component

CONFIG = {
    "displaylogo": False,
    "showSendToCloud": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d"],
    "toImageButtonOptions": {"format": "svg"},
}


def heading(name: str, about: str) -> "Component":
    """The h1 of a page, and what the page is for."""
    return html.Header([html.H1(name), html.P(about, className="about")])


def numbers(rows: Iterable[tuple[str, str, str]]) -> "Component":
    """Names, values, and small print below each."""
    cards = [
        html.Div([html.Dt(name), html.Dd([value, html.Small(small) if small else None])], className="number")
        for name, value, small in rows
    ]
    return html.Dl(cards, className="numbers")


def figures(drawn: Mapping[str, Any]) -> "list[Component]":
    """Plotly figures below their headings, read out by these."""
    return [
        html.Section([html.H2(caption), html.Div(dcc.Graph(figure=figure, config=CONFIG), className="wide")])
        for caption, figure in drawn.items()
    ]


def said(lines: Iterable[str]) -> "Component":
    """Notes, and what else is small print."""
    return html.Div([html.P(line, className="said") for line in lines])


def links(caption: str, places: Mapping[str, str]) -> "Component":
    """Names by their addresses, in a row behind a caption. The browser asks for them anew: they may be files."""
    found = [html.Li(html.A(name, href=href)) for href, name in places.items()]
    return html.Nav([html.Span(caption), html.Ul(found)], className="links", **{"aria-label": caption})
