"""A Comparison as one HTML page: what it comes to, a waterfall, terms, inputs, metrics, both timelines on one axis."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..figures import Table, gantt, pipeline
from ..figures.beside import steps_beside
from ..figures.difference import difference
from ..figures.sections import Section, sections_html
from .comparison import Comparison
from .side import Drawn, Side
from .text import input_rows, inputs_title, metric_rows, metrics_of_one, sentences, term_columns, term_rows, total_row

Figures = dict[str, Any]
"""Plotly figures by what they show."""


def write_page(found: Comparison, path: Path) -> None:
    """Write the page.

    Raises:
        UserError: the file cannot be written.
    """
    sections_html(path, f"{found.a.label} and {found.b.label}", sections(found))


def sections(found: Comparison) -> list[Section]:
    """The parts of the page; those with nothing to show are left out."""
    facts = [(name, f"{side.label}: {side.question or side.where}") for name, side in (("A", found.a), ("B", found.b))]
    inputs, metrics = input_rows(found), metric_rows(found)
    parts = [
        Section("What it comes to", tuple(sentences(found)), facts),
        Section("From A to B", figures=_waterfall(found), tables=[_terms(found)]),
        Section(
            "What went in", (inputs_title(found),), tables=[Table("", ("key", "A", "B"), inputs)] if inputs else []
        ),
        Section(
            "What else came out",
            metrics_of_one(found),
            tables=[Table("", ("metric", "A", "B", "B to A"), metrics)] if metrics else [],
        ),
    ]
    drawn = timelines({"A": found.a, "B": found.b})
    return parts + ([Section("When what ran", figures=drawn)] if drawn else [])


def _terms(found: Comparison) -> Table:
    return Table("Seconds by term", term_columns(found), [*term_rows(found), total_row(found)])


def _waterfall(found: Comparison) -> Figures:
    if not found.terms or found.same:
        return {}
    moved = [(term.name, term.difference_s) for term in found.terms if not found.is_nothing(term)]
    return {"Waterfall from A to B": difference(moved, found.a.total_s, found.b.total_s)}


def timelines(sides: Mapping[str, Side]) -> Figures:
    """Sides of one kind by name, drawn the same way over the same seconds; nothing where one has no Timeline."""
    drawn = {name: side.drawn for name, side in sides.items() if side.drawn is not None}
    if len(drawn) < len(sides):
        return {}
    names = _listed(list(sides))
    if all(side.kind == "train_step" for side in sides.values()) and not all(one.grid for one in drawn.values()):
        return {f"Timelines of {names}": steps_beside({name: (one.timeline, one.ranks) for name, one in drawn.items()})}
    until_s = max(one.timeline.makespan_s for one in drawn.values())
    return {f"Timeline of {name}": _drawn(f"{name}: {sides[name].label}", one, until_s)
            for name, one in drawn.items()}  # fmt: skip


def _listed(names: Sequence[str]) -> str:
    return " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else "".join(names)


def _drawn(title: str, drawn: Drawn, until_s: float) -> Any:
    if drawn.grid is not None:
        figure = pipeline(drawn.timeline, drawn.grid, title=title)
    else:
        figure = gantt(drawn.timeline, drawn.ranks, title=title)
    figure.update_xaxes(range=[0, until_s])
    figure.layout.updatemenus = ()  # buttons would move one axis without the other
    return figure
