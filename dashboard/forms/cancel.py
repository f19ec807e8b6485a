"""The button that ends the work on an answer: it stands over what is shown, beside a circle, when that takes long.

The work is that of a job (`Answers.predict`), of which each page that is drawn has its own.
"""

from typing import TYPE_CHECKING
from uuid import uuid4

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html

from .. import parts
from ..page import Here

if TYPE_CHECKING:
    from dash.development.base_component import Component


def draw(page: str) -> "Component":
    """What a dcc.Loading shows: a circle and the button."""
    return html.Div([dmc.Loader(), parts.button("Cancel", f"{page}-cancel", size="sm")], className="working")


def stores(page: str) -> "list[Component]":
    """The name of the page's job, and what a press of the button writes."""
    return [dcc.Store(id=f"{page}-job", data=uuid4().hex), dcc.Store(id=f"{page}-stopping")]


def job(page: str) -> State:
    """The name of the job, for the callback that asks."""
    return State(f"{page}-job", "data")


def connect(app: Dash, here: Here, page: str) -> None:
    """A press of the button stops the job."""

    @app.callback(
        Output(f"{page}-stopping", "data"),
        Input(f"{page}-cancel", "n_clicks"),
        job(page),
        prevent_initial_call=True,
    )
    def stop(clicks: int, name: str) -> int:
        here.answers.stop(name)
        return clicks
