"""Compare: two to four scenarios side by side, what differs in what went in, and what that did to each term."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update

from ...simulator.answers.compare import Comparison, Side, compare, side_of
from ...simulator.answers.compare.page import Draw, timelines
from ...simulator.answers.compare.text import input_rows, inputs_title, metric_rows, sentences, signed, term_rows
from ...simulator.base.errors import UserError
from ...simulator.base.units import format_seconds
from ...simulator.figures import difference
from .. import downloads, parts, stated, zooming
from ..page import Here, Page
from ..question import NAMES, Question, explain_link, from_sides_query, sides_query, written
from ..shell import keep_in_address
from ..tables import table

if TYPE_CHECKING:
    from dash.development.base_component import Component

ABOUT = "Scenarios side by side: what differs in what went in, and what that did to each term of the time."
BASE = "train-llama3-70b-64xh100"
KINDS = ("train_step", "weight_update", "rl_cycle")
FORM = "compare"
LEAST = 2
OWN = (Question(BASE), Question(BASE, {"cluster": "h200-hgx"}))
"""What the page asks where its address asks nothing."""

Pairs = Mapping[str, Comparison]
"""Comparisons with A, by the names of their other sides."""

_SAME_SPAN = f"""(moved, ids) => {{
    const told = window.dash_clientside.callback_context.triggered.map(({{value}}) => ({zooming.SEEN_OF})(value));
    const seen = told.find((one) => one !== null);
    if (seen === undefined) return window.dash_clientside.no_update;
    const drawn = [...document.querySelectorAll("#compare-timelines .js-plotly-plot")];
    const others = drawn.filter(({{layout: {{xaxis: {{range, autorange}}}}}}) =>
        seen === "all" ? !autorange : range[0] !== seen[0] || range[1] !== seen[1]);
    for (const other of others)
        window.Plotly.relayout(other, seen === "all" ? {{"xaxis.autorange": true}} : {{"xaxis.range": [...seen]}});
    return others.length || drawn.length === 1 ? seen : window.dash_clientside.no_update;
}}"""
"""Zooming into one timeline zooms into the others; those that follow say nothing new."""


def layout(here: Here, query: str) -> "Component":
    """The sides, and the place of what is said of them."""
    try:
        questions, unread = asked(here, query), []
    except UserError as error:
        questions, unread = list(OWN), [parts.unread(error)]
    sides = [
        html.Div(
            stated.drawn(FORM, name, name.upper(), _of(questions, i), here.library, KINDS),
            id={"side": FORM, "name": name},
            hidden=i >= len(questions),
        )
        for i, name in enumerate(NAMES)
    ]
    buttons = [
        dmc.Button("Add a side", id="compare-more", variant="default", size="xs"),
        dmc.Button("Take the last away", id="compare-fewer", variant="default", size="xs"),
    ]
    return html.Div(
        [
            parts.heading("Compare", ABOUT),
            *unread,
            html.Form([html.Div(sides, className="sides"), html.Div(buttons, className="bar")],
                      **{"aria-label": "Scenarios"}),
            dcc.Loading(html.Div(id="compare-answer", className="answer", **{"aria-live": "polite"}), delay_show=500),
            dcc.Store(id="compare-count", data=len(questions)),
            dcc.Store(id="compare-query"),
            dcc.Store(id="compare-seen"),
        ]
    )  # fmt: skip


def asked(here: Here, query: str) -> list[Question]:
    """The questions of an address, two at least: the page's own where it asks none.

    Raises:
        UserError: one cannot be read, or is of no scenario.
    """
    found = from_sides_query(query, BASE)
    for question in found:
        here.library.scenario(question.base)
    return [*found, *([found[0]] if len(found) == 1 else [])] or list(OWN)


def connect(app: Dash, here: Here) -> None:
    """Sides come and go; what they say is compared and told in the address."""
    keep_in_address(app, "compare-query")
    stated.connect(app, FORM)
    _zoom(app, here)

    @app.callback(
        Output("compare-count", "data"),
        Output({"side": FORM, "name": ALL}, "hidden"),
        Output("compare-more", "disabled"),
        Output("compare-fewer", "disabled"),
        Input("compare-more", "n_clicks"),
        Input("compare-fewer", "n_clicks"),
        State("compare-count", "data"),
    )
    def count(more: int | None, fewer: int | None, now: int) -> tuple[Any, ...]:
        step = {"compare-more": 1, "compare-fewer": -1}.get(ctx.triggered_id or "", 0)
        then = min(max(now + step, LEAST), len(NAMES))
        return then, [i >= then for i in range(len(NAMES))], then == len(NAMES), then == LEAST

    @app.callback(
        Output("compare-answer", "children"),
        Output("compare-query", "data"),
        stated.faults_of(FORM),
        *stated.inputs(FORM),
        Input("compare-count", "data"),
    )
    def answer(bases: list[str], lines: list[str | None], shown: int) -> tuple[Any, ...]:
        faults: list[str | None] = [None] * len(NAMES)
        questions, sides = list[Question](), list[Side]()
        for i in range(shown):
            try:
                questions.append(stated.question_of(bases[i], lines[i]))
                sides.append(side(here, questions[-1]))
            except UserError as error:
                faults[i] = stated.told(error)
        said = [f"{name.upper()}: {line}" for name, fault in zip(NAMES, faults, strict=True) if fault
                for line in fault.splitlines()]  # fmt: skip
        if said:
            return stated.refusal("\n".join(said)), no_update, faults
        try:
            drawn = compared(dict(zip(NAMES, sides, strict=False)), questions)
        except UserError as error:
            return stated.refusal("\n".join(error.faults)), no_update, faults
        return drawn, sides_query(questions), faults


def _zoom(app: Dash, here: Here) -> None:
    """Timelines go together, and are drawn anew for what is seen of them."""
    app.clientside_callback(
        _SAME_SPAN,
        Output("compare-seen", "data"),
        Input({"timeline": FORM, "name": ALL}, "relayoutData"),
        State({"timeline": FORM, "name": ALL}, "id"),
        prevent_initial_call=True,
    )

    @app.callback(
        Output({"timeline": FORM, "name": ALL}, "figure"),
        Input("compare-seen", "data"),
        State({"timeline": FORM, "name": ALL}, "id"),
        State("compare-query", "data"),
        prevent_initial_call=True,
    )
    def zoom(seen: zooming.Seen, ids: Sequence[Any], query: str | None) -> list[Any]:
        window = zooming.window_of(seen, 1.0)
        if query is None or window is None:
            return [no_update] * len(ids)
        sides = {name: side(here, question) for name, question in zip(NAMES, asked(here, query), strict=False)}
        drawn = [draw(None if seen == "all" else window) for draw in drawings(sides).values()]
        return [zooming.nearer(figure) for figure in drawn] if len(drawn) == len(ids) else [no_update] * len(ids)


def side(here: Here, question: Question) -> Side:
    """The prediction of a question as a side.

    Raises:
        UserError: the question has no answer.
    """
    called = [f"{key}={written(value)}" for key, value in question.changes.items()]
    return side_of(here.answers.predict(question), question.base, called)


def compared(sides: Mapping[str, Side], questions: Sequence[Question]) -> "list[Component]":
    """All that is said of sides by name; the others are held against the first.

    Raises:
        UserError: they are of different kinds.
    """
    (first, a), *others = [(name.upper(), side) for name, side in sides.items()]
    pairs = {name: compare(a, b) for name, b in others}
    links = [link for name, question in zip(sides, questions, strict=True)
             for link in _leads(name.upper(), sides[name], question)]  # fmt: skip
    return [
        headline(first, a, pairs),
        *[parts.said([f"{name}: {line}" if len(pairs) > 1 else line for line in sentences(found)])
          for name, found in pairs.items()],
        html.Div(links, className="bar said"),
        went_in(pairs),
        terms(pairs),
        *parts.figures({f"From A to {name}": _waterfall(found) for name, found in pairs.items()
                        if found.terms and not found.same}),
        metrics(pairs),
        html.Section([html.H2("When what ran"), html.Div(_timelines(sides), id="compare-timelines")]),
    ]  # fmt: skip


def _leads(name: str, side: Side, question: Question) -> list[html.A]:
    """Where a side may be taken; RL cycles are not explained."""
    explained = [explain_link(question, f"Explain {name}")] if side.kind != "rl_cycle" else []
    return [*explained, downloads.scenario_link(question, f"{name} as scenario (TOML)")]


def headline(first: str, a: Side, pairs: Pairs) -> "Component":
    """The times."""
    rows = [(first, format_seconds(a.total_s), _interval(a))]
    for name, found in pairs.items():
        change = "the same" if found.same else f"{found.ratio - 1:+.1%} against A"
        rows.append((name, format_seconds(found.b.total_s), f"{change}; {_interval(found.b)}".rstrip("; ")))
    return parts.numbers(rows)


def went_in(pairs: Pairs) -> "Component":
    """Inputs that differ; what is not as in A is marked."""
    rows = joined({name: input_rows(found) for name, found in pairs.items()}, lambda a: (a,))
    marked = [(i, j) for i, row in enumerate(rows) for j in range(2, len(row)) if row[j] != row[1]]
    if not rows:
        return html.Section([html.H2("What went in"), parts.said([inputs_title(found) for found in pairs.values()])])
    return table("What went in", ("key", "A", *pairs), rows, marked)


def terms(pairs: Pairs) -> "Component":
    """Seconds by term, of A and of each other side with what it takes longer."""
    found = {name: [row[:4] for row in term_rows(pair)] for name, pair in pairs.items()}
    for name, pair in pairs.items():
        total = format_seconds(pair.a.total_s), format_seconds(pair.b.total_s)
        found[name].append(("total", *total, "0 s" if pair.same else signed(pair.difference_s)))
    columns = [column for name in pairs for column in (name, f"{name} - A")]
    rows = joined(found, lambda _: ("-", "-"))
    return table("Seconds by term", ("term", "A", *columns), [*_but_total(rows)])


def metrics(pairs: Pairs) -> "Component":
    """What else came out, of A and of each other side with its ratio."""
    columns = [column for name in pairs for column in (name, f"{name} to A")]
    rows = joined({name: metric_rows(found) for name, found in pairs.items()}, lambda _: ("-", "-"))
    return table("What else came out", ("metric", "A", *columns), rows)


def joined(tables: Mapping[str, Sequence[tuple[str, ...]]], absent: Any) -> list[tuple[str, ...]]:
    """Rows (key, A, others) of pairs as rows (key, A, others of each); `absent(A)` stands where a pair has none."""
    by_key = [{row[0]: row for row in rows} for rows in tables.values()]
    keys = dict.fromkeys(key for rows in by_key for key in rows)
    found = []
    for key in keys:
        a = next(rows[key][1] for rows in by_key if key in rows)
        found.append((key, a, *(cell for rows in by_key for cell in (rows[key][2:] if key in rows else absent(a)))))
    return found


def _but_total(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The total last, whatever terms later sides have."""
    return sorted(rows, key=lambda row: row[0] == "total")


def _waterfall(found: Comparison) -> Any:
    moved = [(term.name, term.difference_s) for term in found.terms if not found.is_nothing(term)]
    return difference(moved, found.a.total_s, found.b.total_s)


def drawings(sides: Mapping[str, Side]) -> dict[str, Draw]:
    """The timelines of sides, by their captions."""
    return timelines({name.upper(): side for name, side in sides.items()}, zooming.MOST_SPANS)


def _timelines(sides: Mapping[str, Side]) -> "list[Component]":
    return [
        parts.figure(caption, draw(None), level=3, id={"timeline": FORM, "name": caption})
        for caption, draw in drawings(sides).items()
    ]


def _interval(side: Side) -> str:
    return (
        ""
        if side.interval is None
        else f"90 %: {format_seconds(side.interval[0])} to {format_seconds(side.interval[1])}"
    )


def _of(questions: Sequence[Question], i: int) -> Question:
    """What a side says; one that is not shown yet begins as the scenario of A."""
    return questions[i] if i < len(questions) else Question(questions[0].base)


PAGE = Page("/compare", "Compare", "side by side", layout, connect)
