"""The pages, one file each, in the order of the menu; the first one leads to them."""

from dash import html

from ..page import Page
from . import calibration, collective, compare, cycle, explain, run, search, sweeps, training, update, validation

_PAGES = (
    training.PAGE, search.PAGE, update.PAGE, cycle.PAGE, run.PAGE, collective.PAGE, explain.PAGE, compare.PAGE,
    sweeps.PAGE, calibration.PAGE, validation.PAGE,
)  # fmt: skip
_ABOUT = "Forecasts of training steps, runs and RL weight updates: how long, how sure, why, and what makes them faster."


def _links(*_: object) -> html.Ul:
    items = [html.Li([html.A(page.name, href=page.path), html.Span(page.menu)]) for page in _PAGES]
    return html.Ul(items, className="pages")


PAGES = (Page("/", "Start", "what to ask", _ABOUT, _links, title="runcast"), *_PAGES)
