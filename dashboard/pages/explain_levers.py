"""What the Explain page shows of runs and RL cycles: where their time goes, and which changes help.

Their numbers are not weighed: there is no critical path on which they could be.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dash import html

from ...simulator.answers.explain import ByLevers
from ...simulator.figures import waterfall
from ...simulator.scenario.changes import multiplies
from .. import parts
from ..question import Question, compare_link
from ..tables import table
from . import cycle, run

if TYPE_CHECKING:
    from dash.development.base_component import Component

_CARDS: Mapping[str, Callable[[Any], list[parts.Card]]] = {"run": run.cards_of, "rl_cycle": cycle.cards_of}


def draw_look(found: ByLevers[Any]) -> "list[Component]":
    """What the run or the cycle as it is says."""
    words = found.words
    phases = words.said.phases
    return [
        *parts.headline(found.report, _CARDS[found.report.kind](found.report), words.sentences),
        *parts.figures({words.parts_title: waterfall(words.parts_s, words.whole)}),
        table(phases.caption, phases.headers, phases.rows),
    ]


def draw_what_ifs(found: ByLevers[Any], question: Question) -> "list[Component]":
    """What-ifs by what they save."""
    words = found.words
    shown = [one for one in found.tried if one.has_effect]
    rows = [(_name(one, question), *words.row(one)[1:]) for one in shown]
    best = ", ".join(f"{one.name} ({one.gain:.1%})" for one in found.best[:3])
    lines = [
        f"Changes that help most: {best}." if best else "Nothing that was tried helps.",
        f"{len(found.tried)} what-ifs were simulated, {len(found.refused)} do not go with this scenario.",
        *([f"Without any effect: {', '.join(found.without_effect)}."] if found.without_effect else []),
    ]
    refused = table("Not allowed here", ("what if", "why"), [(one.name, one.reason) for one in found.refused], level=3)
    return [
        parts.notes(lines),
        table(f"Changes, by {words.aim}", words.columns, rows, level=3),
        html.Details([html.Summary("Not allowed here"), refused]),
    ]


def _name(one: Any, question: Question) -> "str | Component":
    """A link to both sides; without one where a number is multiplied that the scenario may leave out."""
    if any(map(multiplies, one.changes.values())):
        return str(one.name)
    return compare_link(question, one.name, question.change(one.changes))
