"""A collective: its time and bus bandwidth by size and algorithm on a cluster."""

from itertools import pairwise
from typing import TYPE_CHECKING

from dash import html

from ...simulator.base.units import format_bytes
from ...simulator.collectives.algorithms import OPS
from ...simulator.hardware import cluster_names
from ...simulator.systems.collective.system import CollectivePrediction
from ...simulator.systems.collective.text import words
from .. import parts, tables
from ..forms.ask import Form, draw_all, predicted_page
from ..forms.fields import Field, size_text

if TYPE_CHECKING:
    from dash.development.base_component import Component

ABOUT = "How long an exchange between GPUs takes by size and algorithm, and which algorithm is fastest."


def sizes_text(sizes: list[int]) -> str:
    """Sizes as text that reads back, where each is twice the one before; nothing for others."""
    doubled = all(b == 2 * a for a, b in pairwise(sizes))
    return f"{size_text(sizes[0])}:{size_text(sizes[-1])}" if doubled else ""


FORM = Form(
    "collective",
    "collective",
    "collective-all-reduce-512xh100",
    {
        "Machines": (
            Field("cluster", "Cluster", options=cluster_names()),
            Field("nodes", "Nodes", whole=True),
        ),
        "Collective": (
            Field("collective.op", "Operation", options=tuple(OPS)),
            Field("collective.algorithm", "Algorithm", "all, or its name"),
            Field("collective.sizes", "Sizes", "such as 1 KiB:16 GiB", text=sizes_text),
            Field("collective.level", "Priced by", options=("formula", "chunks", "measured")),
            Field("collective.backend", "Library", "empty: none", options=("nccl", "gloo", "mpi"), optional=True),
            Field("collective.gpus", "GPUs", "empty: all", whole=True),
            Field("collective.groups", "Groups at once", whole=True),
            Field("collective.placement", "Placement", options=("packed", "scattered", "rails", "interleaved")),
        ),
    },
)  # fmt: skip


def cards(prediction: CollectivePrediction) -> list[parts.Card]:
    """The headline: the fastest algorithm at the largest size."""
    report = prediction.report
    small = {
        "seconds": f"for {format_bytes(report.best.bytes)}; {parts.interval(*report.interval_s)}",
        "busbw_bytes_per_s": "as nccl-tests counts",
        "algbw_bytes_per_s": "bytes over time",
        "algorithm": f"by {report.best.level}",
        "ranks": "GPUs of a group",
    }
    return parts.cards(report, small)


def figures(prediction: CollectivePrediction) -> "list[Component]":
    """Bandwidth and time by size, the timeline of the fastest, and the table as nccl-tests prints it."""
    timeline, *others = draw_all(FORM, prediction)
    said = words(prediction.report)
    every = html.Details([html.Summary("All sizes and algorithms"), *(tables.table(*one) for one in said.tables)])
    return [*others, timeline, tables.table(*said.phases), every]


PAGE = predicted_page(FORM, "Collective", "busbw, algorithms", ABOUT, cards, figures)
