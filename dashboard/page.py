"""What a page is: an address, a layout made from the question in the address, and callbacks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .answers import Answers, Library

if TYPE_CHECKING:
    from dash import Dash
    from dash.development.base_component import Component


class Here:
    """What pages are made with: what may be opened, and what was answered. One of each in a process."""

    def __init__(self, library: Library):
        self.library = library
        self.answers = Answers(library)


@dataclass(frozen=True)
class Page:
    """`layout(here, query)` draws a page for the query of its address; `connect(app, here)` adds its callbacks.

    `about` is the sentence under its name in menus.
    """

    path: str
    name: str
    about: str
    layout: "Callable[[Here, str], Component]"
    connect: "Callable[[Dash, Here], Any]"
