"""A weight update: its timeline, memory and phases by model, machines and method, and what the size of buckets does."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dash import Dash, Input, Output, State, dcc, html, no_update

from ...simulator.base.units import format_bytes, format_energy, format_rate, format_seconds, format_usd
from ...simulator.figures import gantt
from ...simulator.figures.spans import Window
from ...simulator.hardware import cluster_names
from ...simulator.models import preset_names
from ...simulator.predict import AnyPrediction, Prediction
from ...simulator.profile import stack_names
from ...simulator.systems.weight_update.methods import FROM_TRAINERS, SERVED
from .. import buckets, parts, zooming
from ..ask import Form
from ..buckets import Curve
from ..fields import Field
from ..figures.update import bucket_curve, device_memory, held_by_kind, phases
from ..page import Here, Page
from ..question import Question, explain_link, from_query, onward

if TYPE_CHECKING:
    from dash.development.base_component import Component

ABOUT = "How long new weights take into the engines, for how long these stand still, and which bucket is best."
GANTT = "update-gantt"


def from_trainers(given: Mapping[str, Any]) -> bool:
    """Whether the method starts at trainers, not at parameter servers beside the engines."""
    return given.get("update.method") in FROM_TRAINERS


def served(given: Mapping[str, Any]) -> bool:
    """Whether the weights come from parameter servers."""
    return not from_trainers(given)


def by_p2p(given: Mapping[str, Any]) -> bool:
    """Whether some ranks read from all others."""
    return given.get("update.method") == "p2p"


def by_files(given: Mapping[str, Any]) -> bool:
    """Whether the weights go through a file system."""
    return given.get("update.method") == "file_system"


def apart(given: Mapping[str, Any]) -> bool:
    """Whether engines have GPUs of their own beside the trainers'."""
    return from_trainers(given) and given.get("update.method") != "colocated"


FORM = Form(
    "update",
    "weight_update",
    "kimi-k2-256xh20",
    {
        "Model and machines": (
            Field("model.preset", "Model", options=preset_names()),
            Field("cluster", "Cluster", options=cluster_names()),
            Field("nodes", "Nodes", whole=True),
            Field("stack", "Software", options=stack_names()),
        ),
        "Method": (
            Field("update.method", "Method", options=(*SERVED, *FROM_TRAINERS)),
            Field("update.pipeline", "Pipeline", options=("two_stage", "three_stage", "serial"), applies=served),
            Field("update.ranks", "Ranks updated", whole=True, applies=by_p2p),
            Field("update.quantize", "To FP8", options=("none", "before", "after"), applies=from_trainers),
            Field("update.storage.write", "File system takes", "empty: 20 GB/s", applies=by_files),
            Field("update.storage.read", "File system gives", "empty: 40 GB/s", applies=by_files),
        ),
        "Bucket": (Field(buckets.KEY, "Bucket size", size=True),),
        "Engines": (
            Field("update.inference.tp", "Tensor", whole=True),
            Field("update.inference.ep", "Expert", whole=True, applies=from_trainers),
            Field("update.inference.gpus", "GPUs", "empty: all others", whole=True, applies=apart),
        ),
        "Trainers": (
            Field("update.trainer.gpus", "GPUs", "empty: half of all", whole=True, applies=apart),
            Field("update.trainer.tp", "Tensor", whole=True, applies=from_trainers),
            Field("update.trainer.pp", "Pipeline", whole=True, applies=from_trainers),
            Field("update.trainer.ep", "Expert", whole=True, applies=from_trainers),
        ),
    },
    onward=(explain_link, onward),
)


def layout(here: Here, query: str) -> "Component":
    """The form, what it answers, and the points of the last curve, which outlive its figure."""
    kept = [dcc.Store(id="update-kept"), zooming.store(GANTT)]
    return html.Div([parts.heading("Weight update", ABOUT), FORM.drawn(here, query), *kept])


def numbers(prediction: AnyPrediction) -> "list[Component]":
    """The headline."""
    assert isinstance(prediction, Prediction)
    report = prediction.report
    low, high = format_seconds(report.interval_low_s), format_seconds(report.interval_high_s)
    spent = report.spent
    rounds = "1 round" if report.rounds == 1 else f"{report.rounds:,} rounds"
    cost = "unknown" if spent.cost_usd is None else format_usd(spent.cost_usd)
    rows = [
        ("Update time", format_seconds(report.update_time_s), f"90 %: {low} to {high}"),
        ("Rate", format_rate(report.effective_bytes_per_s), f"{format_bytes(report.bytes)} over the update"),
        ("Pause", format_seconds(report.pause_s), "as rollouts see it"),
        ("Buckets", f"{report.buckets:,}", f"of {format_bytes(report.bucket_bytes)}, {rounds}"),
        ("Memory", format_bytes(report.peak.bytes), f"of {format_bytes(prediction.resolved.memory_bytes)} per device"),
        ("Bound by", report.bound_by, f"busiest link used {report.busiest_link_share:.0%}"),
        ("Cost", cost, f"of an update, {report.rates.price}"),
        ("Energy", format_energy(spent.energy_j), f"at most{report.rates.scope}"),
    ]
    said = [report.question, _begun(prediction), *report.notes, f"scenario {report.scenario_hash}"]
    return [parts.numbers(rows), parts.said(said)]


def _begun(prediction: Prediction) -> str:
    """Why the timeline is longer than the update."""
    before_s = prediction.timeline.makespan_s - prediction.report.update_time_s
    what = "requests are stopped" if prediction.resolved.from_trainers else "all ranks know all tensors"
    return f"the time of an update begins when {what}, {format_seconds(before_s)} into the timeline"


def figures(prediction: AnyPrediction) -> "list[Component]":
    """Timeline, curve of bucket sizes before its first point, phases, memory."""
    assert isinstance(prediction, Prediction)
    report, resolved = prediction.report, prediction.resolved
    curve = Curve("", buckets.sizes_of(resolved))
    return [
        parts.figure("Timeline", gantt(prediction.timeline, title=report.name), around="wide timeline", id=GANTT),
        parts.figure("Bucket size", bucket_curve(curve, asked(prediction), report.update_time_s), id="update-curve"),
        dcc.Store(id="update-points"),
        dcc.Store(id="update-next"),
        *parts.figures(
            {"Phases": phases(report), "Memory": device_memory(held_by_kind(prediction), resolved.memory_bytes)}
        ),
    ]


def asked(prediction: Prediction) -> int:
    """Bytes of the bucket as the scenario would say them: before anything is quantised."""
    return prediction.resolved.scenario.update.bucket or prediction.report.bucket_bytes


def connect(app: Dash, here: Here) -> None:
    """The form asks; a zoom draws what is seen; the curve grows until it is done."""
    FORM.connect(app, here, numbers, figures)
    zooming.connect(app, here, FORM.base, GANTT, "update-query", _near)
    _grows(app, here)


def _predicted(here: Here, query: str) -> tuple[Question, Prediction]:
    question = from_query(query, FORM.base)
    prediction = here.answers.predict(question)
    assert isinstance(prediction, Prediction)
    return question, prediction


def _near(prediction: AnyPrediction, window_s: Window) -> Any:
    return gantt(prediction.timeline, window_s=window_s)


def _grows(app: Dash, here: Here) -> None:
    @app.callback(
        Output("update-curve", "figure"),
        Output("update-points", "data"),
        Input("update-next", "data"),
        State("update-kept", "data"),
        State("update-query", "data"),
    )
    def grow(_: Any, points: Mapping[str, Any] | None, query: str | None) -> Any:
        if query is None:
            return no_update, no_update
        question, prediction = _predicted(here, query)
        curve = continued(points, question, prediction)
        if not curve.done:
            curve = buckets.grown(curve, question, here.answers)
        return bucket_curve(curve, asked(prediction), prediction.report.update_time_s), curve.to_json()

    app.clientside_callback(
        """(points) => {
            if (!points) return dash_clientside.no_update;
            dash_clientside.set_props("update-kept", {data: points});
            if (!points.done)
                dash_clientside.set_props("update-next", {data: [points.of, points.update_s.length]});
            return dash_clientside.no_update;
        }""",
        Output("update-points", "id"),
        Input("update-points", "data"),
    )


def continued(points: Mapping[str, Any] | None, question: Question, prediction: Prediction) -> Curve:
    """The curve so far if it is of this question, else a new one."""
    if points and points.get("of") == buckets.without_bucket(question).query():
        return Curve.from_json(points)
    return buckets.begun(question, prediction.resolved)


PAGE = Page("/update", "Weight update", "time, pause, buckets", layout, connect)
