"""Both intervals of a prediction in words."""

from collections.abc import Iterator

from ..base.units import format_seconds
from .draws import Draws
from .first_order import Interval


def beside(first_order: Interval, drawn: Draws) -> Iterator[str]:
    """The interval to first order, and that of the draws with their median."""
    yield f"90 % interval to first order: {_told(first_order)}"
    many = f"{len(drawn.makespans_s):,} draws"
    yield f"90 % interval of {many}: {_told(drawn.interval)}, median {format_seconds(drawn.quantile_s(0.5))}"


def _told(one: Interval) -> str:
    return f"{format_seconds(one.low_s)} to {format_seconds(one.high_s)}"
