"""Constraints: a product of keys compared with a number, `parallel.tp * parallel.pp <= 32`; nothing is evaluated.

A key of the scenario is looked up in the checked scenario before anything is simulated, a column of the report after.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...base.errors import UserError, fault
from ...base.units import format_bytes, parse
from .columns import Columns
from .dimensions import Of
from .ranges import si_value

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le, ">=": operator.ge, "==": operator.eq, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_FORM = re.compile(r"([^<>=]+)(<=|>=|==|<|>)([^<>=]+)")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")


@dataclass(frozen=True)
class Constraint:
    """`text` as the user wrote it; the product of what `names` stand for is compared with `limit` (SI)."""

    text: str
    names: tuple[str, ...]
    compare: str
    limit: float

    def holds(self, values: Mapping[str, float | None]) -> bool:
        """Whether it holds for these values by name; what has no value breaks it."""
        given = [value for name in self.names if (value := values[name]) is not None]
        return len(given) == len(self.names) and _COMPARE[self.compare](math.prod(given), self.limit)

    def broken(self, values: Mapping[str, float | None]) -> str:
        """The reason of a point that breaks it: the constraint and what its names stand for there."""
        return f"{self.text}: {', '.join(_shown(name, value) for name, value in values.items())}"


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return f"{name} is not given"
    return f"{name} = {format_bytes(value) if name.endswith('_bytes') else f'{value:.6g}'}"


def read_constraint(text: str, where: str, key: str) -> Constraint:
    """A constraint as a sweep file says it.

    Raises:
        UserError: not `name * name <= number`.
    """
    match = _FORM.fullmatch(text)
    allowed = "expected a product of keys, one of <= < >= > ==, and a number: 'parallel.tp * parallel.pp <= 32'"
    if match is None:
        raise UserError(fault(where, key, text, allowed))
    names = tuple(dict.fromkeys(name.strip() for name in match[1].split("*")))
    if not all(_NAME.fullmatch(name) for name in names) or len(names) <= match[1].count("*"):
        raise UserError(fault(where, key, text, allowed))
    try:
        return Constraint(text, names, match[2], si_value(match[3].strip()))
    except ValueError as error:
        raise UserError(fault(where, key, text, str(error))) from None


def check_unit(constraint: Constraint, of: Of, where: str) -> None:
    """Raises a UserError where the limit has a unit that is none of what it is compared with."""
    match = _FORM.fullmatch(constraint.text)
    assert match is not None, "it was read"
    limit = match[3].strip()
    if of == "unknown" or _is_number(limit):
        return
    try:
        if of == "number":
            raise ValueError("has no unit here; expected a number")
        parse(limit, of)
    except ValueError as error:
        said = f"{' * '.join(constraint.names)}: {error}"
        raise UserError(fault(where, "constraints", constraint.text, said)) from None


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def values_in_row(names: tuple[str, ...], row: Mapping[str, Any], columns: Columns) -> dict[str, float | None]:
    """What names of columns stand for in a row of the report; a column that is left out where it is nothing is 0."""
    return {name: _number(row.get(name, 0.0 if name in columns.sparse else None)) for name in names}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
