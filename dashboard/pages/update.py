"""A weight update: its timeline, memory and phases by model, machines and method, and what the size of buckets does."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from dash import ClientsideFunction, Dash, Input, Output, dcc, no_update

from ...simulator.base.units import format_bytes, format_seconds
from ...simulator.figures import gantt
from ...simulator.hardware import cluster_names
from ...simulator.models import preset_names
from ...simulator.predict import Prediction
from ...simulator.profile import stack_names
from ...simulator.systems.weight_update.methods import FROM_TRAINERS, SERVED
from .. import buckets, parts
from ..buckets import Curve
from ..figures.update import bucket_curve, device_memory, kinds_of_device, phases
from ..forms import fields
from ..forms.ask import Form, draw_timeline, predicted_page
from ..forms.fields import Field
from ..page import Here, inputs, outputs, states
from ..question import Question, parse_query

if TYPE_CHECKING:
    from dash.development.base_component import Component

ABOUT = "How long new weights take to reach the engines, how long rollouts pause, and which bucket is best."


def _methods(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether the method that is given is one of these."""
    return lambda given: given.get("update.method") in names


FROM_TRAINER, OF_SERVERS = _methods(*FROM_TRAINERS), _methods(*SERVED)
APART = _methods(*(name for name in FROM_TRAINERS if name != "colocated"))
"""Of methods by which engines have GPUs of their own beside the trainers'."""

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
            Field("update.pipeline", "Overlap", options=("two_stage", "three_stage", "serial"), applies=OF_SERVERS),
            Field("update.ranks", "Updated ranks", whole=True, applies=_methods("p2p")),
            Field("update.quantize", "FP8 quantization", options=("none", "before", "after"), applies=FROM_TRAINER),
            Field("update.storage.write", "File system writes", "empty: 20 GB/s", applies=_methods("file_system")),
            Field("update.storage.read", "File system reads", "empty: 40 GB/s", applies=_methods("file_system")),
        ),
        "Bucket": (Field(buckets.KEY, "Bucket size", size=True),),
        "Engines": (
            Field("update.inference.tp", "Tensor (TP)", whole=True),
            Field("update.inference.ep", "Expert (EP)", whole=True, applies=FROM_TRAINER),
            Field("update.inference.gpus", "GPUs", "empty: all others", whole=True, applies=APART),
        ),
        "Trainers": (
            Field("update.trainer.gpus", "GPUs", "empty: half of all", whole=True, applies=APART),
            Field("update.trainer.tp", "Tensor (TP)", whole=True, applies=FROM_TRAINER),
            Field("update.trainer.pp", "Pipeline (PP)", whole=True, applies=FROM_TRAINER),
            Field("update.trainer.ep", "Expert (EP)", whole=True, applies=FROM_TRAINER),
        ),
    },
)


KEPT = dcc.Store(id="update-kept")
"""The points of the last curve, which outlive its figure."""


def cards(prediction: Prediction) -> list[parts.Card]:
    """The headline."""
    report = prediction.report
    rounds = "1 round" if report.rounds == 1 else f"{report.rounds:,} rounds"
    small = {
        "update_time_s": f"{parts.interval(report.interval_low_s, report.interval_high_s)}; {_beginning(prediction)}",
        "effective_bytes_per_s": f"{format_bytes(report.bytes)} over the update",
        "pause_s": "as rollouts see it",
        "buckets": f"of {format_bytes(report.bucket_bytes)}, {rounds}",
        "peak_memory_bytes": f"of {format_bytes(prediction.resolved.memory_bytes)} per device",
        "bound_by": f"busiest link used {report.busiest_link_share:.0%}",
        "cost_usd": f"of an update, {report.rates.price}",
        "energy_j": f"at most{report.rates.scope}",
    }
    return [card._replace(bad=card.name == "Memory" and not report.fits) for card in parts.cards(report, small)]


def _beginning(prediction: Prediction) -> str:
    """Why the timeline is longer than the update."""
    before_s = prediction.timeline.makespan_s - prediction.report.update_time_s
    what = "requests are stopped" if prediction.resolved.from_trainers else "all ranks know all tensors"
    return f"begins when {what}, {format_seconds(before_s)} into the timeline"


def figures(prediction: Prediction) -> "list[Component]":
    """Timeline, curve of bucket sizes before its first point, phases, memory."""
    report, resolved = prediction.report, prediction.resolved
    curve = buckets.new_curve(Question(""), resolved)
    memory = device_memory(kinds_of_device(prediction), resolved.memory_bytes)
    return [
        draw_timeline(FORM, "Timeline", gantt(prediction.timeline, title=report.name)),
        parts.figure("Bucket size", bucket_curve(curve, prediction), id="update-curve"),
        dcc.Store(id="update-points"),
        dcc.Store(id="update-next"),
        dcc.Store(id="update-ends"),
        *parts.figures({"Phases": phases(report), "Memory": memory}),
    ]


def connect(app: Dash, here: Here) -> None:
    """The curve of bucket sizes grows until it is done."""

    @app.callback(
        *outputs("update", "curve.figure", "points.data", "ends.data"),
        *inputs("update", "next.data"),
        *states("update", "kept.data", "query.data"),
    )
    def grow(_: Any, points: Mapping[str, Any] | None, query: str | None) -> Any:
        if query is None:
            return no_update, no_update, no_update
        question = parse_query(query, FORM.base)
        prediction = cast(Prediction, here.answers.predict(question))
        curve = buckets.new_curve(question, prediction.resolved)
        if points and points.get("of") == curve.of:
            curve = Curve.from_json(points)
        if not curve.done:
            curve = buckets.grow(curve, question, here.answers)
        return bucket_curve(curve, prediction), curve.to_json(), buckets.slider_ends(FORM.name, curve)

    fields.write_ends(app, "update-ends")
    points = "update-points"
    app.clientside_callback(ClientsideFunction("curve", "grow"), Output(points, "id"), Input(points, "data"))


PAGE = predicted_page(FORM, "Weight update", "time, pause, buckets", ABOUT, cards, figures, connect, KEPT)
