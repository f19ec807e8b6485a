"""How keys of a scenario depend on each other; each system lists its own.

A Need is a key that goes with others. A file that gives it without them is refused; a change that removes them removes
the key too, with a note; a stack's default for it is ignored. Of rivals a scenario gives one. A Pin is a value that is
chosen for a machine, a model or a plan: when these change and the checks refuse the value, it is removed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel

from ..base.errors import Fault, UserError, fault
from ..base.files import toml_value


class Values:
    """The values of a scenario by keys with dots: from its table, else the defaults of its schema."""

    def __init__(self, table: Mapping[str, Any], schema: type[BaseModel]):
        self.given = dict(_flat(table))
        self._defaults = _flat_defaults(schema)

    def gives(self, key: str) -> bool:
        """Whether the table itself has the key."""
        return key in self.given

    def __getitem__(self, key: str) -> Any:
        return self.given[key] if key in self.given else self._defaults.get(key)


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of a table and of its inner tables, with dots."""
    for name, value in table.items():
        if value is not None:
            yield f"{before}{name}", value
        if is_table(value):
            yield from _flat(value, f"{before}{name}.")


_NO_TABLES = frozenset({str, int, float, bool, list, type(None)})


def is_table(value: object) -> bool:
    """Whether a value of a scenario is a table. Mapping is asked last, which takes long to say no."""
    kind = type(value)
    return kind is dict or (kind not in _NO_TABLES and isinstance(value, Mapping))


def value_at(table: Mapping[str, Any], key: str) -> Any:
    """The value of a key with dots in a table, or None; a number is one of a list."""
    value: Any = table
    for part in key.split("."):
        if isinstance(value, list | tuple):
            value = {str(i): item for i, item in enumerate(value)}
        value = value.get(part) if is_table(value) else None
    return value


@cache
def _flat_defaults(schema: type[BaseModel]) -> Mapping[str, Any]:
    return dict(_flat(schema_defaults(schema)))


@cache
def schema_defaults(table: type[BaseModel]) -> Mapping[str, Any]:
    """The defaults of a schema, as nested tables."""
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
    """A key that goes with others: `met` tells whether a scenario has them, `words` which they are.

    Values for which `applies` is false need nothing.
    """

    key: str
    met: Callable[[Values], bool]
    words: Callable[[Values], str]
    applies: Callable[[Any], bool] = _any

    def fails(self, values: Values) -> bool:
        """Whether the scenario has the key without what it goes with."""
        return values.gives(self.key) and self.applies(values[self.key]) and not self.met(values)


def unmet_needs(values: Values, needs: tuple[Need, ...]) -> Iterator[Need]:
    """The needs that a scenario does not meet, at most one for each key."""
    found: dict[str, Need] = {}
    for need in needs:
        if need.key in values.given and need.key not in found and need.fails(values):
            found[need.key] = need
    yield from found.values()


Rivals = tuple[tuple[str, ...], ...]


def faults(values: Values, needs: tuple[Need, ...], rivals: Rivals, where: str) -> list[str]:
    """A line for each key that does not go with the others."""
    unmet = unmet_needs(values, needs)
    lines: list[str] = [fault(where, need.key, values[need.key], need.words(values)) for need in unmet]
    for keys in rivals:
        first, *others = [key for key in keys if is_said(values[key]) and values.gives(key)] or [""]
        lines += [fault(where, key, values[key], f"{first} is given: leave one of the two out") for key in others]
    return lines


def is_said(value: Any) -> bool:
    """Whether a value takes the place of a rival: an empty table does, what is switched off does not."""
    return value not in (None, False)


def value_text(value: Any) -> str:
    """A value as messages show it: text as in Python, everything else as in TOML."""
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
    """A key that needs a parallel size above 1."""
    return Need(key, lambda values: values[other] != 1, lambda _: f"goes with {other} above 1", applies)


@dataclass(frozen=True)
class Change:
    """A scenario before and after a change, as tables, and the resolved scenario now."""

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    now: Any


@dataclass(frozen=True)
class Pin:
    """A key, the keys that its value is chosen for, and the check that refuses a value that does not fit them."""

    key: str
    of: tuple[str, ...]
    check: Callable[[Change], object]

    def faults(self, change: Change) -> list[Fault]:
        """The faults that the check finds with the value."""
        try:
            self.check(change)
        except UserError as error:
            return [line for line in error.faults if isinstance(line, Fault) and line.key == self.key]
        return []


OF_MODEL = (
    goes_beside("model.tensors", "model.bytes"),
    goes_beside("model.largest", "model.bytes"),
    goes_beside("model.overrides", "model.preset"),
    goes_beside("model.unknown", "model.config"),
)
"""Needs of keys of the model, in every system."""

MODEL_RIVALS = ("model.preset", "model.config", "model.bytes")


def refuse_overrides(change: Change) -> None:
    """Overrides are written for one preset."""
    preset, overrides = value_at(change.before, "model.preset"), value_at(change.after, "model.overrides")
    raise UserError(fault("", "model.overrides", overrides, f"written for {preset}"))


DEVICE = (
    "cluster.base", "cluster.node", "cluster.mix", "cluster.device.base", "cluster.device.like", "cluster.device.memory"
)  # fmt: skip
GPUS = ("cluster.base", "cluster.node", "cluster.mix", "cluster.gpus_per_node", "nodes")
"""Keys that decide the kind of GPUs, and their number."""
