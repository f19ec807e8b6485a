"""Figures: pure functions from data to plotly figures, and the HTML and PNG files that hold them."""

from .gantt import gantt
from .image import png, png_browser
from .memory import memory_figure
from .page import Table, html, page

__all__ = ["Table", "gantt", "html", "memory_figure", "page", "png", "png_browser"]
