"""Explain: what bounds a prediction, what each of its numbers is worth, and what would help.

Three answers, one behind the other: what it is made of comes with one simulation; numbers are weighed to first order in
a process of their own, but not those of runs and RL cycles (`explain_levers`); simulating them again, and the what-ifs,
begins when asked for.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update

from ...simulator.answers.explain import Explanation, Knob, Turned, text
from ...simulator.answers.explain.text import bars
from ...simulator.base.errors import UserError
from ...simulator.base.units import format_bytes, format_seconds
from ...simulator.figures import tornado, waterfall
from ...simulator.systems.registry import SYSTEMS
from .. import downloads, parts
from ..answers import Look, case_of, explain
from ..background import enabling
from ..forms import cancel, typed_form
from ..library import Library
from ..page import Here, Page, inputs, keep_in_address, outputs
from ..question import BASE, Question, compare_link, pairs_of, parse_query
from ..stopping import StoppedError
from ..tables import table
from . import explain_levers

if TYPE_CHECKING:
    from dash.development.base_component import Component

ABOUT = "What bounds a step, an update, a run or an RL cycle, what each number is worth, and which changes help most."
KINDS = tuple(kind for kind, system in SYSTEMS.items() if system.what_ifs)
FORM = "explain"
TIMES = "times:"
"""Before the name of a number in an address: what a slider multiplies it by."""
SLIDERS = 10
LEAST, MOST, STEP = 0.5, 2.0, 0.05
LEAST_SHARE = 0.005


def layout(here: Here, query: str) -> "Component":
    """The scenario, and the places of what is said of it."""
    question, factors = read_address(here, query)
    side = typed_form.draw(FORM, "a", "What to explain", question, here.library, KINDS)
    look = html.Div(id="explain-look", className="answer", **{"aria-live": "polite"})
    form = html.Form([html.Div(side, className="sides"), html.Div(id="explain-links")], className="form",
                     **{"aria-label": "Scenario"})  # fmt: skip
    start = dmc.Button("Simulate again, and try what-ifs", id="explain-try", size="xs")
    weighed = [
        html.Section(
            [
                html.H2("What if"),
                html.P("Each number times a factor: links of the machine and kinds of kernels, those that matter most.",
                       className="said"),
                html.Div(id="explain-turned", **{"aria-live": "polite"}),
                html.Div("Sliders come when the numbers are weighed.", id="explain-knobs", className="knobs"),
                parts.button("Set all back", "explain-reset"),
            ]
        ),
        html.Section([html.H2("What each number is worth"), _bar("worth"), html.Div(id="explain-worth")]),
    ]  # fmt: skip
    rest = [
        html.Div(weighed, id="explain-weighed"),
        html.Section([html.H2("What would help"), _bar("help", start), html.Div(id="explain-help")]),
    ]
    stores = [
        dcc.Store(id="explain-query"), dcc.Store(id="explain-address"), dcc.Store(id="explain-factors", data=factors),
        *cancel.stores("explain"),
    ]  # fmt: skip
    answer = html.Div(
        [dcc.Loading(look, delay_show=500, custom_spinner=cancel.draw("explain")), html.Div(rest, id="explain-rest")]
    )
    return html.Div([form, answer, *stores], className="asking")


def _bar(name: str, *first: "Component") -> "Component":
    """Start, cancel and how far it is."""
    cancel = parts.button("Cancel", f"explain-{name}-cancel", disabled=True)
    return html.Div([*first, cancel, html.Span(id=f"explain-{name}-progress", role="status")], className="bar said")


def read_address(here: Here, query: str) -> tuple[Question, dict[str, float]]:
    """The question of an address and its factors.

    Raises:
        UserError: it cannot be read, or is of no scenario that can be explained.
    """
    pairs = pairs_of(query)
    question = parse_query("?" + urlencode([pair for pair in pairs if not pair[0].startswith(TIMES)]), BASE)
    here.library.scenario(question.base, KINDS)
    return question, dict(_factors(pair for pair in pairs if pair[0].startswith(TIMES)))


def _factors(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, float]]:
    for key, value in pairs:
        try:
            factor = float(value)
        except ValueError:
            continue
        if LEAST <= factor <= MOST:
            yield key.removeprefix(TIMES), factor


def address(query: str, factors: Mapping[str, float]) -> str:
    """A query with the factors that are not one."""
    moved = [(TIMES + name, f"{factor:g}") for name, factor in factors.items() if factor != 1]
    return query + ("&" + urlencode(moved, safe=":") if moved else "")


def connect(app: Dash, here: Here) -> None:
    """Looks at once, weighs in the background, tries what-ifs when asked."""
    keep_in_address(app, "explain-address")
    typed_form.connect(app, FORM)
    cancel.connect(app, here, "explain")
    _connect_look(app, here)
    _connect_sliders(app, here)
    _connect_background(app, here.library.folder)


def _connect_look(app: Dash, here: Here) -> None:
    @app.callback(
        *outputs("explain", "look.children", "query.data", "links.children", "weighed.hidden"),
        Output("explain-rest", "className"),
        typed_form.faults_of(FORM),
        *typed_form.inputs(FORM),
        cancel.job("explain"),
    )
    def look(bases: list[str], lines: list[str | None], job: str) -> tuple[Any, ...]:
        try:
            question = typed_form.question_of(bases[0], lines[0])
            found = here.answers.look(question, job)
        except StoppedError as error:
            return parts.notes(error.faults), no_update, no_update, no_update, "stale", [None]
        except UserError as error:
            faults = typed_form.faults(error)
            return typed_form.refusal(faults), no_update, no_update, no_update, "stale", ["\n".join(faults)]
        has_levers = found.system.has_levers
        draw: Any = explain_levers.draw_look if has_levers else draw_look
        return draw(found), question.query(), links(question), has_levers, "", [None]

    @app.callback(Output("explain-address", "data"), Input("explain-query", "data"), Input("explain-factors", "data"))
    def keep(query: str | None, factors: Mapping[str, float]) -> Any:
        return no_update if query is None else address(query, factors)


def _connect_sliders(app: Dash, here: Here) -> None:
    sliders = {"slider": FORM, "knob": ALL}

    @app.callback(
        *outputs("explain", "turned.children", "factors.data"),
        Output({"turned": FORM, "knob": ALL}, "children"),
        Input(sliders, "value"),
        State("explain-query", "data"),
        prevent_initial_call=True,
    )
    def turn(values: list[float], query: str | None) -> tuple[Any, ...]:
        names = [one["id"]["knob"] for one in ctx.inputs_list[0]]
        if not names or query is None:
            return no_update, no_update, [no_update] * len(names)
        found: Any = here.answers.look(parse_query(query, BASE))
        if found.system.has_levers:
            return no_update, no_update, [no_update] * len(names)
        factors = dict(zip(names, values, strict=True))
        try:
            drawn: Any = draw_turned(found.turn(factors), found.explanation.what)
        except UserError as error:
            drawn = typed_form.refusal(typed_form.faults(error))
        texts = [_knob_text(found.knobs[name], by) if name in found.knobs else "" for name, by in factors.items()]
        return drawn, {name: factor for name, factor in factors.items() if factor != 1}, texts

    app.clientside_callback(
        "(clicks, values) => values.map(() => 1)",
        Output(sliders, "value"),
        Input("explain-reset", "n_clicks"),
        State(sliders, "value"),
        prevent_initial_call=True,
    )


def _connect_background(app: Dash, folder: Path | None) -> None:
    """The work is done in other processes: what it needs are plain values."""

    @app.callback(
        output=[Output("explain-worth", "children"), Output("explain-knobs", "children")],
        inputs=[Input("explain-query", "data"), State("explain-factors", "data")],
        **_in_background("worth"),
    )
    def weigh(tell: Callable[[Any], None], query: str | None, factors: Mapping[str, float]) -> list[Any]:
        if query is None:
            return [no_update, no_update]
        library, question = Library(folder), parse_query(query, BASE)
        try:
            if case_of(library, question).system.has_levers:
                return [[], []]
            found = explain(library, question, True, _begin(tell, "worth"))
        except UserError as error:
            return [typed_form.refusal(typed_form.faults(error)), []]
        assert isinstance(found, Explanation)
        return [draw_worth(found), draw_sliders(found, factors)]

    @app.callback(
        output=[Output("explain-help", "children")],
        inputs=[Input("explain-try", "n_clicks"), State("explain-query", "data")],
        **_in_background("help", Input("explain-query", "data"),
                         running=[(Output("explain-try", "disabled"), True, False)]),
    )  # fmt: skip
    def try_all(tell: Callable[[Any], None], clicks: int | None, query: str | None) -> list[Any]:
        if not clicks or query is None:
            return [no_update]
        question = parse_query(query, BASE)
        try:
            found = explain(Library(folder), question, False, _begin(tell, "help"))
        except UserError as error:
            return [typed_form.refusal(typed_form.faults(error))]
        draw: Any = explain_levers.draw_what_ifs if found.system.has_levers else draw_what_ifs
        return [draw(found, question)]

    app.clientside_callback(
        "() => []",
        Output("explain-help", "children", allow_duplicate=True),
        Input("explain-query", "data"),
        prevent_initial_call=True,
    )
    for name in ("worth", "help"):

        @app.callback(
            Output(f"explain-{name}", "children", allow_duplicate=True),
            Input(f"explain-{name}-cancel", "n_clicks"),
            prevent_initial_call=True,
        )
        def tell_stopped(_: int) -> "Component":
            return parts.notes(["Stopped before the end."])


_BEGINS = {"worth": "Numbers are weighed ...", "help": "What-ifs are simulated ..."}


def _begin(tell: Callable[[Any], None], name: str) -> Callable[[str], None]:
    """What says how far the work is, by its first words."""
    say = enabling(tell)
    say(_BEGINS[name])
    return say


def _in_background(name: str, *cancel: Input, running: Iterable[Any] = ()) -> dict[str, Any]:
    """How a callback works in a process of its own, tells how far it is, and can be cancelled."""
    words, button = outputs("explain", f"{name}-progress.children", f"{name}-cancel.disabled")
    return {
        "background": True,
        "progress": [words, button],
        "progress_default": ("", True),
        "running": [(words, _BEGINS[name], ""), *running],
        "cancel": [*inputs("explain", f"{name}-cancel.n_clicks"), *cancel],
        "prevent_initial_call": True,
    }


def draw_look(found: Look) -> "list[Component]":
    """What one simulation says."""
    said, report = found.explanation, found.case.report
    of, total_s = said.parts, said.total_s
    fits = f"of {format_bytes(said.device_memory_bytes)}: {parts.fits(said.fits, report.fits_probability)}"
    time, *others = parts.cards(
        report,
        {
            f"{said.what}_time_s": parts.interval(report.interval_low_s, report.interval_high_s),
            "bound_by": f"{of.path_s[said.bound_by] / total_s:.0%} of the critical path",
            **({} if of.bubble_s is None else {"bubble_fraction": "waiting for other stages"}),
            "peak_memory_bytes": fits,
        },
    )
    exposed = ("Exposed", f"{of.exposed_path_s / total_s:.1%}", "communication on the critical path")
    host = ("Host threads", f"{of.host_s / total_s:.1%}", "of the critical path")
    made = {
        f"What the {said.what} is made of": waterfall(of.split_s, said.what),
        "Its critical path by kind of op": waterfall(_largest(of.class_s, total_s), "critical path"),
    }
    return [
        *parts.headline(report, [time, *others, exposed, host], text.sentences(said)),
        *parts.figures(made),
        table("Seconds and critical path by phase", text.PART_COLUMNS, text.part_rows(said)),
    ]


def _largest(seconds: Mapping[str, float], total_s: float) -> dict[str, float]:
    """The visible parts; small ones are merged."""
    shown = {name: s for name, s in seconds.items() if s >= LEAST_SHARE * total_s}
    rest_s = sum(seconds.values()) - sum(shown.values())
    return {**shown, "all others": rest_s} if len(shown) < len(seconds) else shown


def draw_worth(found: Explanation) -> "list[Component]":
    """What a tenth of each number is worth; where nothing was simulated again, there are no columns of that."""
    shown = (0, 1, 3, 5, 6) if found.quick else range(len(text.KNOB_COLUMNS))
    columns = ("number", "now", "better", "worse", "") if found.quick else text.KNOB_COLUMNS
    rows = [[row[i] for i in shown] for row in text.knob_rows(found.sensitivities)]
    return [
        parts.figure("Effect of a change by 10 %", tornado(bars(found), found.total_s, found.what), level=3),
        parts.notes([f"{len(found.without_effect)} more numbers have no effect on this {found.what}."]),
        table("10 % better or worse", columns, rows, level=3),
    ]


def draw_what_ifs(found: Explanation, question: Question) -> "list[Component]":
    """Numbers simulated again, and what-ifs by gain; a name leads to both sides."""
    links = {one.name: compare_link(question, one.name, question.change(one.changes)) for one in found.tried}
    rows = [(links[row[0]], *row[1:]) for row in text.what_if_rows(found.tried, found)]
    refused = [(one.name, one.reason.partition(": ")[2] or one.reason) for one in found.refused]
    best = {f"of the {'plan' if found.what == 'step' else 'update'}": found.best, "of the machine": found.best_machines}
    lines = [
        f"Changes {of} that help most: {', '.join(f'{one.name} ({one.gain:.1%})' for one in some)}."
        for of, some in best.items()
        if some
    ]
    tried = f"{len(found.tried)} what-ifs were simulated, {len(found.refused)} do not go with this scenario."
    not_allowed = table("Not allowed here", ("what if", "why"), refused, level=3)
    return [
        parts.notes([*lines, tried]),
        table("Changes, by what they save", text.WHAT_IF_COLUMNS, rows, level=3),
        html.Details([html.Summary("Not allowed here"), not_allowed]),
        html.H3("Numbers, simulated again"),
        *draw_worth(found),
    ]


def draw_turned(found: Turned, what: str) -> "Component":
    """The predicted time with numbers turned, next to that without."""
    change = found.total_s / found.now_s - 1
    first = f"first order: {format_seconds(found.first_order_s)}"
    return parts.numbers(
        [
            (f"{what.capitalize()} time now", format_seconds(found.now_s), "as the scenario says"),
            ("With the sliders", format_seconds(found.total_s), "first order" if found.simulated_s is None else first),
            ("Change", f"{change:+.2%}" if abs(change) >= 5e-5 else "none", "below zero is faster"),
        ]
    )


def draw_sliders(found: Explanation, factors: Mapping[str, float]) -> "list[Component]":
    """Sliders of the numbers that matter most, and of those that the address turns."""
    known = [one.knob for one in found.sensitivities]
    shown = known[:SLIDERS] + [knob for knob in known[SLIDERS:] if knob.name in factors]
    return [_slider(knob, factors.get(knob.name, 1.0)) for knob in shown]


def _slider(knob: Knob, factor: float) -> "Component":
    most = min(MOST, knob.most / knob.now)
    ticks = [{"value": tick, "label": f"×{tick:g}"} for tick in (0.5, 1.0, 1.5, 2.0) if tick <= most]
    value = html.Span(_knob_text(knob, factor), id={"turned": FORM, "knob": knob.name})
    slider = dmc.Slider(
        id={"slider": FORM, "knob": knob.name}, min=LEAST, max=max(most, 1.0), step=STEP, value=factor,
        precision=2, marks=ticks, updatemode="mouseup", thumbLabel=f"{knob.name}, times",
    )  # fmt: skip
    return html.Div([html.P([html.Strong(knob.name), f", {knob.about}: ", value]), slider], className="knob")


def _knob_text(knob: Knob, factor: float) -> str:
    """A number, and what it is turned to."""
    return knob.text if factor == 1 else f"{knob.text}, turned to {replace(knob, now=knob.now * factor).text}"


def links(question: Question) -> "Component":
    """Links of a question to files and to another page."""
    compare = html.Div(compare_link(question, "Compare with something else"), className="bar")
    return html.Div([downloads.links(question), compare])


PAGE = Page("/explain", "Explain", "bounds, sensitivities, what helps", ABOUT, layout, connect)
