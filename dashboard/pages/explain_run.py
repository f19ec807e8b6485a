"""What the Explain page shows of a run: where its time goes, and which changes help; its numbers are not weighed."""

from typing import TYPE_CHECKING

from dash import html

from ...simulator.answers.explain import Lever, RunExplanation
from ...simulator.answers.explain.run_text import lever_columns, lever_rows, sentences
from ...simulator.figures import waterfall
from ...simulator.scenario.changes import multiplies
from ...simulator.systems.run.text import words
from .. import parts
from ..question import Question, compare_link
from ..tables import table
from .run import cards_of

if TYPE_CHECKING:
    from dash.development.base_component import Component


def draw_look(found: RunExplanation) -> "list[Component]":
    """What the run as it is says."""
    causes = words(found.report).phases
    return [
        *parts.headline(found.report, cards_of(found.report)),
        parts.notes(sentences(found)),
        *parts.figures({"What the run is made of": waterfall(found.report.history.breakdown_s, "run")}),
        table("Time by cause", causes.headers, causes.rows),
    ]


def draw_what_ifs(found: RunExplanation, question: Question) -> "list[Component]":
    """What-ifs by what they save."""
    shown = [one for one in found.tried if one.has_effect]
    rows = [(_name(one, question), *row[1:]) for one, row in zip(shown, lever_rows(shown, found), strict=True)]
    best = ", ".join(f"{one.name} ({one.gain:.1%})" for one in found.best[:3])
    lines = [
        f"Changes that help most: {best}." if best else "Nothing that was tried helps.",
        f"{len(found.tried)} what-ifs were simulated, {len(found.refused)} do not go with this scenario.",
        *([f"Without any effect: {', '.join(found.without_effect)}."] if found.without_effect else []),
    ]
    refused = table("Not allowed here", ("what if", "why"), [(one.name, one.reason) for one in found.refused], level=3)
    return [
        parts.notes(lines),
        table(f"Changes, by {found.aim}", lever_columns(found), rows, level=3),
        html.Details([html.Summary("Not allowed here"), refused]),
    ]


def _name(one: Lever, question: Question) -> "str | Component":
    """A link to both sides; without one where a number is multiplied that the scenario may leave out."""
    if any(map(multiplies, one.changes.values())):
        return one.name
    return compare_link(question, one.name, question.change(one.changes))
