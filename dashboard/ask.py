"""A form that asks a question: fields beside an answer, the question in the address, faults beside their fields.

A page says which fields it has and how it draws numbers and figures; this wires them. Numbers come first, figures are
drawn by a callback of their own, so that a slider answers at once. Where a change of one field leaves out what another
one shows, that one then shows what is asked.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update, set_props

from ..simulator.base.errors import UserError
from ..simulator.predict import AnyPrediction
from ..simulator.scenario import changed, value_at
from . import downloads, fields, parts
from .fields import Field
from .page import Here
from .question import Question, from_query
from .shell import ADDRESS, keep_in_address

if TYPE_CHECKING:
    from dash.development.base_component import Component

    Draw = Callable[[AnyPrediction], list[Component]]

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Form:
    """Fields by their captions, for scenarios of a kind; `name` makes ids unique, `base` is asked about at first.

    `onward` are links to other pages that take the same question.
    """

    name: str
    kind: str
    base: str
    groups: Mapping[str, Sequence[Field]]
    onward: "Sequence[Callable[[Question], Component]]" = ()

    @property
    def fields(self) -> dict[str, Field]:
        """All fields by their keys."""
        return {one.key: one for group in self.groups.values() for one in group}

    def question(self, here: Here, query: str) -> Question:
        """What the address asks.

        Raises:
            UserError: it cannot be read, or is of no scenario that this form can ask about.
        """
        asked = from_query(query, self.base)
        here.library.scenario(asked.base, (self.kind,))
        here.answers.scenario(Question(asked.base))
        return asked

    def drawn(self, here: Here, query: str) -> "Component":
        """The fields with the values of the question of an address, and the places of the answer."""
        try:
            return self._drawn(here, self.question(here, query))
        except UserError as error:
            return html.Div([parts.unread(error), self._drawn(here, Question(self.base))])

    def _drawn(self, here: Here, question: Question) -> "Component":
        shown = self._shown(_with_changes(here, question))
        base = dmc.Select(
            id=f"{self.name}-base", label="Scenario", data=here.library.of_kind(self.kind), value=question.base,
            searchable=True, allowDeselect=False,
        )  # fmt: skip
        groups = [self._group(caption, group, shown) for caption, group in self.groups.items()]
        numbers = html.Div(id=f"{self.name}-numbers", className="answer", **{"aria-live": "polite"})
        figures = html.Div(id=f"{self.name}-figures")
        return html.Div(
            [
                html.Form([base, *groups], className="form", **{"aria-label": "Scenario"}),
                html.Div([_waited_for(numbers), _waited_for(figures)]),
                dcc.Store(id=f"{self.name}-query"),
                dcc.Store(id=f"{self.name}-asked", data=dict(question.changes)),
                dcc.Store(id=f"{self.name}-followed", data=self._followed(here, question, shown)),
            ],
            className="asking",
        )

    def _group(self, caption: str, group: Sequence[Field], shown: Values) -> "Component":
        drawn = [one.drawn(self.name, shown[one.key], not self._applies(one.key, shown)) for one in group]
        return dmc.Fieldset(html.Div(drawn, className="pair"), legend=caption)

    def connect(self, app: Dash, here: Here, numbers: "Draw", figures: "Draw") -> None:
        """A change of a field is answered and told in the address, or refused beside the field."""
        keep_in_address(app, f"{self.name}-query")
        fields.connect_sizes(app, self.name)
        self._hide(app)
        draw_anew(app, f"{self.name}-base")

        @app.callback(
            Output(f"{self.name}-numbers", "children"),
            Output(f"{self.name}-query", "data"),
            Output(f"{self.name}-figures", "className"),
            fields.faults_of(self.name),
            Output(f"{self.name}-followed", "data"),
            State(f"{self.name}-base", "value"),
            *fields.inputs(self.name),
            State(f"{self.name}-asked", "data"),
            State(f"{self.name}-followed", "data"),
        )
        def answer(base: str, values: list[Any], marks: list[Any], asked: Values, followed: Values) -> tuple[Any, ...]:
            keys = [one["id"]["key"] for one in ctx.inputs_list[0]]
            given = {key: value if mark is None else mark for key, value, mark in zip(keys, values, marks, strict=True)}
            try:
                question = self._asked(here, base, given, asked, followed)
                drawn = numbers(here.answers.predict(question))
            except UserError as error:
                by_key, _ = fields.told(error, keys)
                return self._refusal(error), no_update, "stale", [by_key.get(key) for key in keys], no_update
            followed = self._follow(here, question, given, _moved(given, followed))
            return [*drawn, *self._leads(question)], question.query(), "", [None] * len(keys), followed

        @app.callback(Output(f"{self.name}-figures", "children"), Input(f"{self.name}-query", "data"))
        def draw(query: str | None) -> Any:
            if query is None:
                return no_update
            return figures(here.answers.predict(from_query(query, self.base)))

    def _leads(self, question: Question) -> "list[Component]":
        """Where the question may be taken: to files, to other pages."""
        return [downloads.links(question), parts.row("Go on", [to(question) for to in self.onward])]

    def _hide(self, app: Dash) -> None:
        """Fields that say nothing beside what the others say are not shown; they are drawn as they begin."""
        if not any(one.applies for one in self.fields.values()):
            return

        @app.callback(
            Output({"form": self.name, "key": ALL, "part": "around"}, "hidden"),
            Input({"form": self.name, "key": ALL}, "value"),
            prevent_initial_call=True,
        )
        def hide(values: list[Any]) -> list[bool]:
            given = {one["id"]["key"]: value for one, value in zip(ctx.inputs_list[0], values, strict=True)}
            return [not self._applies(one["id"]["key"], given) for one in ctx.outputs_list]

    def _applies(self, key: str, given: Values) -> bool:
        says = self.fields[key].applies
        return says is None or says(given)

    def _asked(self, here: Here, base: str, given: Values, asked: Values, followed: Values) -> Question:
        """The changes of the address that have no field, as far as they still mean something, and the fields' own.

        A field that shows what follows from others, as it was `followed` before, changes nothing.
        """
        table, where = here.library.scenario(base)
        kept = {key: value for key, value in asked.items() if key not in self.fields}
        values = here.answers.values(Question(base, kept))
        told = {key: value for key, value in given.items() if self._applies(key, given)}
        told = {key: value for key, value in told.items() if key not in followed or followed[key] != value}
        own = fields.changes(self.fields, values, fields.read(self.fields, told))
        after = changed(changed(table, kept, where), own, where)
        left = {key: value for key in kept if (value := value_at(after, key)) is not None}
        return Question(base).changed({**left, **own})

    def _shown(self, values: Values) -> dict[str, Any]:
        """What the fields show of a scenario."""
        return {key: one.shown(value_at(values, key)) for key, one in self.fields.items()}

    def _follow(self, here: Here, question: Question, given: Values, moved: Collection[str]) -> dict[str, Any]:
        """Fields that nobody changed show what is asked; those that thereby show something else than the base."""
        shown = self._shown(here.answers.values(question))
        for key, field in self.fields.items():
            free = key not in question.changes and key not in moved and not field.pasted and self._applies(key, given)
            if free and given.get(key) not in (shown[key], _in_field(shown[key])):
                told = {"checked" if field.switch else "value": _in_field(shown[key])}
                set_props({"form": self.name, "key": key}, told)
        return self._followed(here, question, shown)

    def _followed(self, here: Here, question: Question, shown: Values) -> dict[str, Any]:
        """What fields show beside the base's own without a change of theirs: it follows from others."""
        base = self._shown(here.answers.values(Question(question.base)))
        return {key: value for key, value in shown.items() if key not in question.changes and value != base[key]}

    def _refusal(self, error: UserError) -> "Component":
        """Every fault in full, with the caption and label of its field: the field itself may be out of sight."""
        labels = {one.key: f"{caption}, {one.label}" for caption, group in self.groups.items() for one in group}
        lines = [html.P(line) for line in fields.called(error, labels)]
        return dmc.Alert(lines, title="This cannot be simulated", color="red", className="refusal")


def _moved(given: Values, followed: Values) -> set[str]:
    """The fields that somebody changed just now: not those that show what we wrote there, as they may come together."""
    keys = {one["key"] for one in ctx.triggered_prop_ids.values() if isinstance(one, Mapping)}
    ours = {key for key, value in followed.items() if given.get(key) in (value, _in_field(value))}
    return keys - ours


def _in_field(value: Any) -> Any:
    """What a field shows of a value: nothing is an empty text."""
    return "" if value is None else value


def _waited_for(part: Any) -> "Component":
    """What shows when it takes long; a figure that changes itself stays in sight, as does what is overtaken."""
    return dcc.Loading(
        part, type="circle", delay_show=500, target_components={part.id: "children"},
        overlay_style={"visibility": "visible", "opacity": 0.4},
    )  # fmt: skip


def _with_changes(here: Here, question: Question) -> Values:
    """What a question says, or where that is not allowed, its changes over what its scenario says."""
    try:
        return here.answers.values(question)
    except UserError:
        table = here.answers.values(Question(question.base))
    try:
        return changed(table, question.changes, "address")
    except UserError:
        return table


def draw_anew(app: Dash, base: str) -> None:
    """Another scenario in the Select of this id is another page: its fields are drawn with what it says."""
    app.clientside_callback(
        f"""(base) => {{
            dash_clientside.set_props("{ADDRESS}", {{search: "?base=" + encodeURIComponent(base)}});
            return dash_clientside.no_update;
        }}""",
        Output(base, "id"),
        Input(base, "value"),
        prevent_initial_call=True,
    )
