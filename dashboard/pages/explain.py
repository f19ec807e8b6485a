"""Explain: what bounds a step or an update, what each of its numbers is worth, and what would help.

Three answers, one behind the other: what it is made of comes with one simulation; numbers are weighed to first order in
a process of their own; simulating them again, and the what-ifs, begins when asked for.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update

from ...simulator.answers.explain import Explanation, Knob, Turned, text
from ...simulator.answers.explain.page import bars
from ...simulator.base.errors import UserError
from ...simulator.base.units import format_bytes, format_seconds
from ...simulator.figures import tornado, waterfall
from .. import downloads, parts, stated
from ..answers import Library
from ..looks import Look, Looks, weighed
from ..page import Here, Page
from ..question import Question, compare_link, from_query
from ..shell import keep_in_address
from ..tables import table

if TYPE_CHECKING:
    from dash.development.base_component import Component

ABOUT = "What bounds a training step or a weight update, what each number is worth, and which changes help most."
BASE = "train-llama3-70b-64xh100"
KINDS = ("train_step", "weight_update")
FORM = "explain"
TIMES = "times:"
"""Before the name of a number in an address: what a slider multiplies it by."""
SLIDERS = 10
LEAST, MOST, STEP = 0.5, 2.0, 0.05
LEAST_SHARE = 0.005


def layout(here: Here, query: str) -> "Component":
    """The scenario, and the places of what is said of it."""
    try:
        (question, factors), unread = asked(here, query), []
    except UserError as error:
        (question, factors), unread = (Question(BASE), dict[str, float]()), [parts.unread(error)]
    side = stated.drawn(FORM, "a", "What to explain", question, here.library, KINDS)
    answer = [
        dcc.Loading(html.Div(id="explain-look", className="answer", **{"aria-live": "polite"}), delay_show=500),
        html.Div([_what_if(), _worth(), _help()], id="explain-rest"),
    ]
    stores = [
        dcc.Store(id="explain-query"), dcc.Store(id="explain-address"), dcc.Store(id="explain-factors", data=factors)
    ]  # fmt: skip
    form = html.Form([html.Div(side, className="sides"), html.Div(id="explain-links")], className="form",
                     **{"aria-label": "Scenario"})  # fmt: skip
    below = html.Div([form, html.Div(answer), *stores], className="asking")
    return html.Div([parts.heading("Explain", ABOUT), *unread, below])


def asked(here: Here, query: str) -> tuple[Question, dict[str, float]]:
    """The question of an address and its factors.

    Raises:
        UserError: it cannot be read, or is of no scenario that can be explained.
    """
    pairs = parse_qsl(query.removeprefix("?"), keep_blank_values=True)
    rest = [(key, value) for key, value in pairs if not key.startswith(TIMES)]
    question = from_query("?" + urlencode(rest), BASE)
    here.library.scenario(question.base, KINDS)
    return question, dict(_factors((key, value) for key, value in pairs if key.startswith(TIMES)))


def address(query: str, factors: Mapping[str, float]) -> str:
    """A query with the factors that are not one."""
    moved = [(TIMES + name, f"{factor:g}") for name, factor in factors.items() if factor != 1]
    return query + ("&" + urlencode(moved, safe=":") if moved else "")


def connect(app: Dash, here: Here) -> None:
    """Looks at once, weighs in the background, tries what-ifs when asked."""
    keep_in_address(app, "explain-address")
    stated.connect(app, FORM)
    looks = Looks(here.library)
    _connect_look(app, looks)
    _connect_sliders(app, looks)
    _connect_background(app, here)


def _connect_look(app: Dash, looks: Looks) -> None:
    @app.callback(
        Output("explain-look", "children"),
        Output("explain-query", "data"),
        Output("explain-links", "children"),
        Output("explain-rest", "className"),
        stated.faults_of(FORM),
        *stated.inputs(FORM),
    )
    def look(bases: list[str], lines: list[str | None]) -> tuple[Any, ...]:
        try:
            question = stated.question_of(bases[0], lines[0])
            found = looks.look(question)
        except UserError as error:
            said = stated.told(error)
            return stated.refusal(said), no_update, no_update, "stale", [said]
        return looked(found), question.query(), links(question), "", [None]

    @app.callback(Output("explain-address", "data"), Input("explain-query", "data"), Input("explain-factors", "data"))
    def keep(query: str | None, factors: Mapping[str, float]) -> Any:
        return no_update if query is None else address(query, factors)


def _connect_sliders(app: Dash, looks: Looks) -> None:
    sliders = {"slider": FORM, "knob": ALL}

    @app.callback(
        Output("explain-turned", "children"),
        Output("explain-factors", "data"),
        Output({"turned": FORM, "knob": ALL}, "children"),
        Input(sliders, "value"),
        State("explain-query", "data"),
        prevent_initial_call=True,
    )
    def turn(values: list[float], query: str | None) -> tuple[Any, ...]:
        names = [one["id"]["knob"] for one in ctx.inputs_list[0]]
        if not names or query is None:
            return no_update, no_update, [no_update] * len(names)
        found = looks.look(from_query(query, BASE))
        factors = dict(zip(names, values, strict=True))
        try:
            drawn: Any = turned(found.turned(factors), found.explanation.what)
        except UserError as error:
            drawn = stated.refusal(stated.told(error))
        texts = [moved(found.knobs[name], factor) if name in found.knobs else "" for name, factor in factors.items()]
        return drawn, {name: factor for name, factor in factors.items() if factor != 1}, texts

    @app.callback(
        Output(sliders, "value"), Input("explain-reset", "n_clicks"), State(sliders, "value"), prevent_initial_call=True
    )
    def reset(_: int, values: list[float]) -> list[float]:
        return [1.0] * len(values)


def _connect_background(app: Dash, here: Here) -> None:
    folder = here.library.folder  # a plain value: the work is done in another process

    @app.callback(
        output=[Output("explain-worth", "children"), Output("explain-knobs", "children")],
        inputs=[Input("explain-query", "data"), State("explain-factors", "data")],
        background=True,
        progress=Output("explain-worth-progress", "children"),
        progress_default="",
        running=[
            (Output("explain-worth-cancel", "disabled"), False, True),
            (Output("explain-worth-progress", "children"), "Numbers are weighed ...", ""),
        ],
        cancel=Input("explain-worth-cancel", "n_clicks"),
        prevent_initial_call=True,
    )
    def weigh(tell: Callable[[str], None], query: str | None, factors: Mapping[str, float]) -> list[Any]:
        found = _weighed(folder, query, True, tell)
        return found if not isinstance(found, Explanation) else [worth(found), sliders_of(found, factors)]

    @app.callback(
        output=[Output("explain-help", "children")],
        inputs=[Input("explain-try", "n_clicks"), State("explain-query", "data")],
        background=True,
        progress=Output("explain-help-progress", "children"),
        progress_default="",
        running=[
            (Output("explain-help-cancel", "disabled"), False, True),
            (Output("explain-help-progress", "children"), "What-ifs are simulated ...", ""),
            (Output("explain-try", "disabled"), True, False),
        ],
        cancel=[Input("explain-help-cancel", "n_clicks"), Input("explain-query", "data")],
        prevent_initial_call=True,
    )
    def try_all(tell: Callable[[str], None], clicks: int | None, query: str | None) -> list[Any]:
        found = _weighed(folder, query if clicks else None, False, tell)
        return found[:1] if not isinstance(found, Explanation) else [helped(found, from_query(query or "", BASE))]

    for name in ("worth", "help"):
        _connect_cancel(app, name)

    @app.callback(
        Output("explain-help", "children", allow_duplicate=True),
        Input("explain-query", "data"),
        prevent_initial_call=True,
    )
    def forget(_: str | None) -> list[Any]:
        return []


def _connect_cancel(app: Dash, name: str) -> None:
    @app.callback(
        Output(f"explain-{name}", "children", allow_duplicate=True),
        Input(f"explain-{name}-cancel", "n_clicks"),
        prevent_initial_call=True,
    )
    def stopped(_: int) -> "Component":
        return parts.said(["Stopped before the end."])


def _weighed(folder: Any, query: str | None, quick: bool, tell: Callable[[str], None]) -> Any:
    """An Explanation, or two outputs that say why there is none."""
    if query is None:
        return [no_update, no_update]
    try:
        return weighed(Library(folder), from_query(query, BASE), quick, tell)
    except UserError as error:
        return [stated.refusal(stated.told(error)), []]


def looked(found: Look) -> "list[Component]":
    """What one simulation says."""
    said, report = found.explanation, found.case.report
    parts_of, total_s = said.parts, said.total_s
    interval = f"90 %: {format_seconds(report.interval_low_s)} to {format_seconds(report.interval_high_s)}"
    waits = (
        []
        if parts_of.bubble_s is None
        else [("Bubble", f"{parts_of.bubble_s / total_s:.1%}", "waiting for other stages")]
    )
    fits = f"of {format_bytes(said.device_memory_bytes)}{'' if said.fits else ': does not fit'}"
    rows = [
        (f"{said.what.capitalize()} time", format_seconds(total_s), interval),
        ("Bound by", said.bound_by, f"{parts_of.path_s[said.bound_by] / total_s:.0%} of the critical path"),
        ("Exposed", f"{parts_of.exposed_path_s / total_s:.1%}", "communication on the critical path"),
        *waits,
        ("Host threads", f"{parts_of.host_s / total_s:.1%}", "of the critical path"),
        ("Memory", format_bytes(said.memory_bytes), fits),
    ]
    made = {
        f"What the {said.what} is made of": waterfall(parts_of.split_s, said.what),
        "Its critical path by kind of op": waterfall(_largest(parts_of.class_s, total_s), "critical path"),
    }
    return [
        parts.numbers(rows),
        parts.said([said.question, *text.sentences(said), f"scenario {said.scenario_hash}"]),
        *parts.figures(made),
        table("Seconds and critical path by phase", text.PART_COLUMNS, text.part_rows(said)),
    ]


def worth(found: Explanation) -> "list[Component]":
    """What a tenth of each number is worth."""
    rows = [_without_simulated(row, found.quick) for row in text.knob_rows(found.sensitivities)]
    columns = ("number", "now", "better", "worse", "") if found.quick else text.KNOB_COLUMNS
    none = f"{len(found.without_effect)} more numbers have no effect on this {found.what}."
    return [
        parts.figure("What a tenth is worth", tornado(bars(found), found.total_s, found.what), level=3),
        parts.said([none]),
        table("A tenth better or worse", columns, rows, level=3),
    ]


def helped(found: Explanation, question: Question) -> "list[Component]":
    """Numbers simulated again, and what-ifs by gain; a name leads to both sides."""
    links = {one.name: compare_link(one.name, question, question.changed(one.changes)) for one in found.tried}
    rows = [(links[row[0]], *row[1:]) for row in text.what_if_rows(found.tried, found)]
    refused = [(one.name, one.reason.partition(": ")[2] or one.reason) for one in found.refused]
    tried = f"{len(found.tried)} what-ifs were simulated, {len(found.refused)} do not go with this scenario."
    return [
        parts.said([*_best(found), tried]),
        table("Changes, by what they save", text.WHAT_IF_COLUMNS, rows, level=3),
        html.Details(
            [html.Summary("Not allowed here"), table("Not allowed here", ("what if", "why"), refused, level=3)]
        ),
        html.H3("Numbers, simulated again"),
        *worth(found),
    ]


def turned(found: Turned, what: str) -> "Component":
    """The predicted time with numbers turned, next to that without."""
    change = found.total_s / found.now_s - 1
    first = f"first order: {format_seconds(found.first_order_s)}"
    rows = [
        (f"{what.capitalize()} time now", format_seconds(found.now_s), "as the scenario says"),
        ("With the sliders", format_seconds(found.total_s), first if found.simulated_s is not None else "first order"),
        ("Change", f"{change:+.2%}" if abs(change) >= 5e-5 else "none", "below zero is faster"),
    ]
    return parts.numbers(rows)


def sliders_of(found: Explanation, factors: Mapping[str, float]) -> "list[Component]":
    """Sliders of the numbers that matter most, and of those that the address turns."""
    known = [one.knob for one in found.sensitivities]
    shown = known[:SLIDERS] + [knob for knob in known[SLIDERS:] if knob.name in factors]
    return [_slider(knob, factors.get(knob.name, 1.0)) for knob in shown]


def moved(knob: Knob, factor: float) -> str:
    """A number, and what it is turned to."""
    return knob.text if factor == 1 else f"{knob.text}, turned to {replace(knob, now=knob.now * factor).text}"


def links(question: Question) -> "Component":
    """Where a question may be taken: to files, to another page."""
    compare = html.Div(compare_link("Compare with something else", question, question), className="bar")
    return html.Div([downloads.links(question), compare])


def _slider(knob: Knob, factor: float) -> "Component":
    most = min(MOST, knob.most / knob.now)
    ticks = [{"value": tick, "label": f"×{tick:g}"} for tick in (0.5, 1.0, 1.5, 2.0) if tick <= most]
    value = html.Span(moved(knob, factor), id={"turned": FORM, "knob": knob.name})
    return html.Div(
        [
            html.P([html.Strong(knob.name), f", {knob.about}: ", value]),
            dmc.Slider(
                id={"slider": FORM, "knob": knob.name}, min=LEAST, max=max(most, 1.0), step=STEP, value=factor,
                precision=2, marks=ticks, updatemode="mouseup", thumbLabel=f"{knob.name}, times",
            ),
        ],
        className="knob",
    )  # fmt: skip


def _what_if() -> "Component":
    reset = dmc.Button("Set all back", id="explain-reset", variant="default", size="xs")
    return html.Section(
        [html.H2("What if"),
         html.P("Each number times a factor: links of the machine and kinds of kernels, those that matter most.",
                className="said"),
         html.Div(id="explain-turned", **{"aria-live": "polite"}),
         html.Div("Sliders come when the numbers are weighed.", id="explain-knobs", className="knobs"), reset]
    )  # fmt: skip


def _worth() -> "Component":
    return html.Section([html.H2("What each number is worth"), _bar("worth"), html.Div(id="explain-worth")])


def _help() -> "Component":
    start = dmc.Button("Simulate again, and try what-ifs", id="explain-try", size="xs")
    return html.Section([html.H2("What would help"), _bar("help", start), html.Div(id="explain-help")])


def _bar(name: str, *first: "Component") -> "Component":
    """Start, cancel and how far it is."""
    cancel = dmc.Button("Cancel", id=f"explain-{name}-cancel", variant="default", size="xs", disabled=True)
    return html.Div([*first, cancel, html.Span(id=f"explain-{name}-progress", role="status")], className="bar said")


def _best(found: Explanation) -> list[str]:
    best = {f"of the {'plan' if found.what == 'step' else 'update'}": found.best, "of the machine": found.best_machines}
    return [
        f"Changes {of} that help most: {', '.join(f'{one.name} ({one.gain:.1%})' for one in some)}."
        for of, some in best.items()
        if some
    ]


def _largest(seconds: Mapping[str, float], total_s: float) -> dict[str, float]:
    """Those that are seen; the small ones together."""
    shown = {name: s for name, s in seconds.items() if s >= LEAST_SHARE * total_s}
    rest_s = sum(seconds.values()) - sum(shown.values())
    return {**shown, "all others": rest_s} if len(shown) < len(seconds) else shown


def _without_simulated(row: tuple[str, ...], quick: bool) -> tuple[str, ...]:
    """Rows of a quick explanation have nothing in the columns of simulated changes."""
    return (*row[:2], row[3], row[5], row[6]) if quick else row


def _factors(pairs: Any) -> "Any":
    for key, value in pairs:
        try:
            factor = float(value)
        except ValueError:
            continue
        if LEAST <= factor <= MOST:
            yield key.removeprefix(TIMES), factor


PAGE = Page("/explain", "Explain", "bounds, sensitivities, what helps", layout, connect)
