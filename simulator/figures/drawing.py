"""Which figure draws a Timeline: the pipeline of a step, the course of a run, or bars of devices."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..schedules import Grid
from ..systems.registry import SYSTEMS
from ..timeline import Timeline
from . import actions
from .gantt import gantt
from .pipeline import pipeline
from .run import course, dates
from .spans import Window
from .theme import MARK, axis_ends

if TYPE_CHECKING:
    import plotly.graph_objects as go


def draw_timeline(
    kind: str,
    timeline: Timeline,
    grid: Grid | None = None,
    ranks: Sequence[int] | None = None,
    title: str = "Timeline",
    window_s: Window | None = None,
    most_spans: int | None = None,
    opens_near: bool = False,
) -> "go.Figure":
    """The timeline of a system of this kind; with `window_s` that is what is seen, and there more is told apart.

    `grid`, `ranks`, `most_spans` and `opens_near` are as `pipeline` and `gantt` have them.
    """
    if grid is not None:
        return pipeline(timeline, grid, title=title, window_s=window_s, most_spans=most_spans, opens_near=opens_near)
    if SYSTEMS[kind].is_course:
        return course(timeline, title=title, window_s=window_s)
    return gantt(timeline, ranks, title=title, window_s=window_s)


def first_look(timeline: Timeline, grid: Grid) -> Window:
    """What `opens_near` shows of a pipeline at first: its warm-up where it has very many actions, else all."""
    return actions.first_look(actions.boxes(actions.drop_replicas(timeline, grid), grid), timeline.makespan_s)


def look_at(figure: "go.Figure", whole_s: Window, window_s: Window | None = None) -> None:
    """Show these seconds of a timeline's figure, all by default, as one whose axis ends where `whole_s` does."""
    figure.update_xaxes(**axis_ends(_on_axis(figure, whole_s), _on_axis(figure, window_s or whole_s)))


def add_mark(figure: "go.Figure", window_s: Window) -> None:
    """Mark these seconds of a timeline's figure from top to bottom."""
    begin, end = _on_axis(figure, window_s)
    figure.add_shape(type="rect", x0=begin, x1=end, yref="paper", y0=0, y1=1, fillcolor=MARK, opacity=0.35,
                     line={"color": MARK, "width": 1.5}, layer="above")  # fmt: skip


def _on_axis(figure: "go.Figure", window_s: Window) -> Sequence[Any]:
    """Seconds as the time axis of a figure has them."""
    return dates(window_s) if figure.layout.xaxis.type == "date" else list(window_s)
