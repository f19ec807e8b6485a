"""Figures: pure functions from data to plotly figures, and the HTML and PNG files that hold them."""

from ..report.report import Table
from .breakdown import breakdown, tornado, waterfall
from .gantt import gantt
from .layer_view import layer_view
from .page import html, page, png, png_browser
from .pipeline import pipeline
from .rank_memory import memory_by_owner, memory_by_rank

__all__ = [
    "Table", "breakdown", "gantt", "html", "layer_view", "memory_by_owner", "memory_by_rank", "page",
    "pipeline", "png", "png_browser", "tornado", "waterfall",
]  # fmt: skip
