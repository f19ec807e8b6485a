"""A space of plans as a value: axes of changes to a scenario, and the rules that say which of their values go together.

Points are counted without being visited: where a rule cuts a branch, all points behind it are cut with it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Axis:
    """A key of a scenario and the values that it may take."""

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Rule:
    """What values of these keys must hold together, asked once all are known; `name` says what is wrong if not."""

    name: str
    keys: tuple[str, ...]
    holds: Callable[[Values], bool]


@dataclass(frozen=True)
class Space:
    """Ordered axes; a point is a value of each."""

    axes: tuple[Axis, ...]
    rules: tuple[Rule, ...] = ()

    @property
    def size(self) -> int:
        """Points in all, allowed by the rules or not."""
        return prod(len(axis.values) for axis in self.axes)

    def cut(self, point: Values) -> str | None:
        """The first rule that a whole point breaks."""
        return next((rule.name for rule in self.rules if not rule.holds(point)), None)

    def points(self) -> tuple[list[dict[str, Any]], Counter[str]]:
        """The points that no rule cuts, in the order of the axes, and how many each rule cuts; together the space."""
        cuts: Counter[str] = Counter()
        return list(self._below({}, 0, cuts)), cuts

    def _below(self, known: dict[str, Any], depth: int, cuts: Counter[str]) -> Iterator[dict[str, Any]]:
        if depth == len(self.axes):
            yield dict(known)
            return
        axis, behind = self.axes[depth], prod(len(axis.values) for axis in self.axes[depth + 1 :])
        rules = self._asked_at(depth)
        for value in axis.values:
            known[axis.key] = value
            broken = next((rule for rule in rules if not rule.holds(known)), None)
            if broken is None:
                yield from self._below(known, depth + 1, cuts)
            else:
                cuts[broken.name] += behind
        del known[axis.key]

    def _asked_at(self, depth: int) -> list[Rule]:
        """The rules whose last key is this axis."""
        known, key = {axis.key for axis in self.axes[: depth + 1]}, self.axes[depth].key
        return [rule for rule in self.rules if key in rule.keys and set(rule.keys) <= known]


def divisors(number: int) -> tuple[int, ...]:
    """Ascending."""
    small = [i for i in range(1, int(number**0.5) + 1) if number % i == 0]
    return tuple(sorted({*small, *(number // i for i in small)}))
