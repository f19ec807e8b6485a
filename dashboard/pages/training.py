"""A training step: model, machines, plan, schedule; its pipeline, memory, breakdown, and what they add up to."""

from collections.abc import Iterator

from ...simulator.base.units import format_bytes
from ...simulator.hardware import cluster_names
from ...simulator.models import preset_names
from ...simulator.predict import TrainPrediction
from ...simulator.profile import stack_names
from ...simulator.schedules import SCHEDULES
from ...simulator.systems.train_step.report import TrainReport
from .. import parts
from ..forms.ask import Form, predicted_page
from ..forms.fields import Field
from ..question import BASE

ABOUT = "How long a step takes and how sure that is, whether it fits, and where the time of each rank goes."
TYPES = ("bf16", "fp16", "fp8", "fp8-block", "mxfp8", "nvfp4", "tf32", "fp32")

FORM = Form(
    "training",
    "train_step",
    BASE,
    {
        "Model and machines": (
            Field("model.preset", "Model", options=preset_names(), applies=lambda given: not given.get("model.config")),
            Field("cluster", "Cluster", options=cluster_names()),
            Field("nodes", "Nodes", whole=True),
            Field("stack", "Software", options=stack_names()),
            Field("model.config", "config.json", "of Hugging Face, pasted: instead of the model", pasted=True),
        ),
        "Parallelism": (
            Field("parallel.tp", "Tensor (TP)", whole=True),
            Field("parallel.pp", "Pipeline (PP)", whole=True),
            Field("parallel.cp", "Context (CP)", whole=True),
            Field("parallel.ep", "Expert (EP)", whole=True),
            Field("parallel.zero", "ZeRO stage", whole=True, least=0),
            Field("parallel.sequence_parallel", "Sequence parallel", switch=True),
        ),
        "Schedule and batch": (
            Field("schedule.name", "Schedule", options=sorted(SCHEDULES)),
            Field("schedule.vpp", "Chunks per rank", whole=True),
            Field("batch.global", "Global batch", whole=True),
            Field("batch.micro", "Micro-batch", whole=True),
            Field("batch.seq_len", "Sequence length", whole=True),
            Field("level", "Level of detail", options=["kernels", "coarse"]),
        ),
        "Precision and memory": (
            Field("precision.compute", "GEMM precision", options=TYPES),
            Field("recompute.mode", "Recomputation", options=["none", "selective", "full"]),
            Field("offload.optimizer", "Optimizer offload", switch=True),
            Field("offload.activations", "Activation offload", "share", share=True),
        ),
    },
)


def _memory(report: TrainReport) -> str:
    """Of how much, with its interval, and whether it fits."""
    low, high = map(format_bytes, report.peak.interval_bytes)
    fits = parts.fits(report.fits, report.fits_probability)
    return f"of {format_bytes(report.memory_bytes)}: {fits} (90 %: {low} to {high})"


def cards(prediction: TrainPrediction) -> Iterator[parts.Card]:
    """The headline."""
    report = prediction.report
    bound = report.exposed[report.bound_by] / report.step_time_s
    small = {
        "step_time_s": parts.interval(report.interval_low_s, report.interval_high_s),
        "tokens_per_s": f"tokens/s, {report.tokens_per_s_per_gpu:,.0f} per GPU",
        "mfu": f"of the dense {report.peak_type} peak",
        "peak_memory_bytes": _memory(report),
        "bubble_fraction": "waiting for other stages",
        "bound_by": f"{bound:.0%} of the critical path",
        "cost_usd": f"of a step, {report.rates.price}",
        "energy_j": f"of a step, at most{report.rates.scope}",
    }
    for card in parts.cards(report, small):
        yield card._replace(bad=card.name == "Memory" and not report.fits)


PAGE = predicted_page(FORM, "Training step", "time, memory, pipeline", ABOUT, cards)
