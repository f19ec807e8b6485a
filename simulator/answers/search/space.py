"""A space of plans as a value: axes of changes to a scenario, the rules that say which of their values go together, and
what a user wants of it: axes of their own, values of its axes, schedules, uneven stages.

Points are counted without being visited: where a rule cuts a branch, all points behind it are cut with it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ...base.errors import UserError, fault, unknown
from ...scenario import change, check_values, parse_changes, read_axes
from ...schedules import SCHEDULES
from ...systems.tables import FOR_PEOPLE
from ..sweep.constraints import check_key

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Axis:
    """A key of a scenario and the values that it may take."""

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Rule:
    """A rule for values of several keys, checked once all are known; `name` says what is wrong if it fails."""

    name: str
    keys: tuple[str, ...]
    holds: Callable[[Values], bool]


@dataclass(frozen=True)
class Space:
    """Ordered axes; a point is a value of each. `notes` are for the user, about what the axes and rules leave out."""

    axes: tuple[Axis, ...]
    rules: tuple[Rule, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Points in all, allowed by the rules or not."""
        return prod(len(axis.values) for axis in self.axes)

    def points(self) -> tuple[list[dict[str, Any]], Counter[str]]:
        """The points that no rule cuts, in the order of the axes, and how many each rule cuts; together the space."""
        cuts: Counter[str] = Counter()
        return list(self._below({}, 0, cuts)), cuts

    def _below(self, known: dict[str, Any], depth: int, cuts: Counter[str]) -> Iterator[dict[str, Any]]:
        if depth == len(self.axes):
            yield dict(known)
            return
        axis, behind = self.axes[depth], prod(len(axis.values) for axis in self.axes[depth + 1 :])
        keys = {axis.key for axis in self.axes[: depth + 1]}
        rules = [rule for rule in self.rules if axis.key in rule.keys and set(rule.keys) <= keys]
        for value in axis.values:
            known[axis.key] = value
            broken = next((rule for rule in rules if not rule.holds(known)), None)
            if broken is None:
                yield from self._below(known, depth + 1, cuts)
            else:
                cuts[broken.name] += behind
        del known[axis.key]


def divisors(number: int) -> tuple[int, ...]:
    """Ascending."""
    small = [i for i in range(1, int(number**0.5) + 1) if number % i == 0]
    return tuple(sorted({*small, *(number // i for i in small)}))


# What a user wants.

_NAMED: Mapping[str, Values] = {"schedule": {"name": "1f1b"}, "recompute": {"mode": "none"}}
"""What tables of a user say by default, as plans are told by it."""
_QUESTION = (*FOR_PEOPLE, "kind", "cluster", "nodes", "model", "level", "profile", "stack")


@dataclass(frozen=True)
class Wanted:
    """What a user adds to the space: schedules by name (default: Megatron-LM's and the scenario's own), axes of their
    own, axes that are fixed, stages of unequal numbers of layers, and the tool that is to run a plan (or `any`).
    """

    schedules: tuple[str, ...] = ()
    vary: Mapping[str, Sequence[Any]] | None = None
    fix: Mapping[str, Any] | None = None
    uneven: bool = False
    target: str = "any"


def read_wanted(
    schedules: str | None, vary: Sequence[str], fix: Sequence[str], uneven: bool = False, target: str = "any"
) -> Wanted:
    """Read the flags: names split by commas, `key=[value, …]` and `key=value` lines; else a UserError."""
    axes = read_axes(parse_changes(vary, "--vary", "parallel.zero=[0, 1, 2]"), "--vary")
    names = tuple(name.strip() for name in (schedules or "").split(",") if name.strip())
    return Wanted(names, axes, parse_changes(fix, "--fix", "parallel.tp=8"), uneven, target)


def add_wanted(space: Space, wanted: Wanted, table: Mapping[str, Any]) -> Space:
    """The space with a user's values in place of its own, and a user's axes before its own, so that rules see them.

    Values are checked by the schema first, as rules compute with them.
    """
    counted = {axis.key for axis in space.axes if all(type(value) is int for value in axis.values)}
    counted &= {key for rule in space.rules for key in rule.keys}
    given: dict[str, tuple[Any, ...]] = {}
    for flag, axes in (("--vary", wanted.vary or {}), ("--fix", {k: (v,) for k, v in (wanted.fix or {}).items()})):
        for key, values in axes.items():
            _check_key(flag, key, [*given, *(axis.key for axis in space.axes)], table)
            if key in given:
                raise UserError(f"--fix {key}: --vary has it too")
            for value in values:
                _check_value(flag, key, value, table, counts=key in counted)
            given[key] = tuple({**_NAMED.get(key, {}), **value} if key in _NAMED else value for value in values)
    own = tuple(Axis(axis.key, given.pop(axis.key, axis.values)) for axis in space.axes)
    return replace(space, axes=(*(Axis(key, values) for key, values in given.items()), *own))


def _check_key(flag: str, key: str, others: Iterable[str], table: Mapping[str, Any]) -> None:
    """Raises a UserError for a key that is no part of a plan, that there is not, or that meets another axis."""
    if key.partition(".")[0] in _QUESTION:
        raise UserError(fault(flag, "", key, "is what is asked, not part of a plan: --set or --gpus"))
    check_key(table.get("kind", "weight_update"), key, flag, "")
    for other in others:
        if other.startswith(f"{key}.") or key.startswith(f"{other}."):
            allowed = f"meets the axis {other}, and one would undo the other: --vary or --fix {other} itself"
            raise UserError(fault(flag, "", key, allowed))


def _check_value(flag: str, key: str, value: Any, table: Mapping[str, Any], counts: bool) -> None:
    """Raises a UserError where the schema has no such value; what does not go with other keys, plans say themselves."""
    if counts and type(value) is not int:  # the schema would read "8", too
        raise UserError(fault(flag, key, value, "expected a whole number, such as 8"))
    if key == "schedule" and isinstance(value, Mapping) and value.get("name", "1f1b") not in SCHEDULES:
        raise unknown(flag, "schedule.name", str(value["name"]), SCHEDULES)
    try:
        check_values(change(table, {key: value}, flag), flag)
    except UserError as error:
        if own := [line for line in error.faults if line.startswith(tuple(f"{flag}: {key}{end}" for end in " .:"))]:
            raise UserError(*own) from None
