"""Pieces that pages are made of: numbers with their names, figures with a heading, notes."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import dcc, html

from ..simulator.base.errors import UserError

if TYPE_CHECKING:
    from dash.development.base_component import Component

CONFIG = {
    "displaylogo": False,
    "showSendToCloud": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "toImage"],
}


def heading(name: str, about: str) -> "Component":
    """The h1 of a page, and what the page is for."""
    return html.Header([html.H1(name), html.P(about, className="about")])


def numbers(rows: Iterable[tuple[str, str, str]]) -> "Component":
    """Names, values, and small print below each."""
    cards = [
        html.Div([html.Dt(name), html.Dd([value, html.Small(_unbroken(small)) if small else None])], className="number")
        for name, value, small in rows
    ]
    return html.Dl(cards, className="numbers")


def _unbroken(text: str) -> str:
    """Text in which no line ends between a number and its unit."""
    return re.sub(r"(?<=\d) (?=[%A-Za-z])", "\u00a0", text)


def headed(caption: str, level: int = 2) -> "Component":
    """The heading of a section with a figure, and buttons that save this one (assets/saves.js)."""
    buttons = [
        dmc.Button(kind, size="xs", variant="default",
                   **{"data-save": kind.lower(), "data-name": caption, "aria-label": f"{caption} as {kind}"})
        for kind in ("PNG", "SVG")
    ]  # fmt: skip
    heading = (html.H2 if level == 2 else html.H3)(caption)
    return html.Div([heading, html.Div(buttons, className="saves")], className="headed")


def figure(caption: str, drawn: Any, *, around: str = "wide", level: int = 2, **graph: Any) -> "Component":
    """A plotly figure below its heading; `graph` are further properties of the Graph."""
    inside = html.Div(dcc.Graph(figure=drawn, config=CONFIG, **graph), className=around)
    return html.Section([headed(caption, level), inside])


def figures(drawn: Mapping[str, Any]) -> "list[Component]":
    """Plotly figures below their headings."""
    return [figure(caption, one) for caption, one in drawn.items()]


def unread(error: UserError) -> "Component":
    """What a page says whose address asks what it cannot show."""
    lines = [*error.faults, "This is the scenario that the page begins with."]
    return dmc.Alert([html.P(line) for line in lines], title="The address cannot be followed", color="red")


def said(lines: Iterable[str]) -> "Component":
    """Notes, and what else is small print."""
    return html.Div([html.P(line, className="said") for line in lines])


def links(caption: str, places: Mapping[str, str]) -> "Component":
    """Names by their addresses, in a row behind a caption. The browser asks for them anew: they may be files."""
    return row(caption, [html.A(name, href=href) for href, name in places.items()])


def row(caption: str, links: "Iterable[Component]") -> "Component":
    """Links behind a caption."""
    found = html.Ul([html.Li(link) for link in links])
    return html.Nav([html.Span(caption), found], className="links", **{"aria-label": caption})
