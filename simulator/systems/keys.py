"""How keys of a scenario depend on each other: those that say something only beside others, those of which a scenario
gives one, and values that are chosen for a machine, a model or a plan. Which keys these are, each system says.

One list of needs for three uses: a file that gives such a key alone is refused; a change that takes away what a key of
the file goes with leaves the key out, with a note; a stack's default is left out. A change of what a value is pinned to
leaves the value out if checks then refuse it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel

from ..base.errors import Fault, UserError, fault
from ..base.toml import toml_value


class Values:
    """What a scenario says of keys with dots: what its table gives, or what silence means by its schema."""

    def __init__(self, table: Mapping[str, Any], schema: type[BaseModel]):
        self.given = dict(_flat(table))
        self._defaults = _flat_defaults(schema)

    def gives(self, key: str) -> bool:
        """Whether the table itself has a value for the key."""
        return key in self.given

    def __getitem__(self, key: str) -> Any:
        return self.given[key] if key in self.given else self._defaults.get(key)


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of a table and of those in it, with dots."""
    for name, value in table.items():
        if value is not None:
            yield f"{before}{name}", value
        if type(value) is dict or isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")


def value_at(table: Mapping[str, Any], key: str) -> Any:
    """The value that a table has for a key with dots; None if none."""
    value: Any = table
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


@cache
def _flat_defaults(schema: type[BaseModel]) -> Mapping[str, Any]:
    return dict(_flat(schema_defaults(schema)))


@cache
def schema_defaults(table: type[BaseModel]) -> Mapping[str, Any]:
    """What keys mean where a scenario does not give them, for those that have one meaning."""
    found: dict[str, Any] = {}
    for name, field in table.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found[field.alias or name] = schema_defaults(field.annotation)
        elif not field.is_required():
            found[field.alias or name] = field.get_default(call_default_factory=True)
    return found


def _any(_: Any) -> bool:
    return True


@dataclass(frozen=True)
class Need:
    """What a key goes with: `met` says whether a scenario has it, `words` what it is.

    Values for which `applies` is false need nothing.
    """

    key: str
    met: Callable[[Values], bool]
    words: Callable[[Values], str]
    applies: Callable[[Any], bool] = _any

    def fails(self, values: Values) -> bool:
        """Whether the scenario gives the key without what it goes with."""
        return values.gives(self.key) and self.applies(values[self.key]) and not self.met(values)


def unmet_needs(values: Values, needs: tuple[Need, ...]) -> Iterator[Need]:
    """The needs that a scenario does not meet, the first one of each key."""
    found: dict[str, Need] = {}
    for need in needs:
        if need.key in values.given and need.key not in found and need.fails(values):
            found[need.key] = need
    yield from found.values()


Rivals = tuple[tuple[str, ...], ...]


def faults(values: Values, needs: tuple[Need, ...], rivals: Rivals, where: str) -> list[str]:
    """A line for each key that says nothing beside the others."""
    unmet = unmet_needs(values, needs)
    lines: list[str] = [fault(where, need.key, values[need.key], need.words(values)) for need in unmet]
    for keys in rivals:
        first, *others = [key for key in keys if values[key] and values.gives(key)] or [""]
        lines += [fault(where, key, values[key], f"{first} is given: leave one of the two out") for key in others]
    return lines


def value_text(value: Any) -> str:
    """A value as messages show it: words as Python does, all else as TOML."""
    return repr(value) if isinstance(value, str) else toml_value(value)


def goes_with(key: str, other: str, *allowed: Any, applies: Callable[[Any], bool] = _any) -> Need:
    """A key that goes with some values of another one."""
    known = " or ".join(map(value_text, allowed))
    return Need(
        key,
        lambda values: values[other] in allowed,
        lambda values: f"goes with {other} = {known}, not {value_text(values[other])}",
        applies,
    )


def excludes(key: str, other: str, *refused: Any, why: str, applies: Callable[[Any], bool] = _any) -> Need:
    """A key that does not go with some values of another one."""
    return Need(
        key,
        lambda values: values[other] not in refused,
        lambda values: f"does not go with {other} = {value_text(values[other])}{why}",
        applies,
    )


def goes_beside(key: str, other: str) -> Need:
    """A key that goes with another one, whatever its value."""
    return Need(key, lambda values: values.gives(other), lambda _: f"goes with {other}")


def needs_split(key: str, other: str, applies: Callable[[Any], bool] = _any) -> Need:
    """A key of an axis that is split."""
    return Need(key, lambda values: values[other] != 1, lambda _: f"goes with {other} above 1", applies)


@dataclass(frozen=True)
class Change:
    """A scenario before and after a change as tables, and what it stands for now."""

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    now: Any


@dataclass(frozen=True)
class Pin:
    """A key, those that its value is chosen for, and the check that refuses it where it does not fit them."""

    key: str
    of: tuple[str, ...]
    check: Callable[[Change], object]

    def faults(self, change: Change) -> list[Fault]:
        """What the check says against the value."""
        try:
            self.check(change)
        except UserError as error:
            return [line for line in error.faults if isinstance(line, Fault) and line.key == self.key]
        return []


OF_MODEL = (
    goes_beside("model.tensors", "model.bytes"),
    goes_beside("model.largest", "model.bytes"),
    goes_beside("model.overrides", "model.preset"),
)
"""What keys of the model go with, whatever is simulated."""

MODEL_RIVALS = ("model.preset", "model.config", "model.bytes")


def refuse_overrides(change: Change) -> None:
    """Overrides are written for one preset."""
    preset, overrides = value_at(change.before, "model.preset"), value_at(change.after, "model.overrides")
    raise UserError(fault("", "model.overrides", overrides, f"written for {preset}"))


DEVICE = (
    "cluster.base", "cluster.node", "cluster.mix", "cluster.device.base", "cluster.device.like", "cluster.device.memory"
)  # fmt: skip
GPUS = ("cluster.base", "cluster.node", "cluster.mix", "cluster.gpus_per_node", "nodes")
"""Keys that a change of the GPUs' kind, or of their number, changes."""
