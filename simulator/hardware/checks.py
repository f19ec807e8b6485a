"""Checks of single values that a user wrote, and of a whole table with one fault per line.

Which keys a table has, and which check belongs to which, is with its reader: `devices` or `spec`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ..base.errors import UserError, fault, hint
from ..base.units import Dimension, parse

Check = Callable[[Any], Any]
"""Returns the value in SI units, or raises ValueError saying what is allowed."""


_RANGE: dict[Dimension, tuple[str, str]] = {
    "bytes": ("1 B", "1000 PB"),
    "bytes_per_s": ("1 kB/s", "1000 PB/s"),
    "seconds": ("0 s", "1 h"),
    "flop_per_s": ("1 kFLOP/s", "1e9 PFLOP/s"),
    "watts": ("1 W", "1000 kW"),
}
"""Wide enough for any what-if; beyond them a simulation's times lose their meaning."""

MOST = 4096
"""The largest count of anything, unless its reader says otherwise."""


def quantity(dimension: Dimension, zero: bool = False) -> Check:
    """A positive quantity with a unit; zero only where it means absence."""
    low, high = _RANGE[dimension]

    def check(value: Any) -> float:
        number = _parsed(value, dimension)
        if number < 0 or (number == 0 and not zero):
            raise ValueError("must not be negative" if zero else "must be greater than zero")
        if number and not parse(low, dimension) <= number <= parse(high, dimension):
            raise ValueError(f"expected {low} to {high}")
        return number

    return check


def _parsed(value: Any, dimension: Dimension) -> float:
    if not isinstance(value, str | int | float):
        raise ValueError("expected text or a number")
    try:
        return parse(value, dimension)
    except OverflowError:
        raise ValueError("is too large") from None


def count(least: int, most: int = MOST) -> Check:
    """A whole number."""

    def check(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError(f"expected a whole number, at least {least} and at most {most}")
        return value

    return check


def number(least: float, most: float) -> Check:
    """A number."""

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise ValueError(f"expected a number, at least {least:g} and at most {most:g}")
        return float(value)

    return check


def one_of(allowed: Callable[[], Iterable[Any]]) -> Check:
    """One of some names, which are asked for only when needed."""

    def check(value: Any) -> Any:
        known = list(allowed())
        if value not in known or isinstance(value, bool):
            raise ValueError(f"expected one of {', '.join(map(str, known))}")
        return value

    return check


def text(value: Any) -> str:
    """Any text."""
    if not isinstance(value, str):
        raise ValueError("expected text")
    return value


def names(value: Any) -> tuple[str, ...]:
    """A list of texts."""
    if not isinstance(value, list | tuple) or not all(isinstance(x, str) for x in value):
        raise ValueError("expected a list of names")
    return tuple(value)


def table(value: Any) -> Mapping[str, Any]:
    """A table; its reader checks what is in it."""
    if not isinstance(value, Mapping):
        raise ValueError("expected a table")
    return value


def anything(value: Any) -> Any:
    """Whatever it is; its reader checks it."""
    return value


def checked(
    raw: Mapping[str, Any], checks: Mapping[str, Check], where: str, prefix: str, optional: Collection[str] = ()
) -> dict[str, Any]:
    """The checked values of a table.

    Raises:
        UserError: one line for each unknown key, each missing key and each value that is not allowed.
    """
    values: dict[str, Any] = {}
    faults: list[str] = []
    for key, value in raw.items():
        try:
            values[key] = _check(key, checks)(value)
        except ValueError as error:
            faults.append(fault(where, f"{prefix}{key}", value, str(error)))
    faults += [f"{where}: {prefix}{key}: missing" for key in checks if key not in raw and key not in optional]
    if faults:
        raise UserError(*faults)
    return values


def _check(key: str, checks: Mapping[str, Check]) -> Check:
    if key in checks:
        return checks[key]
    raise ValueError(f"unknown key; {hint(key, checks, most=1)}")
