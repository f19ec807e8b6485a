"""Compare: two to four scenarios or real runs side by side, inputs that differ, and what they do to each term."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, ctx, dcc, html, no_update

from ...simulator.answers.compare import Comparison, Side, compare, side_of
from ...simulator.answers.compare.text import (
    input_rows,
    inputs_title,
    metric_rows,
    sentences,
    signed_seconds,
    term_rows,
    timelines,
    waterfall,
)
from ...simulator.base.errors import UserError
from ...simulator.base.units import format_long
from ...simulator.figures import Window, first_look
from ...simulator.systems.registry import SYSTEMS
from .. import downloads, parts, zoom
from ..forms import cancel, typed_form
from ..page import Here, Page, inputs, keep_in_address, outputs
from ..question import BASE, NAMES, Question, explain_link, parse_sides_query, sides_query, value_text
from ..stopping import StoppedError
from ..tables import table

if TYPE_CHECKING:
    from dash.development.base_component import Component

ABOUT = (
    "Scenarios side by side: inputs that differ, and what they do to each term of the time. Logs and traces of your "
    "runs stand among the scenarios if they are in the folder of --data."
)
KINDS = tuple(SYSTEMS)
FORM = "compare"
LEAST = 2
OWN = (Question(BASE), Question(BASE, {"cluster": "h200-hgx"}))
"""What the page asks where its address asks nothing."""

Pairs = Mapping[str, Comparison]
"""Comparisons with A, by the names of their other sides."""
Rows = Sequence[tuple[str, ...]]


def layout(here: Here, query: str) -> "Component":
    """The sides, and the place of what is said of them; one that is not shown yet begins as the scenario of A."""
    questions = questions_of(here, query)
    runs = list(here.library.runs())
    first = [*questions, *[Question(questions[0].base)] * len(NAMES)]
    sides = [
        html.Div(
            typed_form.draw(FORM, name, name.upper(), first[i], here.library, KINDS, runs),
            id={"side": FORM, "name": name},
            hidden=i >= len(questions),
        )
        for i, name in enumerate(NAMES)
    ]
    buttons = [parts.button("Add a side", "compare-more"), parts.button("Remove the last one", "compare-fewer")]
    form = [html.Div(sides, className="sides"), html.Div(buttons, className="bar")]
    answer = html.Div(id="compare-answer", className="answer", **{"aria-live": "polite"})
    return html.Div(
        [
            html.Form(form, **{"aria-label": "Scenarios"}),
            dcc.Loading(answer, delay_show=500, custom_spinner=cancel.draw("compare")),
            dcc.Store(id="compare-count", data=len(questions)),
            dcc.Store(id="compare-query"),
            dcc.Store(id="compare-seen"),
            *cancel.stores("compare"),
        ]
    )


def questions_of(here: Here, query: str) -> list[Question]:
    """The questions of an address, two at least: the page's own where it asks none.

    Raises:
        UserError: one cannot be read, or is of no scenario.
    """
    found = parse_sides_query(query, BASE)
    for question in found:
        if here.library.run(question.base) is None:
            here.library.scenario(question.base)
    return [*found, *([found[0]] if len(found) == 1 else [])] or list(OWN)


def connect(app: Dash, here: Here) -> None:
    """Sides come and go; what they say is compared and told in the address."""
    keep_in_address(app, "compare-query")
    typed_form.connect(app, FORM)
    cancel.connect(app, here, "compare")
    _zoom(app, here)

    @app.callback(
        Output("compare-count", "data"),
        Output({"side": FORM, "name": ALL}, "hidden"),
        *outputs("compare", "more.disabled", "fewer.disabled"),
        *inputs("compare", "more.n_clicks", "fewer.n_clicks"),
        State("compare-count", "data"),
    )
    def count(more: int | None, fewer: int | None, now: int) -> tuple[Any, ...]:
        step = {"compare-more": 1, "compare-fewer": -1}.get(ctx.triggered_id or "", 0)
        then = min(max(now + step, LEAST), len(NAMES))
        return then, [i >= then for i in range(len(NAMES))], then == len(NAMES), then == LEAST

    @app.callback(
        *outputs("compare", "answer.children", "query.data"),
        typed_form.faults_of(FORM),
        *typed_form.inputs(FORM),
        Input("compare-count", "data"),
        cancel.job("compare"),
    )
    def answer(bases: list[str], lines: list[str | None], shown: int, job: str) -> tuple[Any, ...]:
        faults = dict[str, list[str]]()
        questions, sides = list[Question](), dict[str, Side]()
        for name, base, text in zip(NAMES[:shown], bases, lines, strict=False):
            try:
                questions.append(typed_form.question_of(base, text))
                sides[name.upper()] = make_side(here, questions[-1], job)
            except StoppedError as error:
                return parts.notes(error.faults), no_update, [None] * len(NAMES)
            except UserError as error:
                faults[name] = typed_form.faults(error)
        beside = ["\n".join(faults[name]) if name in faults else None for name in NAMES]
        if faults:
            said = [f"{name.upper()}: {line}" for name, lines in faults.items() for line in lines]
            return typed_form.refusal(said), no_update, beside
        try:
            return draw_comparison(sides, questions), sides_query(questions), beside
        except UserError as error:
            return typed_form.refusal(error.faults), no_update, beside


def _zoom(app: Dash, here: Here) -> None:
    """Timelines go together, and are drawn anew for what is seen of them."""
    graphs = {"timeline": FORM, "name": ALL}
    app.clientside_callback(
        ClientsideFunction("zoom", "together"),
        Output("compare-seen", "data"),
        Input(graphs, "relayoutData"),
        prevent_initial_call=True,
    )

    @app.callback(
        Output(graphs, "figure"),
        Input("compare-seen", "data"),
        State(graphs, "id"),
        State("compare-query", "data"),
        prevent_initial_call=True,
    )
    def redraw(seen: zoom.Seen, ids: Sequence[Any], query: str | None) -> list[Any]:
        window = zoom.window_of(seen, 1.0)
        if query is None or window is None:
            return [no_update] * len(ids)
        questions = zip(NAMES, questions_of(here, query), strict=False)
        sides = {name.upper(): make_side(here, question) for name, question in questions}
        drawn = [draw(None if seen == "all" else window) for draw in timelines(sides, zoom.MOST_SPANS).values()]
        return [zoom.patch(figure) for figure in drawn] if len(drawn) == len(ids) else [no_update] * len(ids)


def make_side(here: Here, question: Question, job: str = "") -> Side:
    """The prediction of a question, for a job, as a side; or the real run of its name.

    Raises:
        UserError: the question has no answer, or changes a run.
    """
    if here.library.run(question.base) is not None:
        if question.changes:
            raise UserError(f"{question.base}: is a real run; only a scenario can be changed")
        return here.answers.run(question.base)
    changes = [f"{key}={value_text(value)}" for key, value in question.changes.items()]
    return side_of(here.answers.predict(question, job), question.base, changes)


def draw_comparison(sides: Mapping[str, Side], questions: Sequence[Question]) -> "list[Component | None]":
    """All that is said of sides by name; the others are held against the first.

    Raises:
        UserError: they are of different kinds.
    """
    (first, a), *others = sides.items()
    pairs = {name: compare(a, b) for name, b in others}
    links = [link for (name, side), question in zip(sides.items(), questions, strict=True)
             for link in _links(name, side, question)]  # fmt: skip
    drawn = [
        zoom.figure(caption, draw(_first_look(sides)), level=3, id={"timeline": FORM, "name": caption})
        for caption, draw in timelines(sides, zoom.MOST_SPANS).items()
    ]
    return [
        _headline(first, a, pairs),
        *[parts.notes([f"{name}: {line}" if len(pairs) > 1 else line for line in sentences(found)])
          for name, found in pairs.items()],
        html.Div(links, className="bar said"),
        *[one for name, found in pairs.items() for one in parts.figures(waterfall(found, f"From A to {name}"))],
        _inputs(pairs),
        _terms(pairs),
        _table("Other metrics", "metric", pairs, metric_rows, "{} to A"),
        html.Section([html.H2("Timelines"), html.Div(drawn, id="compare-timelines")]) if drawn else None,
    ]  # fmt: skip


def _first_look(sides: Mapping[str, Side]) -> Window | None:
    """What is seen of all timelines at first, so that actions of pipelines can be told apart; None for all."""
    drawn = [one.drawn for one in sides.values()]
    looks = [first_look(one.timeline, one.grid) for one in drawn if one is not None and one.grid is not None]
    return max(looks, key=lambda look: look.end_s) if len(looks) == len(sides) else None


def _links(name: str, side: Side, question: Question) -> list[html.A]:
    """Links of a side to other pages and files; not every kind can be explained, and a real run is no scenario."""
    if side.measured:
        return []
    explained = [explain_link(question, f"Explain {name}")] if SYSTEMS[side.kind].what_ifs else []
    return [*explained, downloads.link(question, "scenario.toml", f"{name} as scenario (TOML)")]


def _headline(first: str, a: Side, pairs: Pairs) -> "Component":
    """The times."""
    cards = [(first, format_long(a.total_s), parts.interval(*a.interval) if a.interval else "")]
    for name, found in pairs.items():
        change = "the same" if found.same else f"{found.ratio - 1:+.1%} against A"
        change += " for as much work" if found.different_work else ""
        sure = f"; {parts.interval(*found.b.interval)}" if found.b.interval else ""
        cards.append((name, format_long(found.b.total_s), change + sure))
    return parts.numbers(cards)


def _inputs(pairs: Pairs) -> "Component":
    """Inputs that differ; what is not as in A is marked."""
    rows = join_rows({name: input_rows(found) for name, found in pairs.items()}, lambda a: (a,))
    marked = [(i, j) for i, row in enumerate(rows) for j in range(2, len(row)) if row[j] != row[1]]
    if not rows:
        return html.Section(
            [html.H2("Inputs that differ"), parts.notes([inputs_title(found) for found in pairs.values()])]
        )
    return table("Inputs that differ", ("key", "A", *pairs), rows, marked)


def _terms(pairs: Pairs) -> "Component | None":
    """Seconds by term, of A and of each other side with what it takes longer."""

    def rows_of(pair: Comparison) -> Rows:
        total = format_long(pair.a.total_s), format_long(pair.b.total_s)
        longer = "0 s" if pair.is_nothing(pair.total) else signed_seconds(pair.difference_s)
        return [*(row[:4] for row in term_rows(pair)), ("total", *total, longer)]

    return _table("Seconds by term", "term", pairs, rows_of, "{} - A")


def _table(
    caption: str, of: str, pairs: Pairs, rows_of: Callable[[Comparison], Rows], against: str
) -> "Component | None":
    """Rows of A and of each other side with what it has `against` A, if any; a total stands last."""
    columns = [column for name in pairs for column in (name, against.format(name))]
    rows = join_rows({name: rows_of(found) for name, found in pairs.items()}, lambda _: ("-", "-"))
    if not rows:
        return None
    return table(caption, (of, "A", *columns), sorted(rows, key=lambda row: row[0] == "total"))


def join_rows(tables: Mapping[str, Rows], absent: Callable[[str], tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Rows (key, A, others) of pairs as rows (key, A, others of each); `absent(A)` stands where a pair has none."""
    by_key = [{row[0]: row for row in rows} for rows in tables.values()]
    keys = dict.fromkeys(key for rows in by_key for key in rows)
    found = []
    for key in keys:
        a = next(rows[key][1] for rows in by_key if key in rows)
        found.append((key, a, *(cell for rows in by_key for cell in (rows[key][2:] if key in rows else absent(a)))))
    return found


PAGE = Page("/compare", "Compare", "side by side", ABOUT, layout, connect)
