"""Plan search: a model, GPUs and constraints in; the best plan, the Pareto set and the winner's arguments out."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, ctx, dcc, html, no_update
from diskcache import Cache

from ...simulator.answers.search.records import Progress
from ...simulator.base.errors import UserError
from ...simulator.hardware import cluster_names
from ...simulator.models import preset_names
from ...simulator.profile import stack_names
from .. import parts, plan_search
from ..background import Pace, enabling
from ..forms import fields, typed_form
from ..forms.ask import Form
from ..forms.fields import Field
from ..library import Library
from ..page import Here, Page, keep_in_address, outputs
from ..plan_search import SearchRequest
from ..question import BASE, Question, parse_query
from .training import TYPES

if TYPE_CHECKING:
    from dash.development.base_component import Component

ABOUT = "The best parallel plan of a model on these GPUs: every valid split is tried or ruled out."
WISHES = "search-wishes"
FORM = Form(
    "search",
    "train_step",
    BASE,
    {
        "Model and machines": (
            Field("model.preset", "Model", options=preset_names()),
            Field("cluster", "Cluster", options=cluster_names()),
            Field("nodes", "Nodes", whole=True),
            Field("stack", "Software", options=stack_names()),
        ),
        "What a step is": (
            Field("batch.global", "Global batch", whole=True),
            Field("batch.seq_len", "Sequence length", whole=True),
            Field("precision.compute", "GEMM precision", options=TYPES),
            Field("parallel.zero", "ZeRO stage", "0 to 2", whole=True, least=0),
        ),
    },
)
_BEGINS = "The search begins ..."
_KEPT_S = 3600  # a mark that nobody reads any more


def layout(here: Here, query: str) -> "Component":
    """The scenario and what is wanted of plans, beside what was found."""
    asked = plan_search.read_address(query, BASE)
    shown = {**plan_search.FIRST, **asked.wishes}
    wishes = html.Div([one.draw(WISHES, shown.get(one.key), False) for one in plan_search.WISHES], className="pair")
    begin = dmc.Button("Search", id="search-start", disabled=True)  # until plans are counted
    buttons = [begin, parts.button("Stop", "search-stop", size="sm", disabled=True)]
    bar = html.Progress(id="search-bar", value="0", max="1", className="progress", **{"aria-label": "Plans looked at"})
    far = html.P(id="search-far", className="said", role="status")
    right = [
        html.Div(id="search-space"),
        html.Div([html.Div(buttons, className="bar"), bar, far]),
        html.Div(id="search-found", **{"aria-live": "polite"}),
        dcc.Store(id="search-address"),
        dcc.Store(id="search-stopping"),
        dcc.Store(id="search-job", data=uuid4().hex),
    ]
    return FORM.draw(here, asked.question.query(), [dmc.Fieldset(wishes, legend="Constraints")], right)


def connect(app: Dash, here: Here) -> None:
    """Plans are counted as fields change; a search begins when asked for."""
    keep_in_address(app, "search-address")
    FORM.connect(app, here, lambda question, _: _check(here, question), lambda question: [])

    @app.callback(
        *outputs("search", "space.children", "address.data", "start.disabled", "found.className"),
        fields.faults_of(WISHES),
        Input("search-query", "data"),
        *fields.inputs(WISHES),
    )
    def count(query: str | None, values: list[Any], marks: list[Any]) -> tuple[Any, ...]:
        keys = [one["id"]["key"] for one in ctx.inputs_list[1]]
        if query is None:
            return no_update, no_update, True, no_update, [no_update] * len(keys)
        given = {key: value if mark is None else mark for key, value, mark in zip(keys, values, marks, strict=True)}
        try:
            asked = SearchRequest(parse_query(query, BASE), plan_search.read_wishes(given))
            drawn: Any = plan_search.count_plans(here.library, asked)
        except UserError as error:
            faults = {key: rest.lstrip(" =:") for key, rest in fields.faults_by_key(error, keys)}
            return _refusal(error), no_update, True, "stale", [faults.get(key) for key in keys]
        return drawn, asked.query(), False, "stale", [None] * len(keys)

    _connect_search(app, here)


def _check(here: Here, question: Question) -> "list[Component]":
    """Nothing is simulated yet, but a fault stands beside its field."""
    here.answers.scenario(question)
    return []


def _refusal(error: UserError) -> "Component":
    return typed_form.refusal(typed_form.faults(error))


def _connect_search(app: Dash, here: Here) -> None:
    """The search works in a process of its own, and looks for a mark in the cache, by which Stop ends it."""
    folder, place = here.library.folder, here.results.directory if here.results is not None else ""
    workers = max(1, min(4, (os.cpu_count() or 1) - 1))  # others keep a core

    @app.callback(
        *outputs("search", "found.children", "found.className"),
        Input("search-start", "n_clicks"),
        State("search-address", "data"),
        State("search-job", "data"),
        background=True,
        running=[
            (Output("search-start", "loading"), True, False),
            (Output("search-far", "children"), _BEGINS, ""),
        ],
        progress=outputs("search", "bar.value", "bar.max", "far.children", "stop.disabled"),
        progress_default=("0", "1", "", True),
        interval=500,
        prevent_initial_call=True,
    )
    def start(tell: Callable[[Any], None], _: int, address: str, job: str) -> tuple[Any, str]:
        with Cache(place) as marks:
            marks.delete(job)
            say = enabling(tell)
            say("0", "1", _BEGINS)  # a mark that Stop leaves from now on is read
            pace = Pace()

            def watch(progress: Progress) -> None:
                words = plan_search.progress_text(progress, pace.left(progress.done, progress.total))
                say(str(progress.done), str(max(progress.total, 1)), words)
                if job in marks:
                    raise KeyboardInterrupt

            return _search(folder, address, workers, watch), ""

    @app.callback(
        Output("search-stopping", "data"),
        Input("search-stop", "n_clicks"),
        State("search-job", "data"),
        prevent_initial_call=True,
    )
    def stop(clicks: int, job: str) -> int:
        here.results.set(job, True, expire=_KEPT_S)
        return clicks


def _search(folder: Path | None, address: str, workers: int, watch: Callable[[Progress], None]) -> Any:
    """What a search finds, drawn; or why there is none."""
    try:
        asked = plan_search.read_address(address, BASE)
        return plan_search.draw(plan_search.run(Library(folder), asked, workers, watch), asked)
    except UserError as error:
        return _refusal(error)


PAGE = Page("/search", "Plan search", "best split of the GPUs", ABOUT, layout, connect)
