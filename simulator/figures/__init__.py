"""Figures: pure functions from data to plotly figures, and the HTML and PNG files that hold them."""

from .breakdown import breakdown, difference, tornado, waterfall
from .collective import busbw_by_size, time_by_size
from .drawing import draw_timeline, first_look, look_at
from .fabric import draw_fabric
from .gantt import compare_steps, gantt
from .layer_view import layer_view
from .page import Marked, Section, fit_script, page, png, png_browser, write_html
from .pipeline import pipeline
from .rank_memory import memory_by_owner, memory_by_rank
from .run import course, staleness
from .spans import Window

__all__ = [
    "Marked", "Section", "Window", "breakdown", "busbw_by_size", "compare_steps", "course", "difference", "draw_fabric",
    "draw_timeline", "first_look", "fit_script", "gantt", "layer_view", "look_at", "memory_by_owner", "memory_by_rank",
    "page", "pipeline", "png", "png_browser", "staleness", "time_by_size", "tornado", "waterfall", "write_html",
]  # fmt: skip
