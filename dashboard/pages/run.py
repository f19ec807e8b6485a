"""A run: its length, workers, checkpoints and failures; where its weeks went, and what happened when."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...simulator.answers.outputs import figures_of, timeline_caption
from ...simulator.base.units import format_long, format_probability
from ...simulator.hardware import cluster_names
from ...simulator.models import preset_names
from ...simulator.systems.run.modes import MODES
from ...simulator.systems.run.report import RunReport
from ...simulator.systems.run.system import RunPrediction
from ...simulator.systems.run.text import cost_between, words
from .. import parts, tables
from ..forms.ask import Form, draw_timeline, predicted_page
from ..forms.fields import Field, link_text, rate_text, time_text

if TYPE_CHECKING:
    from dash.development.base_component import Component

ABOUT = "How long weeks of training take, how much of that is kept, and what failures, checkpoints and waits cost."
EVENTS = "run-events"
HAPPENED = ("failures", "checkpoints", "staleness", "queue", "clients")
_NUMBER = re.compile(r"[\d.,]*\d( (s|ms|days)\b)?")
CAUSES = 5
"""Causes of failures that have fields; others are changed in the address."""


def _mode(given: Mapping[str, Any]) -> str:
    """The mode that the values of the form say."""
    if given.get("federated.rounds") is not None:
        return "federated"
    return "jobs" if given.get("jobs.policy") is not None else given.get("sync.mode", "all_reduce")


def _of_mode(key: str, label: str, note: str = "", **more: Any) -> Field:
    """A field that is shown where the mode simulates its key."""
    owners = [one for one in MODES.values() if one.owns(key)] or MODES.values()
    applies = {one.name for one in owners if one.takes(key)}
    return Field(key, label, note, applies=lambda given: _mode(given) in applies, **more)


def _causes() -> Sequence[Field]:
    """Two fields per cause of failures that the scenario has."""
    return tuple(
        field
        for i in range(CAUSES)
        for field in (
            Field(f"failures.cause.{i}.name", f"Cause {i + 1}", of=f"failures.cause.{i}.mtbf"),
            Field(f"failures.cause.{i}.mtbf", "MTBF per part", of=f"failures.cause.{i}.mtbf", text=time_text),
        )
    )


_SYNC = tuple(one.name for one in MODES.values() if one.has_workers)
FORM = Form(
    "run",
    "run",
    "run-llama3-70b-512xh100",
    {
        "Length": (
            _of_mode("run.steps", "Steps", "or updates", whole=True),
            _of_mode("run.samples", "Samples", "tokens, images", whole=True),
            _of_mode("run.wall", "Wall clock", "such as 54 d", text=time_text),
            _of_mode("run.deadline", "Deadline", "such as 60 d", text=time_text),
            Field("federated.rounds", "Rounds", whole=True, of="federated.rounds"),
            Field("run.repeats", "Repeats", "empty: 8; 1 if slow", whole=True),
            Field("seed", "Seed", whole=True, least=0),
        ),
        "Model and machines": (
            Field("model.preset", "Model", options=preset_names(), of="model.preset"),
            Field("cluster", "Cluster", options=cluster_names()),
            Field("nodes", "Nodes", whole=True),
            Field("step.time", "Step time", "of a worker", text=time_text, of="step.time"),
        ),
        "Workers": (
            _of_mode("sync.mode", "Synchronization", options=_SYNC),
            _of_mode("sync.workers", "Workers", whole=True),
            _of_mode("sync.inner", "Local steps", "between exchanges", whole=True),
            _of_mode("sync.fragments", "Fragments", whole=True),
            _of_mode("sync.delay", "Delay", "in steps", whole=True, least=0),
            _of_mode("sync.backup", "Backup workers", whole=True, least=0),
            _of_mode("sync.server.update", "Server updates", options=("asynchronous", "stale", "synchronous")),
            _of_mode("sync.server.servers", "Servers", whole=True),
            _of_mode("sync.server.bandwidth", "Server bandwidth", text=link_text),
            _of_mode("sync.gossip.topology", "Neighbours", options=("ring", "torus", "random")),
            _of_mode("sync.bandwidth", "Worker bandwidth", "empty: its NICs", text=link_text),
            _of_mode("sync.latency", "Latency", text=time_text),
        ),
        "Checkpoints": (
            Field("checkpoint.mode", "Mode", options=("blocking", "background", "memory"), of="checkpoint.mode"),
            _of_mode("checkpoint.interval", "Interval", "empty: the best", text=time_text),
            _of_mode("checkpoint.store", "Store bandwidth", text=rate_text),
            _of_mode("checkpoint.stall", "Blocking time", text=time_text),
        ),
        "Failures": (
            *_causes(),
            Field("failures.spares", "Spare nodes", whole=True, least=0, of="failures.spares"),
            Field("failures.detect", "Detection time", text=time_text, of="failures.spares"),
            Field("failures.place", "Scheduling time", text=time_text, of="failures.spares"),
            Field("failures.init", "Start-up time", text=time_text, of="failures.spares"),
        ),
        "Clients": (
            Field("federated.sampled", "Clients per round", whole=True, of="federated.sampled"),
            Field("federated.dropout", "Dropout", share=True, of="federated.rounds"),
            Field("federated.deadline", "Deadline", text=time_text, of="federated.rounds"),
            Field("federated.epoch_time", "Local epoch", text=time_text, of="federated.sampled"),
        ),
        "Queue": (
            Field("jobs.policy", "Policy", options=("fifo", "backfill", "priority", "fair"), of="jobs.policy"),
            Field("jobs.preempt", "Preempt", switch=True, of="jobs.policy"),
            Field("jobs.arrivals.rate", "Jobs per hour", whole=True, of="jobs.arrivals.rate"),
        ),
    },
)  # fmt: skip


def cards(prediction: RunPrediction) -> "list[parts.Card]":
    """The headline."""
    return cards_of(prediction.report)


def cards_of(report: RunReport) -> "list[parts.Card]":
    """The numbers of a report."""
    low, high = (f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}" for rate in report.rate_interval)
    between = cost_between(report)
    small = {
        "goodput": f"of the time in {MODES[report.mode].useful}",
        "tokens_per_s": f"{report.unit}/s" + (f" (90 %: {low} to {high})" if low != high else ""),
        "steps": f"{report.samples:,.4g} {report.unit}",
        "bound_by": f"{report.exposed[report.bound_by] / report.wall_s:.0%} of the time",
        "cost_usd": f"of the run, {report.rates.price}" + (f" (90 %: {between})" if between else ""),
        "energy_j": f"at most{report.rates.scope}",
    }
    numbers = (_briefly(card, report) for card in parts.cards(report, small))
    return [_wall(report), *_deadline(report), *parts.shortage(report), *numbers, *_happened(report)]


def _briefly(card: parts.Card, report: RunReport) -> parts.Card:
    """Many millions of dollars in fewer digits, so that they stand on one line."""
    million = (report.spent.cost_usd or 0.0) / 1e6
    return card._replace(value=f"${million:,.1f} million") if card.name == "Cost" and million >= 10 else card


def _wall(report: RunReport) -> parts.Card:
    low, high = map(format_long, report.wall_interval_s)
    small = f"90 %: {low} to {high}" if low != high else "as given" if report.wall_is_given else ""
    return parts.Card("Wall clock", format_long(report.wall_s), small, "from the start of the run to its end")


def _deadline(report: RunReport) -> "Iterator[parts.Card]":
    """How likely it holds, if there is one."""
    if report.deadline_s is not None and report.deadline_probability is not None:
        likely = format_probability(report.deadline_probability)
        within = f"ended within {format_long(report.deadline_s)}"
        yield parts.Card("Deadline", likely, within, "how likely a run like this one has ended by then")


def _happened(report: RunReport) -> "Iterator[parts.Card]":
    """What is counted, as the report's words have it: a number, and what they say of it."""
    for name, text in words(report).rows:
        if name in HAPPENED and (found := _NUMBER.match(text)):
            yield parts.Card(name.capitalize(), found[0], text[found.end() :].lstrip(", "))


def figures(prediction: RunPrediction) -> "list[Component]":
    """Where the time went, how stale gradients were, the course, what happened."""
    drawn, caption = figures_of(prediction), timeline_caption("run")
    course = drawn.pop(caption, None)
    causes = words(prediction.report).phases
    return [
        *parts.figures(drawn),
        *([] if course is None else [draw_timeline(FORM, caption, course)]),
        tables.table("Time by cause", causes.headers, causes.rows),
        *_events(prediction),
    ]


def _events(prediction: RunPrediction) -> "list[Component]":
    """All events, in a table to sort and filter."""
    events = prediction.history.events
    if not events:
        return []
    unit_s, unit = (86_400, " d") if prediction.report.wall_s >= 2 * 86_400 else (1, " s")
    columns = [
        tables.column("At", "at_s", 110, ".3f", valueFormatter=tables.number(",.3f", unit_s, unit)),
        tables.column("What", "what", 120),
        tables.column("Which", "detail", 700),  # without flex, for which cells stay hidden until they are in sight
    ]
    return [tables.grid(EVENTS, "Events", columns, [vars(event) for event in events])]


PAGE = predicted_page(
    FORM, "Training run", "weeks, failures, goodput", ABOUT, cards, figures,
    more=lambda app, here: tables.connect(app, EVENTS),
)  # fmt: skip
