"""What a page is: an address, a layout made from the question in the address, and callbacks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dash import ClientsideFunction, Dash, Input, Output, State, html

from ..simulator.base.errors import UserError
from . import parts
from .answers import Answers
from .library import Library

if TYPE_CHECKING:
    from dash.development.base_component import Component

PATHS = {
    "train_step": "/training", "weight_update": "/update", "run": "/run", "rl_cycle": "/cycle",
    "collective": "/collective",
}  # fmt: skip
"""Where a scenario of each kind has its page."""
CLUSTER = "/cluster"
"""Where the machines of a scenario are drawn."""


class Here:
    """What pages are made with: what may be opened, what was answered, and a cache that other processes
    write to. One of each in a process.
    """

    def __init__(self, library: Library, results: Any = None):
        self.library, self.results = library, results
        self.answers = Answers(library)


@dataclass(frozen=True)
class Page:
    """`layout(here, query)` draws what a query of its address asks, below its name (or `title`) and what it is `about`;
    `connect(app, here)` adds its callbacks. `menu` is what stands under its name in menus.
    """

    path: str
    name: str
    menu: str
    about: str
    layout: "Callable[[Here, str], Component]"
    connect: Callable[[Dash, Here], Any] = lambda app, here: None
    title: str = ""

    def draw(self, here: Here, query: str) -> "Component":
        """The page; for an address that cannot be read, why, and what it shows at first."""
        try:
            inside = [self.layout(here, query)]
        except UserError as error:
            lines = [*error.faults, "This is the scenario that the page begins with."]
            inside = [parts.alert("The address cannot be followed", lines), self.layout(here, "")]
        return html.Div(
            [html.Header([html.H1(self.title or self.name), html.P(self.about, className="about")]), *inside]
        )


def outputs(page: str, *names: str) -> list[Output]:
    """Properties that a callback sets: `x.children` is that of the element `page-x`."""
    return [Output(*f"{page}-{name}".rsplit(".", 1)) for name in names]


def inputs(page: str, *names: str) -> list[Input]:
    """Properties whose changes call a callback."""
    return [Input(*f"{page}-{name}".rsplit(".", 1)) for name in names]


def states(page: str, *names: str) -> list[State]:
    """Properties that a callback reads besides."""
    return [State(*f"{page}-{name}".rsplit(".", 1)) for name in names]


def keep_in_address(app: Dash, store: str) -> None:
    """The query in a Store stands in the address from then on; the page is not drawn anew."""
    app.clientside_callback(ClientsideFunction("address", "keep"), Output(store, "id"), Input(store, "data"))


def open_with(app: Dash, base: str) -> None:
    """Another scenario in the Select of this id is another page: its fields are drawn with what it says."""
    open_it = ClientsideFunction("address", "open")
    app.clientside_callback(open_it, Output(base, "id"), Input(base, "value"), prevent_initial_call=True)
