"""Finding ops of a timeline by their names: the figure goes to one after the other, and says which it is."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html, no_update

from ..simulator.base.errors import shorten
from ..simulator.base.units import format_seconds
from ..simulator.figures import Window
from ..simulator.figures.drawing import add_mark
from ..simulator.timeline import Timeline
from . import zoom
from .page import Here
from .question import parse_query

if TYPE_CHECKING:
    from dash.development.base_component import Component

_AROUND, _LEAST = 12, 1 / 400
"""What is seen of an op that was found: so many times its length, and such a part of all at least."""
_MOST_LETTERS = 100


@dataclass(frozen=True)
class Found:
    """The op that a search has come to: which of how many it is."""

    op: int
    number: int
    many: int

    def line(self, timeline: Timeline) -> str:
        """What a page says of it."""
        place = timeline.program.places[timeline.program.places_of(self.op)[0]].name
        start_s, end_s = float(timeline.start_s[self.op]), float(timeline.end_s[self.op])
        when = f"from {format_seconds(start_s)} for {format_seconds(end_s - start_s)}"
        return f"{self.number + 1:,} of {self.many:,}: {timeline.program.names[self.op]}, {place}, {when}"


def find(timeline: Timeline, text: str, number: int = 0) -> Found | None:
    """The op at this place, around which one comes again, of those whose names have all words of a text; None of none.

    They go by when they start. A word is the beginning of one of the name; a number at its end is all of that.
    """
    words = [re.compile(rf"\b{re.escape(word)}(?!\d)" if word[-1].isdigit() else rf"\b{re.escape(word)}", re.I)
             for word in text.split()]  # fmt: skip
    good = {name for name in set(timeline.program.names) if words and all(word.search(name) for word in words)}
    ops = sorted((op for op, name in enumerate(timeline.program.names) if name in good),
                 key=lambda op: (timeline.start_s[op], op))  # fmt: skip
    return Found(ops[number % len(ops)], number % len(ops), len(ops)) if ops else None


def field(graph: str) -> "Component":
    """Where one types what to find in a graph; Enter goes to the next one."""
    typed = dmc.TextInput(
        id=f"{graph}-find", placeholder="Find an op", size="xs", **{"aria-label": "Find an op by its name"}
    )
    line = html.Span(id=f"{graph}-hit", role="status", className="said")
    return html.Div([typed, line, dcc.Store(id=f"{graph}-at")], className="find")


def connect(app: Dash, here: Here, base: str, graph: str, query: str) -> None:
    """Each Enter in the field shows the next op of the timeline of the query in that store."""

    @app.callback(
        Output(f"{graph}-hit", "children"), Output(f"{graph}-at", "data"),
        Output(graph, "figure", allow_duplicate=True),
        Input(f"{graph}-find", "n_submit"), State(f"{graph}-find", "value"), State(f"{graph}-at", "data"),
        State(query, "data"), prevent_initial_call=True,
    )  # fmt: skip
    def go_on(_: Any, text: Any, at: Any, asked: str | None) -> Any:
        if asked is None or not isinstance(text, str) or not text.strip():
            return "", None, no_update
        text = text[:_MOST_LETTERS]
        before = at.get("number") if isinstance(at, dict) and at.get("text") == text else None
        prediction = here.answers.predict(parse_query(asked, base))
        timeline = prediction.timeline
        found = find(timeline, text, before + 1 if isinstance(before, int) else 0)
        if found is None:
            return f"No op is called so; one is called {shorten(timeline.program.names[0], 80)!r}.", None, no_update
        drawn = zoom.draw(prediction, _around(timeline, found.op))
        add_mark(drawn, Window(float(timeline.start_s[found.op]), float(timeline.end_s[found.op])))
        patch = zoom.patch(drawn)
        patch["layout"]["shapes"] = drawn.layout.shapes
        return found.line(timeline), {"text": text, "number": found.number}, patch


def _around(timeline: Timeline, op: int) -> Window:
    start_s, end_s, whole_s = float(timeline.start_s[op]), float(timeline.end_s[op]), timeline.makespan_s or 1.0
    half_s = min(max(_AROUND * (end_s - start_s), _LEAST * whole_s), whole_s) / 2
    middle_s = min(max((start_s + end_s) / 2, half_s), whole_s - half_s)
    return Window(middle_s - half_s, middle_s + half_s)
