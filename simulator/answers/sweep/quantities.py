"""Numbers of which nobody says the dimension: what a unit stands for is read off the unit."""

from typing import Any, get_args

from ...base.units import Dimension, parse


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
