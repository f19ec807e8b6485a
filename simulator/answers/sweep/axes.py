"""A grid of changes: axes, all crossed, and its points by number, so that nobody has to hold them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...scenario import Changes


@dataclass(frozen=True)
class Step:
    """One place on an axis: what its columns show, and what it changes."""

    shown: tuple[Any, ...]
    changes: Changes


@dataclass(frozen=True)
class Axis:
    """What varies together: columns of the report, and its steps in order."""

    columns: tuple[str, ...]
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, key: str, values: Sequence[Any]) -> "Axis":
        """One key that takes these values."""
        return cls((key,), tuple(Step((value,), {key: value}) for value in values))

    @classmethod
    def together(cls, values: Mapping[str, Sequence[Any]]) -> "Axis":
        """Keys that vary together: the first of each, the second of each; lists are equally long."""
        rows = zip(*values.values(), strict=True)
        return cls(tuple(values), tuple(Step(tuple(row), dict(zip(values, row, strict=True))) for row in rows))

    @classmethod
    def listed(cls, points: Sequence[Mapping[str, Any]]) -> "Axis":
        """Points as they are; a column is empty where a point does not change its key."""
        columns = tuple(dict.fromkeys(key for point in points for key in point))
        return cls(columns, tuple(Step(tuple(point.get(key) for key in columns), point) for point in points))


def overwritten(axes: Sequence[Axis]) -> tuple[int, str, int, str] | None:
    """The first axis and key whose value takes the place of what an earlier axis changes, and that axis and its key.

    A value takes the place of all that was said at its key and below it; `{ times = 2 }` multiplies what is there.
    """
    earlier: dict[str, int] = {}
    for number, axis in enumerate(axes):
        for key in dict.fromkeys(key for step in axis.steps for key, value in step.changes.items() if _plain(value)):
            for other, first in earlier.items():
                if other == key or other.startswith(f"{key}."):
                    return number, key, first, other
        for step in axis.steps:
            earlier |= {key: earlier.get(key, number) for key in step.changes}
    return None


def _plain(value: Any) -> bool:
    return not (isinstance(value, Mapping) and set(value) == {"times"})


@dataclass(frozen=True)
class Grid:
    """Axes, all crossed: the last one varies fastest. Points are numbered from 0."""

    axes: tuple[Axis, ...]

    def __len__(self) -> int:
        return math.prod(self._sizes)

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(len(axis.steps) for axis in self.axes)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """What the report calls the axes; a name that comes again gets a number."""
        names: list[str] = []
        for name in (column for axis in self.axes for column in axis.columns):
            seen = sum(other.partition(" ")[0] == name for other in names)
            names.append(f"{name} {seen + 1}" if seen else name)
        return tuple(names)

    def places(self, number: int) -> tuple[int, ...]:
        """Where a point is on each axis: the digits of its number in mixed radix."""
        digits = []
        for size in reversed(self._sizes):
            number, digit = divmod(number, size)
            digits.append(digit)
        return tuple(reversed(digits))

    def number(self, places: Sequence[int]) -> int:
        """The number of the point at these places; the inverse of `places`."""
        number = 0
        for size, place in zip(self._sizes, places, strict=True):
            number = number * size + place
        return number

    def steps(self, number: int) -> tuple[Step, ...]:
        """The step of a point on each axis."""
        return tuple(axis.steps[place] for axis, place in zip(self.axes, self.places(number), strict=True))

    def tables(self, number: int) -> tuple[Changes, ...]:
        """What a point changes: a table per axis that changes anything, to be made one after the other."""
        return tuple(step.changes for step in self.steps(number) if step.changes)

    def changes(self, number: int) -> dict[str, Any]:
        """The same in one table, to be shown: a key that two axes change stands there as the last one says it."""
        return {key: value for table in self.tables(number) for key, value in table.items()}

    def shown(self, number: int) -> tuple[Any, ...]:
        """What a point shows in the columns."""
        return tuple(value for step in self.steps(number) for value in step.shown)
