"""A question as one types it: a scenario by name and changes to it, one a line, as `--set` takes them.

Inputs have ids {"typed_form": form, "side": side, "part": part}, so that a form may hold several. A named what-if is a
shorthand: choosing one writes its changes below those that are there.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import ALL, MATCH, Dash, Input, Output, State, no_update

from ...simulator.base.errors import UserError, fault
from ...simulator.scenario import parse_changes, what_ifs
from ...simulator.systems.registry import SYSTEMS
from .. import parts
from ..library import Library
from ..question import Question, value_text
from . import fields

if TYPE_CHECKING:
    from dash.development.base_component import Component

BASE, LINES, NAMED = "base", "lines", "named"
_SUBJECTS = {
    "machine": "The machine", "plan": "The plan of a training step", "update": "The weight update", "run": "The run",
}  # fmt: skip


def draw(
    form: str,
    side: str,
    legend: str,
    question: Question,
    library: Library,
    kinds: tuple[str, ...],
    runs: Iterable[str] = (),
) -> "Component":
    """A scenario of some kinds to choose, or one of the real runs, its changes, and the what-ifs that have a name."""
    scenarios = {_plural(kind): {name: name for name in library.names_of_kind(kind)} for kind in kinds}
    measured = {"Measured runs": {name: name for name in runs}}
    named = {
        title: {one.name: one.name for one in what_ifs().values() if one.subject == subject}
        for subject, title in _SUBJECTS.items()
    }
    inputs = [
        parts.choice(_id(form, side, BASE), "Scenario", parts.groups(measured | scenarios), question.base),
        dmc.Textarea(
            id=_id(form, side, LINES), label="Changes", description="One a line, key = value", value=text_of(question),
            placeholder="parallel.tp = 8", autosize=True, minRows=2, maxRows=10, spellCheck=False, debounce=500,
            classNames={"input": "typed"},
        ),
        parts.choice(_id(form, side, NAMED), "Add a named what-if", parts.groups(named), None, placeholder="NDR 800",
                     clearable=True, allowDeselect=True),
    ]  # fmt: skip
    return dmc.Fieldset(inputs, legend=legend)


def _plural(kind: str) -> str:
    """What scenarios of a kind are called together: `Training steps`."""
    words = SYSTEMS[kind].title.partition(" ")[2]
    return f"{words[0].upper()}{words[1:]}s"


def inputs(form: str) -> list[Input]:
    """What a callback listens to: scenarios and changes of all sides."""
    return [Input(_id(form, ALL, BASE), "value"), Input(_id(form, ALL, LINES), "value")]


def faults_of(form: str) -> Output:
    """The output in which a callback reports errors in the changes of each side."""
    return Output(_id(form, ALL, LINES), "error")


def connect(app: Dash, form: str) -> None:
    """A named what-if that is chosen writes its lines."""

    @app.callback(
        Output(_id(form, MATCH, LINES), "value"),
        Output(_id(form, MATCH, NAMED), "value"),
        Input(_id(form, MATCH, NAMED), "value"),
        State(_id(form, MATCH, LINES), "value"),
        prevent_initial_call=True,
    )
    def write(name: str | None, text: str | None) -> tuple[Any, Any]:
        return (add_what_if(text or "", name), None) if name and name in what_ifs() else (no_update, no_update)


def add_what_if(text: str, name: str) -> str:
    """Lines with those of a named what-if; of a key that is there already, the what-if's stands."""
    changes = what_ifs()[name].changes
    kept = [line for line in text.splitlines() if line.strip() and line.partition("=")[0].strip() not in changes]
    return "\n".join([*kept, text_of(Question("", changes))])


def question_of(base: str, text: str | None) -> Question:
    """The question of a scenario and lines.

    Raises:
        UserError: a line is no change, names a file, or says a key again.
    """
    lines = [line for line in (text or "").splitlines() if line.strip()]
    changes = parse_changes(lines)
    if len(changes) < len(lines):
        keys = [line.partition("=")[0].strip() for line in lines]
        again = next(key for key in keys if keys.count(key) > 1)
        raise UserError(fault("changes", again, value_text(changes[again]), "is there twice: one line a key"))
    return Question(base).change(changes)


def text_of(question: Question) -> str:
    """The changes of a question, one a line."""
    return "\n".join(f"{key} = {value_text(value)}" for key, value in question.changes.items())


def refusal(lines: Iterable[str]) -> "Component":
    """What an answer says where a side has faults."""
    return parts.alert("This cannot be simulated", lines)


def faults(error: UserError) -> list[str]:
    """The faults of a side, without the place of its file."""
    return [rest for _, rest in fields.faults_by_key(error, ())]


def _id(form: str, side: Any, part: str) -> dict[str, Any]:
    return {"typed_form": form, "side": side, "part": part}
