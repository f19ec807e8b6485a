"""A grid of changes: axes, all crossed, and its points by number, so that nobody has to hold them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...base.units import quantity, times
from ...scenario import Changes, multiplies


@dataclass(frozen=True)
class Step:
    """One value of an axis: what its columns show, and what it changes."""

    shown: tuple[Any, ...]
    changes: Changes


@dataclass(frozen=True)
class Axis:
    """Things that vary together: columns of the report, and the steps in order."""

    columns: tuple[str, ...]
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, key: str, values: Sequence[Any]) -> "Axis":
        """One key that takes these values."""
        return cls.of_points([{key: value} for value in values])

    @classmethod
    def of_points(cls, points: Sequence[Mapping[str, Any]]) -> "Axis":
        """Points as they are; a column is empty where a point does not change its key."""
        columns = tuple(dict.fromkeys(key for point in points for key in point))
        return cls(columns, tuple(Step(tuple(point.get(key) for key in columns), point) for point in points))


def find_replaced(axes: Sequence[Axis]) -> tuple[int, str, int, str] | None:
    """The first axis and key whose value takes the place of what an earlier axis changes, and that axis and its key.

    A value takes the place of all that was said at its key and below it; `{ times = 2 }` multiplies what is there.
    """
    earlier: dict[str, int] = {}
    for number, axis in enumerate(axes):
        changes = [change for step in axis.steps for change in step.changes.items()]
        for key in dict.fromkeys(key for key, value in changes if not multiplies(value)):
            for other, first in earlier.items():
                if other == key or other.startswith(f"{key}."):
                    return number, key, first, other
        earlier |= {key: earlier.get(key, number) for key, _ in changes}
    return None


@dataclass(frozen=True)
class Grid:
    """Axes, all crossed: the last one varies fastest. Points are numbered from 0."""

    axes: tuple[Axis, ...]

    def __len__(self) -> int:
        return math.prod(len(axis.steps) for axis in self.axes)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The axes' names in the report; a repeated name gets a number."""
        names: list[str] = []
        for name in (column for axis in self.axes for column in axis.columns):
            seen = sum(other.partition(" ")[0] == name for other in names)
            names.append(f"{name} {seen + 1}" if seen else name)
        return tuple(names)

    def steps(self, number: int) -> list[Step]:
        """The step of a point on each axis: the digits of its number in mixed radix."""
        steps = []
        for axis in reversed(self.axes):
            number, place = divmod(number, len(axis.steps))
            steps.append(axis.steps[place])
        return steps[::-1]

    def tables(self, number: int) -> tuple[Changes, ...]:
        """The changes of a point: a table for each axis with changes, to be applied in order."""
        return tuple(step.changes for step in self.steps(number) if step.changes)

    def shown(self, number: int) -> tuple[Any, ...]:
        """The values of a point in the columns."""
        return tuple(value for step in self.steps(number) for value in step.shown)


MOST_STEPS = 100_000


def spread(start: Any, stop: Any, step: Any = None, factor: Any = None, steps: int | None = None) -> list[Any]:
    """The values of a range; exactly one of step, factor and steps is given. Quantities keep the unit of the first.

    A ValueError for quantities of different dimensions, a range that never arrives, or too many values.
    """
    given = start, stop, 0 if step is None else step
    (first, last, each), dimensions = zip(*map(quantity, given), strict=True)
    if len({*dimensions} - {None}) > 1:
        raise ValueError(f"{' and '.join(map(repr, given))} are not of one kind")
    value: Callable[[int], float]
    if factor is not None:
        by, _ = quantity(factor)
        if by <= 0 or by == 1 or first <= 0 or last <= 0 or math.log(last / first) / math.log(by) < 0:
            raise ValueError(f"times {by:g} never leads from {start} to the end")
        intervals, value = math.log(last / first) / math.log(by), lambda i: first * by**i
    elif steps is not None:
        if steps < 2:
            raise ValueError("steps must be 2 or more: both ends count")
        intervals, value = steps - 1, lambda i: first + i * (last - first) / (steps - 1)
    else:
        if each == 0 or (last - first) / each < 0:
            raise ValueError(f"steps of {step} never lead from {start} to {stop}")
        intervals, value = (last - first) / each, lambda i: first + i * each
    count = math.floor(min(intervals, 2.0 * MOST_STEPS) + 1e-9) + 1  # the end counts, whatever was rounded on the way
    if count > MOST_STEPS:
        raise ValueError(f"has more than {MOST_STEPS:,} values")
    return [_like(start, first, value(i)) for i in range(count)]


def _like(start: Any, first: float, value: float) -> Any:
    """A value as the start was written: text with its unit, or a number, whole where it can be."""
    if isinstance(start, str):
        if first:
            return times(start, value / first)
        return float(f"{value:.12g}") if value else start  # nothing to multiply: the start, then values in SI units
    rounded = float(f"{value:.12g}")
    return int(rounded) if isinstance(start, int) and rounded == int(rounded) else rounded
