"""Ranges of an axis: from one number or quantity to another by steps, by a factor, or in so many steps.

Of such numbers nobody says the dimension: what a unit stands for is read off the unit.
"""

import math
from typing import Any, get_args

from ...base.units import Dimension, parse, times


def si_value(value: Any, like: Any = None) -> float:
    """A number, or a quantity of any dimension, in SI units; with `like`, of the same dimension as that.

    Raises:
        ValueError: neither, or the two differ in dimension.
    """
    if like is not None:
        si_value(like)
    fitting = [found for dimension in get_args(Dimension) if (found := _parsed(value, dimension)) is not None]
    if not fitting:
        raise ValueError(f"{value!r} is neither a number nor a quantity such as '80 GiB' or '2 s'")
    if like is not None and not any(_is(value, like, dimension) for dimension in get_args(Dimension)):
        raise ValueError(f"{value!r} and {like!r} are not of one kind")
    return fitting[0]


def _is(value: Any, like: Any, dimension: Dimension) -> bool:
    return _parsed(value, dimension) is not None and _parsed(like, dimension) is not None


def _parsed(value: Any, dimension: Dimension) -> float | None:
    if not isinstance(value, int | float | str):
        return None
    try:
        return parse(value, dimension)
    except ValueError:
        return None


MOST_STEPS = 100_000


def spread(start: Any, stop: Any, step: Any = None, factor: Any = None, steps: int | None = None) -> list[Any]:
    """The values of a range; exactly one of step, factor and steps is given. Quantities keep the unit of the first.

    Raises:
        ValueError: quantities of different dimensions, a range that never arrives, or too many values.
    """
    first, last = si_value(start, stop), si_value(stop, start)
    if factor is not None:
        return _by_factor(start, first, last, si_value(factor))
    if steps is not None:
        if steps < 2:
            raise ValueError("steps must be 2 or more: both ends count")
        return [_value(start, first, first + i * (last - first) / (steps - 1)) for i in range(_few(steps))]
    each = si_value(step, start)
    if each == 0 or (last - first) / each < 0:
        raise ValueError(f"steps of {step} never lead from {start} to {stop}")
    return [_value(start, first, first + i * each) for i in range(_count((last - first) / each))]


def _by_factor(start: Any, first: float, last: float, factor: float) -> list[Any]:
    if factor <= 0 or factor == 1 or first <= 0 or last <= 0 or math.log(last / first) / math.log(factor) < 0:
        raise ValueError(f"times {factor:g} never leads from {start} to the end")
    return [_value(start, first, first * factor**i) for i in range(_count(math.log(last / first) / math.log(factor)))]


def _count(intervals: float) -> int:
    """Values of a range of so many intervals; its end belongs to it, whatever was rounded on the way."""
    return _few(math.floor(min(intervals, 2.0 * MOST_STEPS) + 1e-9) + 1)


def _few(count: int) -> int:
    if count > MOST_STEPS:
        raise ValueError(f"has more than {MOST_STEPS:,} values")
    return count


def _value(start: Any, first: float, value: float) -> Any:
    """A value as the start was written: text with its unit, or a number, whole where it can be."""
    if isinstance(start, str):
        return times(start, value / first) if first else _beside_zero(start, value)
    rounded = float(f"{value:.12g}")
    return int(rounded) if isinstance(start, int) and rounded == int(rounded) else rounded


def _beside_zero(start: str, value: float) -> Any:
    """A range that starts at nothing has nothing to multiply: the first value as it is, the others in SI."""
    return float(f"{value:.12g}") if value else start
