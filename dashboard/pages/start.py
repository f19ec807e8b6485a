"""The first page: the three questions that people come with, each answered for a scenario, and links to all pages."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dash import Dash, dcc, html

from ...simulator.base.errors import UserError
from ...simulator.figures import draw_timeline
from .. import parts, plan_search
from ..forms import typed_form
from ..page import PATHS, Here, Page, inputs, outputs
from ..plan_search import SearchRequest
from ..question import BASE, Question, explain_link
from . import search, training, update

if TYPE_CHECKING:
    from dash.development.base_component import Component

ABOUT = "Forecasts of training steps, runs and RL weight updates: how long, how sure, why, and what makes them faster."
NUMBERS = 4
COARSE = {"level": "coarse"}
"""A change by which steps are answered at once, action by action."""


@dataclass(frozen=True)
class StartQuestion:
    """A question of the first page: `answer` draws what is said of a scenario; `more` leads to a page where it can be
    changed.
    """

    name: str
    title: str
    kind: str
    base: str
    answer: "Callable[[Here, Question], list[Component]]"
    more: "Callable[[Question], list[Component]]"


def _step(here: Here, question: Question) -> "list[Component]":
    """The time of a step, and the pipeline of its beginning."""
    prediction: Any = here.answers.predict(question.change(COARSE))
    drawn = draw_timeline("train_step", prediction.timeline, prediction.grid, title="Its pipeline", opens_near=True)
    return [*_headline(prediction, training.cards(prediction)), _picture(drawn)]


def _update(here: Here, question: Question) -> "list[Component]":
    prediction: Any = here.answers.predict(question)
    return _headline(prediction, update.cards(prediction))


def _plans(here: Here, question: Question) -> "list[Component]":
    return plan_search.count_plans(here.library, SearchRequest(question))


def _headline(prediction: Any, cards: "Iterable[parts.Card]") -> "list[Component]":
    return [parts.headed_numbers(list(cards)[:NUMBERS]), parts.notes([prediction.report.question])]


def _picture(drawn: Any) -> "Component":
    scrolled = {"tabIndex": 0, "role": "region", "aria-label": "Its pipeline"}
    return html.Div(dcc.Graph(figure=drawn, config=parts.CONFIG), className="wide timeline", **scrolled)


def _page_of(kind: str, text: str) -> "Callable[[Question], list[Component]]":
    return lambda question: [html.A(text, href=PATHS[kind] + question.query()), explain_link(question)]


QUESTIONS = (
    StartQuestion("step", "How long is my training step?", "train_step", BASE, _step,
        _page_of("train_step", "Change model, GPUs, plan")),
    StartQuestion("update", "How long is my weight update?", "weight_update", update.FORM.base, _update,
        _page_of("weight_update", "Change model, GPUs, method")),
    StartQuestion("plan", "Which plan is best?", "train_step", BASE, _plans,
        lambda question: [html.A("Search the plans", href=search.PAGE.path + question.query())]),
)  # fmt: skip


def make_page(pages: Sequence[Page]) -> Page:
    """The first page; it leads to these."""
    return Page("/", "Start", "what to ask", ABOUT, lambda here, _: layout(here, pages), connect, title="runcast")


def layout(here: Here, pages: Sequence[Page]) -> "Component":
    """The questions; answers are drawn by callbacks, so that the page is there at once."""
    sections = [html.Section(_section(here, one), className="ask") for one in QUESTIONS]
    links = [html.Li([html.A(page.name, href=page.path), html.Span(page.menu)]) for page in pages]
    return html.Div([*sections, html.H2("All pages"), html.Ul(links, className="pages")])


def _section(here: Here, one: StartQuestion) -> "list[Component]":
    choice = parts.choice(f"start-{one.name}", "Scenario", here.library.names_of_kind(one.kind), one.base, maw=360)
    answer = html.Div(id=f"start-{one.name}-answer", **{"aria-live": "polite"})
    return [html.H2(one.title), choice, dcc.Loading(answer, delay_show=500), html.Div(id=f"start-{one.name}-more")]


def connect(app: Dash, here: Here) -> None:
    """A scenario that is chosen is answered."""
    for one in QUESTIONS:
        _connect(app, here, one)


def _connect(app: Dash, here: Here, one: StartQuestion) -> None:
    @app.callback(
        *outputs("start", f"{one.name}-answer.children", f"{one.name}-more.children"),
        *inputs("start", f"{one.name}.value"),
    )
    def answer(base: str) -> tuple[Any, Any]:
        try:
            question = Question(base)
            return one.answer(here, question), parts.link_row("Go on", one.more(question), one.title)
        except UserError as error:
            return typed_form.refusal(typed_form.faults(error)), None
