"""A search in the browser: what is wanted of plans as fields, as an address and as a `search` takes it; the search
itself, which runs in a process of its own; and what it found, drawn.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from dash import dcc, html

from ..simulator.answers.search import Measured, SearchResult, Wanted, read_wanted, search
from ..simulator.answers.search.outputs import lines, plan_text, write_files
from ..simulator.answers.search.records import Progress
from ..simulator.answers.search.run import make_question
from ..simulator.answers.search.steps import SCHEDULES_OF, STEPS
from ..simulator.base.errors import UserError, fault
from ..simulator.base.units import format_bytes, format_probability, format_seconds, format_usd
from . import parts
from .answers import table_of
from .figures.search import plans
from .forms import fields
from .forms.fields import Field
from .library import Library
from .page import PATHS
from .question import Question, compare_link, explain_link, pairs_of, parse_query
from .tables import table

if TYPE_CHECKING:
    from dash.development.base_component import Component

KEY = "search:"
"""Before the name of a wish in an address."""
TARGETS = tuple(SCHEDULES_OF)
"""Tools that a plan may be for, and at first any."""
_FIXED = ("tp", "pp", "cp", "ep")
BUDGET = 200
"""Simulations of a search that says nothing else: some seconds each for the largest plans."""
_COUNTED = 2_000_000
"""Combinations whose plans are counted while one waits."""

WISHES = (
    Field("objective", "Best by", options=STEPS.objectives, words={"tokens_per_s": "throughput"}),
    Field("for", "To run in", options=TARGETS),
    Field("headroom", "Memory kept free", "share", share=True),
    *(Field(axis, f"Only {axis.upper()}", "empty: all", whole=True) for axis in _FIXED),
    Field("schedules", "Schedules", "empty: Megatron-LM's; or 1f1b, zb-h1"),
    Field("budget", "Simulations", "at most", whole=True),
    Field("uneven", "Uneven stages", switch=True),
)
"""What a search may be told beside its scenario, as fields; nothing is said by one that is empty."""
FIRST: Mapping[str, Any] = {
    "objective": STEPS.objectives[0], "for": TARGETS[0], "headroom": 0, "budget": BUDGET, "uneven": False,
}  # fmt: skip


@dataclass(frozen=True)
class SearchRequest:
    """A question, the plan of which is searched, and wishes that are not as at first."""

    question: Question
    wishes: Mapping[str, Any] = field(default_factory=dict)

    def query(self) -> str:
        """As the query of an address."""
        said = urlencode([(KEY + name, str(value)) for name, value in self.wishes.items()], safe=":")
        return self.question.query() + (f"&{said}" if said else "")

    @property
    def wanted(self) -> Wanted:
        """The wishes as a search takes them.

        Raises:
            UserError: a schedule or a value is none.
        """
        fixed = [f"parallel.{axis}={self.wishes[axis]}" for axis in _FIXED if axis in self.wishes]
        target = self.wishes.get("for", TARGETS[0])
        return read_wanted(self.wishes.get("schedules"), (), fixed, bool(self.wishes.get("uneven")), target)

    @property
    def options(self) -> dict[str, Any]:
        """Further options of a search."""
        wish = {**FIRST, **self.wishes}
        return {"objective": wish["objective"], "headroom": float(wish["headroom"]), "wanted": self.wanted}


def read_address(query: str, base: str) -> SearchRequest:
    """What an address asks.

    Raises:
        UserError: it is too long, or a change names a file.
    """
    pairs = pairs_of(query)
    rest = parse_query("?" + urlencode([pair for pair in pairs if not pair[0].startswith(KEY)]), base)
    known = {one.key: one for one in WISHES}
    said = {key.removeprefix(KEY): value for key, value in pairs if key.startswith(KEY)}
    return SearchRequest(
        rest, wishes_of({name: _read(known[name], value) for name, value in said.items() if name in known})
    )


def wishes_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of fields that say something else than at first."""
    return {name: value for name, value in values.items() if value not in (None, "", FIRST.get(name))}


def read_wishes(given: Mapping[str, Any]) -> dict[str, Any]:
    """The wishes that fields say.

    Raises:
        UserError: what stands in a field is no number, or not one of those that are allowed.
    """
    known = {one.key: one for one in WISHES}
    said = {name: value for name, value in fields.read(known, given).items() if value not in (None, "")}
    return wishes_of({name: _check(known[name], value) for name, value in said.items()})


def _check(one: Field, value: Any) -> Any:
    if not one.is_number:
        return value
    is_number = isinstance(value, int | float)
    if one.share and not (is_number and 0 <= value <= 1):
        raise UserError(fault("form", one.key, value, "expected a number from 0 to 1"))
    if one.whole and not (is_number and value >= one.least and value == int(value)):
        raise UserError(fault("form", one.key, value, f"expected a whole number, at least {one.least}"))
    return int(value) if one.whole else value


def _read(one: Field, text: str) -> Any:
    """A value of an address, or nothing where it is none."""
    try:
        return text == "True" if one.switch else int(text) if one.whole else float(text) if one.share else text
    except ValueError:
        return None


def count_plans(library: Library, asked: SearchRequest) -> "list[Component]":
    """How many plans there are, and what cuts the others.

    Raises:
        UserError: what is asked is not allowed.
    """
    scenario, where = table_of(library, asked.question)
    options = asked.options
    question, space = make_question(scenario, None, options["objective"], options["wanted"], options["headroom"], where)
    combinations = f"combinations of {', '.join(axis.key.rpartition('.')[2] for axis in space.axes)}"
    first = parts.Card("Plans", f"up to {space.size:,}", combinations)
    if space.size <= _COUNTED:
        points, _ = space.points()
        small = f"of {space.size:,} {combinations}; each is simulated or ruled out by a bound"
        first = parts.Card("Plans", f"{len(points):,}", small)
    free = parts.Card("Memory", format_bytes(question.memory_bytes), "that a plan may take per device")
    return [parts.headed_numbers([first, parts.Card("GPUs", f"{question.gpus:,}"), free])]


def run(library: Library, asked: SearchRequest, workers: int, watch: Callable[[Progress], None]) -> SearchResult:
    """The search; `watch` may end it early by KeyboardInterrupt, with what is known then.

    Raises:
        UserError: what is asked is not allowed, or every plan is refused.
    """
    scenario, where = table_of(library, asked.question)
    budget = int(asked.wishes.get("budget", BUDGET))
    return search(scenario, budget=budget, workers=workers, where=where, watch=watch, **asked.options)


def progress_text(progress: Progress, left: str = "") -> str:
    """How far a search is, what is left of its phase, and the best plan so far."""
    best = progress.best
    found = f"; best so far {best.measured.speed}: {plan_text(best.changes)}" if best and best.measured else ""
    return f"{progress.phase}: {progress.done:,} of {progress.total:,} plans{left}{found}"


def draw(found: SearchResult, asked: SearchRequest) -> "list[Component]":
    """The winner, the Pareto set as a figure and as a table, the files that `runcast search` writes."""
    said = list(lines(found))
    words = html.Details([html.Summary("As the command prints it"), _printed("\n".join(said), "What is printed")])
    if found.winner is None:
        why = said[-1 - len(found.notes) :]
        return [parts.alert("No plan fits" if found.proved else "No plan yet that fits", why), words]
    return [
        html.H2("Best plan"),
        *_winner(found, found.winner, asked.question),
        parts.figure("Plans by speed and memory", plans(found)),
        _pareto(found, asked.question),
        html.Section([html.H2("To run it"), *_files(found)]),
        words,
    ]


def _winner(found: SearchResult, number: int, question: Question) -> "list[Component]":
    row = found.rows[number]
    one = found.checked.get(number) or row.measured
    assert one is not None
    plan = question.change(row.changes)
    proved = "" if found.proved else "the best of those that were simulated: the budget is spent"
    level = "kernel by kernel" if number in found.checked else "action by action"
    interval = f"90 %: {one.speed_interval}" if one.speed_interval else ""
    likely = format_probability(found.best_probabilities.get(number, 0.0))
    cards = [
        parts.Card("Throughput", one.speed, interval),
        parts.Card("Step", format_seconds(one.time_s), level),
        *([] if one.mfu is None else [parts.Card("MFU", f"{one.mfu:.1%}", "of the dense peak")]),
        parts.Card("Memory", format_bytes(one.memory_bytes), _fits(one)),
        parts.Card("Cost", "unknown" if one.cost_usd is None else format_usd(one.cost_usd), "of a step"),
        parts.Card("Best with", likely, "probability that no other plan is better"),
    ]
    links = [
        html.A("Open in Training step", href=PATHS["train_step"] + plan.query()),
        explain_link(plan),
        compare_link(question, "Compare with the scenario", plan),
    ]
    return [
        html.P(html.Strong(plan_text(row.changes))),
        parts.headed_numbers(cards),
        parts.notes([line for line in (proved, *found.notes) if line]),
        parts.link_row("Go on", links),
    ]


def _fits(one: Measured) -> str:
    likely = one.fits_probability
    return "" if likely is None else f"fits with {format_probability(likely)}"


def _pareto(found: SearchResult, question: Question) -> "Component":
    """A row for each plan of the Pareto set, fastest first; a plan is a link to its page."""
    rows = []
    for number in found.pareto:
        row = found.rows[number]
        assert row.measured is not None
        one, difference = row.measured, found.difference_to_winner(number)
        beats = format_probability(difference.faster_probability) if difference else "winner"
        cost = "unknown" if one.cost_usd is None else format_usd(one.cost_usd)
        link = html.A(plan_text(row.changes), href=PATHS["train_step"] + question.change(row.changes).query())
        rows.append((link, one.speed, format_bytes(one.memory_bytes), _fits(one), cost, beats))
    columns = ("plan", found.question.subject.speed_name, "memory", "fits", "cost", "faster than the winner")
    return table("Pareto set", columns, rows)


def _files(found: SearchResult) -> "list[Component]":
    """The files of a search: those of the winner as text, tables to download."""
    with TemporaryDirectory(prefix="runcast-search-") as place:
        written = {path.name: path.read_text() for path in write_files(found, Path(place))}
    shown = [(name, text) for name, text in written.items() if not name.endswith(".csv")]
    saved = [
        html.A(name, href=f"data:text/plain;charset=utf-8,{quote(text)}", download=name)
        for name, text in written.items()
    ]
    return [*[_text(name, text) for name, text in reversed(shown)], parts.link_row("Download", saved)]


def _text(name: str, text: str) -> "Component":
    copy = dcc.Clipboard(content=text, title=f"Copy {name}")
    title = next((title for end, title in _RECIPES.items() if name.endswith(end)), f"Scenario ({name})")
    return html.Details([html.Summary(title), copy, _printed(text, name)], open=name.endswith((*_RECIPES,)))


_RECIPES = {".megatron.txt": "Arguments of Megatron-LM", ".torchtitan.toml": "Configuration of torchtitan"}


def _printed(text: str, label: str) -> "Component":
    return html.Pre(text, className="printed", tabIndex=0, role="region", **{"aria-label": label})
