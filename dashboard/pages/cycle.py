"""An RL cycle: rollouts, training and weight updates; the time of a step, who waits, and how stale rollouts are."""

from typing import TYPE_CHECKING, Any

from dash import dcc, html

from ...simulator.base.units import format_seconds
from ...simulator.hardware import cluster_names
from ...simulator.models import preset_names
from ...simulator.predict import CyclePrediction
from ...simulator.profile import stack_names
from ...simulator.systems.rl_cycle.report import CycleReport
from ...simulator.systems.rl_cycle.text import words
from .. import buckets, parts, tables
from ..forms import fields
from ..forms.ask import Form, draw_all, predicted_page
from ..forms.fields import Field, time_text
from ..question import Question

if TYPE_CHECKING:
    from dash.development.base_component import Component

_ENDS = "cycle-ends"
ABOUT = "How long a step of an RL cycle takes, what trainer and engines wait for, and how stale rollouts are."
FORM = Form(
    "cycle",
    "rl_cycle",
    "rl-cycle-qwen3-30b-32xh100",
    {
        "Model and machines": (
            Field("model.preset", "Model", options=preset_names(), of="model.preset"),
            Field("cluster", "Cluster", options=cluster_names()),
            Field("nodes", "Nodes", "that roll out, or all", whole=True),
            Field("cycle.rollout_nodes", "Rollout nodes", "the others train", whole=True, of="cycle.rollout_nodes"),
            Field("stack", "Software", options=stack_names()),
        ),
        "Cycle": (
            Field("cycle.mode", "Mode", options=("synchronous", "asynchronous")),
            Field("cycle.placement", "Placement", options=("colocated", "disaggregated")),
            Field("cycle.staleness", "Staleness", "versions", whole=True, least=0,
                  applies=lambda given: given.get("cycle.mode") == "asynchronous"),
            Field("cycle.trainer_gpus", "Trainer GPUs", whole=True,
                  applies=lambda given: given.get("cycle.placement") == "disaggregated"),
            Field("cycle.train_time", "Training step", "such as 150 s; empty: predicted", text=time_text),
            Field("cycle.update_time", "Weight update", "empty: simulated", text=time_text),
            Field("cycle.steps", "Steps", whole=True),
            Field("seed", "Seed", whole=True, least=0),
        ),
        "Rollouts": (
            Field("rollout.requests", "Requests", "per step", whole=True),
            Field("rollout.engines", "Engines", whole=True),
            Field("rollout.slots", "Slots", "per engine", whole=True),
            Field("rollout.token_time", "Time per token", text=time_text),
            Field("rollout.length.mean", "Mean length", "tokens", whole=True, of="rollout.length.mean"),
            Field("rollout.length.p99", "p99 length", "tokens", whole=True, of="rollout.length.p99"),
            Field("rollout.max_tokens", "Longest answer", "tokens", whole=True),
            Field("rollout.interrupt", "On an update", options=("drain", "abort", "keep"),
                  applies=lambda given: given.get("cycle.mode") == "asynchronous"),
        ),
        "Weight update": (
            Field("update.bucket", "Bucket size", size=True, of="update.bucket"),
        ),
    },
)  # fmt: skip


def cards(prediction: CyclePrediction) -> list[parts.Card]:
    """The headline."""
    return cards_of(prediction.report)


def cards_of(report: CycleReport) -> list[parts.Card]:
    """The numbers of a report."""
    roll, train = report.gpus
    apart = report.placement != "colocated"
    sure = [parts.interval(*report.interval_s)] if report.interval_s else []
    p50, p99 = map(format_seconds, (report.step_p50_s, report.step_p99_s))
    small = {
        "step_time_s": "; ".join([*sure, f"p50 {p50}, p99 {p99}"]),
        "tokens_per_s": f"tokens/s that are trained on, {report.requests_per_s:.3g} requests/s",
        "rollout_s": f"of it {format_seconds(report.tail_s)} with under half of the slots busy",
        "train_s": "per step",
        "update_s": "per step",
        "pause_s": "engines cannot decode",
        "rollout_idle": f"of {roll:,} GPUs",
        **({"trainer_idle": f"of {train:,} GPUs"} if apart else {}),
        "mean_staleness": "versions behind",
        "bound_by": f"{report.exposed[report.bound_by] / report.makespan_s:.0%} of the critical path",
        "cost_usd": f"of a step, {report.rates.price}",
    }
    first, *others = parts.cards(report, small)
    return [first, *parts.shortage(report), *others]


def figures(prediction: CyclePrediction) -> "list[Component]":
    """The timeline, seconds by phase, and how stale requests are; of a simulated update its phases, too."""
    said = words(prediction.report)
    staleness, *of_update = said.tables
    drawn = [tables.table(*one) for one in (said.phases, staleness)]
    more = html.Details([html.Summary("Its weight update"), *(tables.table(*one) for one in of_update)])
    return [
        *draw_all(FORM, prediction),
        *drawn,
        *([more] if of_update else []),
        dcc.Store(_ENDS, data=_ends(prediction)),
    ]


def _ends(prediction: CyclePrediction) -> list[Any]:
    """Which buckets are allowed; the update of a cycle may be given as a time."""
    if prediction.update is None:
        return []
    return buckets.slider_ends(FORM.name, buckets.new_curve(Question(""), prediction.update.resolved))


PAGE = predicted_page(
    FORM, "RL cycle", "rollout, train, update", ABOUT, cards, figures, lambda app, here: fields.write_ends(app, _ENDS)
)
