"""A question as one types it: a scenario by name and changes to it, one a line, as `--set` takes them.

Inputs have ids {"stated": form, "side": side, "part": part}, so that a form may hold several. A named what-if is a
shorthand: choosing one writes its changes below those that are there.
"""

from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import ALL, MATCH, Dash, Input, Output, State, html, no_update

from ..simulator.base.errors import UserError, fault
from ..simulator.scenario import parsed, what_ifs
from . import fields
from .answers import Library
from .question import Question, written

if TYPE_CHECKING:
    from dash.development.base_component import Component

BASE, LINES, NAMED, BOX = "base", "lines", "named", "box"
_KINDS = {"train_step": "Training steps", "weight_update": "Weight updates", "rl_cycle": "RL cycles"}
_SUBJECTS = {"machine": "The machine", "plan": "The plan of a training step", "update": "The weight update"}


def drawn(
    form: str, side: str, legend: str, question: Question, library: Library, kinds: tuple[str, ...]
) -> "Component":
    """A scenario of some kinds to choose, its changes, and the what-ifs that have a name."""
    scenarios = [{"group": _KINDS[kind], "items": _choices(library.of_kind(kind))} for kind in kinds]
    inputs = [
        dmc.Select(
            id=_id(form, side, BASE), label="Scenario", data=scenarios, value=question.base, searchable=True,
            allowDeselect=False,
        ),
        dmc.Textarea(
            id=_id(form, side, LINES), label="Changes", description="One a line, key = value", value=text_of(question),
            placeholder="parallel.tp = 8", autosize=True, minRows=2, maxRows=10, spellCheck=False, debounce=500,
            classNames={"input": "typed"},
        ),
        dmc.Select(
            id=_id(form, side, NAMED), label="Add a named what-if", data=_named(), searchable=True, clearable=True,
            placeholder="NDR 800", value=None,
        ),
    ]  # fmt: skip
    return dmc.Fieldset(inputs, legend=legend, id=_id(form, side, BOX))


def inputs(form: str) -> list[Input]:
    """What a callback listens to: scenarios and changes of all sides."""
    return [Input(_id(form, ALL, BASE), "value"), Input(_id(form, ALL, LINES), "value")]


def faults_of(form: str) -> Output:
    """Where a callback says what is wrong with the changes of each side."""
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
        return (with_what_if(text or "", name), None) if name and name in what_ifs() else (no_update, no_update)


def with_what_if(text: str, name: str) -> str:
    """Lines with those of a named what-if; of a key that is there already, the what-if's stands."""
    changes = what_ifs()[name].changes
    kept = [line for line in text.splitlines() if line.strip() and line.partition("=")[0].strip() not in changes]
    return "\n".join([*kept, *(f"{key} = {written(value)}" for key, value in changes.items())])


def question_of(base: str, text: str | None) -> Question:
    """The question of a scenario and lines.

    Raises:
        UserError: a line is no change, names a file, or says a key again.
    """
    lines = [line for line in (text or "").splitlines() if line.strip()]
    changes = parsed(lines)
    if len(changes) < len(lines):
        keys = [line.partition("=")[0].strip() for line in lines]
        again = next(key for key in keys if keys.count(key) > 1)
        raise UserError(fault("changes", again, written(changes[again]), "is there twice: one line a key"))
    return Question(base).changed(changes)


def text_of(question: Question) -> str:
    """The changes of a question, one a line."""
    return "\n".join(f"{key} = {written(value)}" for key, value in question.changes.items())


def told(error: UserError) -> str:
    """The faults of a side, one a line, without the place of its file."""
    return "\n".join(fields.told(error, ())[1])


def refusal(lines: str) -> "Component":
    """What an answer says where a side has faults."""
    return dmc.Alert([html.P(line) for line in lines.splitlines()], title="This cannot be simulated", color="red")


def _id(form: str, side: Any, part: str) -> dict[str, Any]:
    return {"stated": form, "side": side, "part": part}


def _choices(names: list[str]) -> list[dict[str, str]]:
    return [{"value": name, "label": name} for name in names]


def _named() -> list[dict[str, Any]]:
    return [
        {"group": title, "items": _choices([one.name for one in what_ifs().values() if one.subject == subject])}
        for subject, title in _SUBJECTS.items()
    ]
