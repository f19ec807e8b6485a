"""A Comparison as one HTML page: what it comes to, a waterfall, terms, inputs, metrics, both timelines on one axis."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ...figures import Section, Window, compare_steps, difference, gantt, pipeline, write_html
from ...report.report import Table
from .comparison import Comparison, Drawn, Side
from .text import input_rows, inputs_title, metric_rows, metrics_of_one, sentences, term_columns, term_rows, total_row

Figures = dict[str, Any]
"""Plotly figures by what they show."""
Draw = Callable[[Window | None], Any]
"""A figure of the seconds that are seen, None for all."""


def write_page(found: Comparison, path: Path) -> None:
    """Write the page; a UserError if the file cannot be written."""
    write_html(path, f"{found.a.label} and {found.b.label}", sections(found))


def sections(found: Comparison) -> list[Section]:
    """The parts of the page; those with nothing to show are left out."""
    facts = [(name, f"{side.label}: {side.question or side.where}") for name, side in (("A", found.a), ("B", found.b))]
    inputs, metrics = input_rows(found), metric_rows(found)
    parts = [
        Section("What it comes to", tuple(sentences(found)), facts),
        Section("From A to B", figures=waterfall(found), tables=[
            Table("Seconds by term", term_columns(found), [*term_rows(found), total_row(found)])
        ]),
        Section("What went in", (inputs_title(found),), tables=[Table("", ("key", "A", "B"), inputs)][: len(inputs)]),
        Section("What else came out", metrics_of_one(found),
                tables=[Table("", ("metric", "A", "B", "B to A"), metrics)][: len(metrics)]),
    ]  # fmt: skip
    drawn = {caption: draw(None) for caption, draw in timelines({"A": found.a, "B": found.b}).items()}
    return parts + ([Section("When what ran", figures=drawn)] if drawn else [])


def waterfall(found: Comparison, caption: str = "Waterfall from A to B") -> Figures:
    """What each term adds or takes away, if anything does."""
    if not found.terms or found.same:
        return {}
    moved = [(term.name, term.difference_s) for term in found.terms if not found.is_nothing(term)]
    return {caption: difference(moved, found.a.total_s, found.b.total_s)}


def timelines(sides: Mapping[str, Side], most_spans: int | None = None) -> dict[str, Draw]:
    """Sides of one kind by name, drawn the same way over the same seconds; nothing where one has no Timeline.

    Each is drawn for what is seen of it, None for all; `most_spans` as `pipeline` has it.
    """
    drawn = {name: side.drawn for name, side in sides.items() if side.drawn is not None}
    if len(drawn) < len(sides):
        return {}
    *names, last = sides
    together = " and ".join(filter(None, (", ".join(names), last)))
    if all(side.kind == "train_step" for side in sides.values()) and not all(one.grid for one in drawn.values()):
        steps = {name: (one.timeline, one.ranks) for name, one in drawn.items()}
        return {f"Timelines of {together}": lambda window_s: compare_steps(steps, window_s=window_s)}
    whole_s = Window(0.0, max(one.timeline.makespan_s for one in drawn.values()))
    return {f"Timeline of {name}": partial(_drawn, f"{name}: {sides[name].label}", one, whole_s, most_spans)
            for name, one in drawn.items()}  # fmt: skip


def _drawn(title: str, drawn: Drawn, whole_s: Window, most_spans: int | None, window_s: Window | None) -> Any:
    if drawn.grid is not None:
        figure = pipeline(drawn.timeline, drawn.grid, title=title, window_s=window_s, most_spans=most_spans)
    else:
        figure = gantt(drawn.timeline, drawn.ranks, title=title, window_s=window_s)
    figure.update_xaxes(range=list(window_s or whole_s))
    figure.layout.updatemenus = ()  # buttons would move one axis without the other
    return figure
