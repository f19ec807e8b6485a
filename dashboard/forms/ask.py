"""A form that asks a question: fields beside an answer, the question in the address, faults beside their fields.

A page says which fields it has and how it draws numbers and figures; this wires them. Numbers come first, figures are
drawn by a callback of their own, so that a slider answers at once. Where a change of one field leaves out what another
one shows, that one then shows what is asked. `predicted_page` is a whole page whose answer is a prediction.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import ALL, ClientsideFunction, Dash, Input, Output, State, ctx, dcc, html, no_update

from ...simulator.answers.outputs import figures_of, timeline_caption
from ...simulator.base.errors import UserError
from ...simulator.scenario import change, value_at
from ...simulator.systems.registry import SYSTEMS
from .. import downloads, find, parts, zoom
from ..page import CLUSTER, PATHS, Here, Page, keep_in_address, open_with
from ..question import Question, compare_link, explain_link, parse_query
from ..stopping import StoppedError
from . import cancel, fields, pinned
from .fields import Field

if TYPE_CHECKING:
    from dash.development.base_component import Component

    Draw = Callable[[Question], list[Component]]
    Answer = Callable[[Question, str], list[Component]]

Values = Mapping[str, Any]
LOADED = ("train_step", "weight_update")
"""Kinds whose ops load the links of the cluster that they run on."""
Writes = list[tuple[str | dict[str, str], dict[str, Any]]]
"""Ids of elements and the properties that are written there (assets/writes.js)."""


@dataclass(frozen=True)
class Form:
    """Fields by their captions, for scenarios of a kind; `name` makes ids unique, `base` is asked about at first.

    `also` are further kinds that have these keys.
    """

    name: str
    kind: str
    base: str
    groups: Mapping[str, Sequence[Field]]
    also: tuple[str, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of scenarios that can be asked about."""
        return self.kind, *self.also

    @property
    def graph(self) -> str:
        """The id of the timeline among the figures, which a zoom draws anew."""
        return f"{self.name}-timeline"

    @property
    def fields(self) -> dict[str, Field]:
        """All fields by their keys."""
        return {one.key: one for group in self.groups.values() for one in group}

    def question(self, here: Here, query: str) -> Question:
        """What the address asks.

        Raises:
            UserError: it cannot be read, or is of no scenario that this form can ask about.
        """
        question = parse_query(query, self.base)
        here.library.scenario(question.base, self.kinds)
        here.answers.scenario(Question(question.base))
        return question

    def draw(
        self, here: Here, query: str, left: "Sequence[Component]" = (), right: "Sequence[Component]" = ()
    ) -> "Component":
        """The fields with the values of the question of an address, and the places of the answer; `left` is drawn below
        the fields, `right` below the answer.

        Raises:
            UserError: as `question`.
        """
        question = self.question(here, query)
        known = [name for kind in self.kinds for name in here.library.names_of_kind(kind)]
        base = parts.choice(f"{self.name}-base", "Scenario", known, question.base)
        values = _with_changes(here, question)
        shown = self._shown(values)
        groups = [
            self._group(caption, drawn, shown)
            for caption, group in self.groups.items()
            if (drawn := [one for one in group if one.of is None or value_at(values, one.of) is not None])
        ]
        numbers = html.Div(id=f"{self.name}-numbers", className="answer", **{"aria-live": "polite"})
        figures = html.Div(id=f"{self.name}-figures")
        return html.Div(
            [
                html.Form([base, *groups, *left], className="form", **{"aria-label": "Scenario"}),
                html.Div(
                    [_dimmed_while_loading(numbers, cancel.draw(self.name)), *right, _dimmed_while_loading(figures)]
                ),
                zoom.store(self.graph),
                dcc.Store(id=f"{self.name}-query"),
                dcc.Store(id=f"{self.name}-asked", data=dict(question.changes)),
                dcc.Store(id=f"{self.name}-followed", data=self._followed(here, question, shown)),
                dcc.Store(id=f"{self.name}-writes"),
                *cancel.stores(self.name),
            ],
            className="asking",
        )

    def _group(self, caption: str, group: Sequence[Field], shown: Values) -> "Component":
        drawn = [one.draw(self.name, shown[one.key], not self._applies(one.key, shown)) for one in group]
        return dmc.Fieldset(html.Div(drawn, className="pair"), legend=caption)

    def connect(self, app: Dash, here: Here, numbers: "Answer", figures: "Draw") -> None:
        """A change of a field is answered, or refused beside the field; the Store `query` then holds the question.

        `numbers` and `figures` draw what is said of a question, and raise a UserError where that is refused. `numbers`
        gets the name of the job, too, that Cancel stops.
        """
        fields.connect_sizes(app, self.name)
        self._hide(app)
        cancel.connect(app, here, self.name)
        writes = f"{self.name}-writes"
        app.clientside_callback(ClientsideFunction("writes", "write"), Output(writes, "id"), Input(writes, "data"))
        open_with(app, f"{self.name}-base")

        @app.callback(
            Output(f"{self.name}-numbers", "children"),
            Output(f"{self.name}-query", "data"),
            Output(f"{self.name}-figures", "className"),
            fields.faults_of(self.name),
            Output(f"{self.name}-writes", "data"),
            State(f"{self.name}-base", "value"),
            *fields.inputs(self.name),
            State(f"{self.name}-asked", "data"),
            State(f"{self.name}-followed", "data"),
            cancel.job(self.name),
        )
        def answer(
            base: str, values: list[Any], marks: list[Any], asked: Values, followed: Values, job: str
        ) -> tuple[Any, ...]:
            keys = [one["id"]["key"] for one in ctx.inputs_list[0]]
            given = {key: value if mark is None else mark for key, value, mark in zip(keys, values, marks, strict=True)}
            try:
                question = self.ask(here, base, given, asked, followed)
                drawn = numbers(question, job)
            except UserError as error:
                faults = {key: rest.lstrip(" =:") for key, rest in fields.faults_by_key(error, keys)}
                return self._refusal(error), no_update, "stale", [faults.get(key) for key in keys], no_update
            writes = self._follow(here, question, given, _moved(given, followed))
            return drawn, question.query(), "", [None] * len(keys), writes

        @app.callback(Output(f"{self.name}-figures", "children"), Input(f"{self.name}-query", "data"))
        def draw(query: str | None) -> Any:
            return no_update if query is None else figures(parse_query(query, self.base))

    def _hide(self, app: Dash) -> None:
        """Fields that say nothing beside what the others say are not shown; they are drawn as they begin."""

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

    def ask(self, here: Here, base: str, given: Values, asked: Values, followed: Values) -> Question:
        """The question of the fields' values: changes that were `asked` in the address and have no field, as far as
        they still mean something, and the fields' own.

        A field that shows what follows from others, as it was `followed` before, changes nothing.

        Raises:
            UserError: a pasted text cannot be read, or a change is none.
        """
        table, where = here.library.scenario(base)
        kept = {key: value for key, value in asked.items() if key not in given}
        values = here.answers.values(Question(base, kept))
        new = {key: value for key, value in given.items() if key not in followed or followed[key] != value}
        new = {key: value for key, value in new.items() if self._applies(key, given)}
        own = fields.changes(self.fields, values, fields.read(self.fields, new))
        after = change(change(table, kept, where), own, where)
        left = {key: value for key in kept if (value := value_at(after, key)) is not None}
        return Question(base).change({**left, **own})

    def _shown(self, values: Values) -> dict[str, Any]:
        """What the fields show of a scenario."""
        return {key: one.show(value_at(values, key)) for key, one in self.fields.items()}

    def _follow(self, here: Here, question: Question, given: Values, moved: Collection[str]) -> Writes:
        """Fields that nobody changed show what is asked; those that thereby show something else than the base are kept.

        Fields are no outputs, as they are inputs too. Dash's `set_props` would write them even where a later question
        has overtaken this one.
        """
        shown = self._shown(here.answers.values(question))
        writes: Writes = [(f"{self.name}-followed", {"data": self._followed(here, question, shown)})]
        for key, field in self.fields.items():
            drawn = key in given and not field.pasted and self._applies(key, given)
            free = drawn and key not in question.changes and key not in moved
            if free and given[key] not in (shown[key], _in_field(shown[key])):
                prop = "checked" if field.switch else "value"
                writes.append(({"form": self.name, "key": key}, {prop: _in_field(shown[key])}))
        return writes

    def _followed(self, here: Here, question: Question, shown: Values) -> dict[str, Any]:
        """What fields show beside the base's own without a change of theirs: it follows from others."""
        base = self._shown(here.answers.values(Question(question.base)))
        return {key: value for key, value in shown.items() if key not in question.changes and value != base[key]}

    def _refusal(self, error: UserError) -> "Component":
        """Every fault in full, with the caption and label of its field: the field itself may be out of sight."""
        if isinstance(error, StoppedError):
            return parts.notes(error.faults)
        labels = {one.key: f"{caption}, {one.label}" for caption, group in self.groups.items() for one in group}
        lines = [rest if key is None else labels[key] + rest for key, rest in fields.faults_by_key(error, labels)]
        return parts.alert("This cannot be simulated", lines, className="refusal")


def predicted_page(
    form: Form,
    name: str,
    menu: str,
    about: str,
    cards: "Callable[[Any], Iterable[parts.Card]]",
    figures: "Callable[[Any], list[Component]] | None" = None,
    more: Callable[[Dash, Here], Any] = lambda app, here: None,
    *beside: "Component",
) -> Page:
    """A page of the predictions that a form asks for: `cards` are the headline, `figures` what stands below it.

    Both get a prediction of the form's kind. Without `figures`, a page has those of the report of that kind. `more`
    adds callbacks, which may need what stands `beside`.
    """
    draw_figures = figures or (lambda prediction: draw_all(form, prediction))

    def connect(app: Dash, here: Here) -> None:
        def numbers(question: Question, job: str) -> "list[Component]":
            prediction = here.answers.predict(question, job)
            drawn = parts.headline(prediction.report, cards(prediction))
            return [*drawn, downloads.links(question), parts.link_row("Go on", onward(question, form.kind))]

        keep_in_address(app, f"{form.name}-query")
        pinned.connect(app, here, form.name, form.base)
        for connect_timeline in (zoom.connect, find.connect):
            connect_timeline(app, here, form.base, form.graph, f"{form.name}-query")
        form.connect(app, here, numbers, lambda question: draw_figures(here.answers.predict(question)))
        more(app, here)

    def layout(here: Here, query: str) -> "Component":
        return form.draw(here, query, right=[pinned.place(form.name), *beside])

    return Page(PATHS[form.kind], name, menu, about, layout, connect)


def draw_all(form: Form, prediction: Any) -> "list[Component]":
    """The figures that reports have, the timeline first, with the id by which a zoom draws it anew."""
    drawn, caption = figures_of(prediction, zoom.MOST_SPANS, opens_near=True), timeline_caption(form.kind)
    timeline = drawn.pop(caption, None)
    first = [] if timeline is None else [draw_timeline(form, caption, timeline)]
    return [*first, *parts.figures(drawn)]


def draw_timeline(form: Form, caption: str, drawn: Any) -> "Component":
    """A timeline that is drawn anew for what is seen of it."""
    return zoom.figure(caption, drawn, find.field(form.graph), id=form.graph)


def onward(question: Question, kind: str) -> "list[Component]":
    """Links to pages that ask more of a question; not every kind can be explained, or loads the links of a cluster."""
    explained = [explain_link(question)] if SYSTEMS[kind].what_ifs else []
    drawn = [html.A("Busy links", href=CLUSTER + question.query())] if kind in LOADED else []
    return [*explained, compare_link(question), *drawn]


def _moved(given: Values, followed: Values) -> set[str]:
    """The fields that somebody changed just now: not those that show what we wrote there, as they may come together."""
    keys = {one["key"] for one in ctx.triggered_prop_ids.values() if isinstance(one, Mapping)}
    ours = {key for key, value in followed.items() if given.get(key) in (value, _in_field(value))}
    return keys - ours


def _in_field(value: Any) -> Any:
    """What a field shows of a value: nothing is an empty text."""
    return "" if value is None else value


def _dimmed_while_loading(part: Any, shown: "Component | None" = None) -> "Component":
    """A circle, or what else is `shown`, when it takes long; a figure that changes itself stays in sight, as does what
    is overtaken.
    """
    return dcc.Loading(
        part, type="circle", delay_show=500, target_components={part.id: "children"}, custom_spinner=shown,
        overlay_style={"visibility": "visible", "opacity": 0.4},
    )  # fmt: skip


def _with_changes(here: Here, question: Question) -> Values:
    """What a question says, or where that is not allowed, its changes over what its scenario says."""
    try:
        return here.answers.values(question)
    except UserError:
        table = here.answers.values(Question(question.base))
    try:
        return change(table, question.changes, "address")
    except UserError:
        return table
