"""Constraints: a product of keys compared with a number, `parallel.tp * parallel.pp <= 32`; nothing is evaluated.

A key of the scenario is looked up in the checked scenario before anything is simulated, a column of the report after.
"""

import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from ...base.errors import UserError, fault, unknown
from ...base.units import Dimension, format_bytes, parse, quantity
from ...hardware import cluster_keys, device_keys
from ...scenario import SYSTEMS, value_at
from .columns import columns_of

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le, ">=": operator.ge, "==": operator.eq, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_FORM = re.compile(r"([^<>=]+)(<=|>=|==|<|>)([^<>=]+)")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_QUOTED = re.compile(r"^(['\"])(.*)\1$")


@dataclass(frozen=True)
class Constraint:
    """`text` as the user wrote it; the product of what `names` stand for is compared with `limit` (`said`, in SI)."""

    text: str
    names: tuple[str, ...]
    compare: str
    limit: float
    said: str

    def holds(self, values: Mapping[str, float | None]) -> bool:
        """Whether it holds for these values by name; a name without a value breaks it."""
        given = [value for name in self.names if (value := values[name]) is not None]
        return len(given) == len(self.names) and _COMPARE[self.compare](math.prod(given), self.limit)

    def reason(self, values: Mapping[str, float | None]) -> str:
        """The reason of a point that breaks it: the constraint and what its names stand for there."""
        shown = {
            name: "is not given" if value is None
            else f"= {format_bytes(value) if name.endswith('_bytes') else f'{value:.6g}'}"
            for name, value in values.items()
        }  # fmt: skip
        return f"{self.text}: {', '.join(f'{name} {said}' for name, said in shown.items())}"


def read_constraint(text: str, where: str, key: str) -> Constraint:
    """A constraint as a sweep file says it; a UserError if it is not `name * name <= number`."""
    match = _FORM.fullmatch(text)
    names = tuple(dict.fromkeys(name.strip() for name in match[1].split("*"))) if match else ()
    if match is None or not all(map(_NAME.fullmatch, names)) or len(names) <= match[1].count("*"):
        allowed = "expected a product of keys, one of <= < >= > ==, and a number: 'parallel.tp * parallel.pp <= 32'"
        raise UserError(fault(where, key, text, allowed))
    said = _QUOTED.sub(r"\2", match[3].strip())  # as `--set` has quantities
    try:
        return Constraint(text, names, match[2], quantity(said)[0], said)
    except ValueError as error:
        raise UserError(fault(where, key, text, str(error))) from None


# Keys of scenarios: whether a kind of scenario has one, and what a checked scenario says for it.


def is_key(kind: str, key: str) -> bool:
    """Whether scenarios of the kind have a key, or may have one: what is below `cluster` is free."""
    return not _look_up(kind, key)[1]


def check_key(kind: str, key: str, where: str, place: str) -> None:
    """Raises a UserError with the nearest names where scenarios of the kind have no such key."""
    if known := _look_up(kind, key)[1]:
        raise unknown(where, place, key, known)


def values_in_scenario(names: Sequence[str], scenario: BaseModel) -> dict[str, float | None]:
    """The numbers that a checked scenario says for keys, in SI units; None where it says none."""
    table, values = scenario.model_dump(by_alias=True), dict[str, float | None].fromkeys(names)
    for name in names:
        with suppress(ValueError):
            values[name] = quantity(value_at(table, name))[0]
    return values


def values_in_row(names: Sequence[str], row: Mapping[str, Any], kind: str) -> dict[str, float | None]:
    """The numbers in columns of a row of the report; a column that is left out where it is nothing is 0."""
    cells = {name: row.get(name, 0.0 if columns_of(kind)[name].sparse else None) for name in names}
    return {name: float(cell) if isinstance(cell, int | float) else None for name, cell in cells.items()}


def _look_up(kind: str, key: str) -> tuple[FieldInfo | None, list[str]]:
    """What the schema says of a key (None below a table that is free), and the known keys beside the first unknown part
    (none where the key is known).
    """
    table: type[BaseModel] | None = SYSTEMS[kind].schema
    field, prefix, named = None, "", None
    for part in key.split("."):
        if table is None:
            return None, []
        if named is not None:
            if named is tuple and not part.isdecimal():
                return None, [f"{prefix}0"]
            named, prefix = None, f"{prefix}{part}."
            continue
        fields = {one.alias or name: one for name, one in table.model_fields.items()}
        if part not in fields:
            return None, [f"{prefix}{name}" for name in fields]
        field, prefix = fields[part], f"{prefix}{part}."
        origin = get_origin(field.annotation)
        named = origin if origin in (dict, tuple) else None  # any name has such a table, or any number from 0
        kinds = (field.annotation, *get_args(field.annotation))  # of a table that may be left out, one is the table's
        table = next((one for one in kinds if isinstance(one, type) and issubclass(one, BaseModel)), None)
    return field, []


# What numbers are of: bytes, seconds, ... by the schema of a key, or by the unit at the end of a column's name.

Of = Dimension | Literal["number", "unknown"]
_DIMENSIONS: Mapping[Dimension, tuple[str, Mapping[str, int]]] = {
    "bytes": ("1 MiB", {"byte": 1}), "bytes_per_s": ("1 GB/s", {"byte": 1, "s": -1}), "seconds": ("1 s", {"s": 1}),
    "flop_per_s": ("1 TFLOP/s", {"flop": 1, "s": -1}), "watts": ("700 W", {"W": 1}),
}  # fmt: skip
"""A quantity of each, and the powers of its units; a number has none."""


def check_unit(constraint: Constraint, factors: Sequence[Of], where: str) -> None:
    """Raises a UserError where the limit has a unit that the product of such factors does not have."""
    of, (_, dimension) = product_dimension(factors), quantity(constraint.said)
    if of == "unknown" or dimension is None:
        return
    try:
        if of == "number":
            raise ValueError("has no unit here; expected a number")
        parse(constraint.said, of)
    except ValueError as error:
        said = f"{' * '.join(constraint.names)}: {error}"
        raise UserError(fault(where, "constraints", constraint.text, said)) from None


def column_dimension(name: str) -> Of:
    """The dimension of a column, by the end of its name; other units, such as `cost_usd`, count as numbers."""
    if name == "bytes" or name.endswith("_bytes"):
        return "bytes"
    if name.endswith("bytes_per_s"):
        return "bytes_per_s"
    return "seconds" if name.endswith("_s") and not name.endswith("_per_s") else "number"


def key_dimension(kind: str, key: str, base: Mapping[str, Any], where: str) -> Of:
    """The dimension of a key, by its schema; for free keys of a machine, by the base's present value."""
    field, _ = _look_up(kind, key)
    if field is not None:
        return next((dimension for dimension, (text, _) in _DIMENSIONS.items() if _takes(field, text)), "number")
    first, *path = key.split(".")
    return _of_machine(base.get("cluster"), path, where) if first == "cluster" else "unknown"


def product_dimension(factors: Sequence[Of]) -> Of:
    """The dimension of a product; a number if no unit fits."""
    powers: Counter[str] = Counter()
    for factor in factors:
        if factor == "unknown":
            return factor
        powers.update(_DIMENSIONS[factor][1] if factor != "number" else {})
    left = {unit: power for unit, power in powers.items() if power}
    return next((of for of, (_, own) in _DIMENSIONS.items() if own == left), "number")


def _takes(field: FieldInfo, text: str) -> bool:
    """Whether a quantity becomes a number there."""
    schema: Any = Annotated[field.annotation, field]
    try:
        return isinstance(TypeAdapter(schema).validate_python(text), int | float)
    except ValidationError:
        return False


def _of_machine(cluster: Any, path: Sequence[str], where: str) -> Of:
    """The dimension of a key of a cluster or its device, by its present quantity."""
    try:
        table = cluster_keys(cluster, where)
        if len(path) > 1 and path[0] == "device":
            table, path = device_keys(table["device"], where), path[1:]
    except UserError:
        return "unknown"
    value = table.get(path[0]) if len(path) == 1 else None
    try:
        return quantity(value)[1] or column_dimension(path[0])
    except ValueError:  # text that is no quantity, or nothing
        return "unknown"
