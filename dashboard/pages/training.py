"""A training step: model, machines, plan, schedule; its pipeline, memory, breakdown, and what they add up to."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dash import Dash, html

from ...simulator.answers.simulate.outputs import PIPELINE, figures_of
from ...simulator.base.units import format_bytes, format_energy, format_seconds, format_usd
from ...simulator.figures import pipeline
from ...simulator.figures.spans import Window
from ...simulator.hardware import cluster_names
from ...simulator.models import preset_names
from ...simulator.predict import AnyPrediction, TrainPrediction
from ...simulator.profile import stack_names
from ...simulator.schedules import SCHEDULES
from .. import parts, zooming
from ..ask import Form
from ..fields import Field
from ..page import Here, Page
from ..question import explain_link, onward

if TYPE_CHECKING:
    from dash.development.base_component import Component

ABOUT = "How long a step takes and how sure that is, whether it fits, and where the time of each rank goes."
GRAPH = "training-pipeline"
TYPES = ("bf16", "fp16", "fp8", "fp8-block", "mxfp8", "nvfp4", "tf32", "fp32")


def _is_named(given: Mapping[str, Any]) -> bool:
    return not given.get("model.config")


FORM = Form(
    "training",
    "train_step",
    "train-llama3-70b-64xh100",
    {
        "Model and machines": (
            Field("model.preset", "Model", options=preset_names(), applies=_is_named),
            Field("cluster", "Cluster", options=cluster_names()),
            Field("nodes", "Nodes", whole=True),
            Field("stack", "Software", options=stack_names()),
            Field("model.config", "config.json", "of Hugging Face, pasted: instead of the model", pasted=True),
        ),
        "Parallelism": (
            Field("parallel.tp", "Tensor", whole=True),
            Field("parallel.pp", "Pipeline", whole=True),
            Field("parallel.cp", "Context", whole=True),
            Field("parallel.ep", "Expert", whole=True),
            Field("parallel.zero", "ZeRO stage", whole=True, least=0),
            Field("parallel.sequence_parallel", "Sequence parallel", switch=True),
        ),
        "Schedule and batch": (
            Field("schedule.name", "Schedule", options=sorted(SCHEDULES)),
            Field("schedule.vpp", "Chunks per rank", whole=True),
            Field("batch.global", "Global batch", whole=True),
            Field("batch.micro", "Micro-batch", whole=True),
            Field("batch.seq_len", "Tokens each", whole=True),
            Field("level", "Level of detail", options=["kernels", "coarse"]),
        ),
        "Precision and memory": (
            Field("precision.compute", "Products in", options=TYPES),
            Field("recompute.mode", "Recomputation", options=["none", "selective", "full"]),
            Field("offload.optimizer", "Optimizer on host", switch=True),
            Field("offload.activations", "Offloaded share", share=True),
        ),
    },
    onward=(explain_link, onward),
)


def layout(here: Here, query: str) -> "Component":
    """The form, and what it answers."""
    return html.Div([parts.heading("Training step", ABOUT), FORM.drawn(here, query), zooming.store(GRAPH)])


def numbers(prediction: AnyPrediction) -> "list[Component]":
    """The headline."""
    assert isinstance(prediction, TrainPrediction)
    report = prediction.report
    low, high = format_seconds(report.interval_low_s), format_seconds(report.interval_high_s)
    memory = f"of {format_bytes(report.memory_bytes)}{'' if report.fits else ': does not fit'}"
    cost = "unknown" if report.cost_usd is None else format_usd(report.cost_usd)
    bound = report.exposed[report.bound_by] / report.step_time_s
    rows = [
        ("Step time", format_seconds(report.step_time_s), f"90 %: {low} to {high}"),
        ("Throughput", f"{report.tokens_per_s:,.0f}", f"tokens/s, {report.tokens_per_s_per_gpu:,.0f} per GPU"),
        ("MFU", f"{report.mfu:.1%}", f"of the dense {report.peak_type} peak"),
        ("Bubble", f"{report.bubble_fraction:.1%}", "waiting for other stages"),
        ("Memory", format_bytes(report.peak.peak_bytes), memory),
        ("Bound by", report.bound_by, f"{bound:.0%} of the critical path"),
        ("Cost of a step", cost, report.rates.price),
        ("Energy, at most", format_energy(report.spent.energy_j), f"of a step{report.rates.scope}"),
    ]
    return [parts.numbers(rows), parts.said([report.question, *report.notes, f"scenario {report.scenario_hash}"])]


def figures(prediction: AnyPrediction) -> "list[Component]":
    """Pipeline, breakdown, memory, kernels."""
    assert isinstance(prediction, TrainPrediction)
    drawn = figures_of(prediction, zooming.MOST_SPANS)
    return [parts.figure(PIPELINE, drawn.pop(PIPELINE), around="wide timeline", id=GRAPH), *parts.figures(drawn)]


def _near(prediction: AnyPrediction, window_s: Window) -> Any:
    assert isinstance(prediction, TrainPrediction)
    grid = prediction.resolved.plan.grid
    return pipeline(prediction.timeline, grid, window_s=window_s, most_spans=zooming.MOST_SPANS)


def connect(app: Dash, here: Here) -> None:
    """The form asks; a zoom draws what is seen."""
    FORM.connect(app, here, numbers, figures)
    zooming.connect(app, here, FORM.base, GRAPH, "training-query", _near)


PAGE = Page("/training", "Training step", "time, memory, pipeline", layout, connect)
