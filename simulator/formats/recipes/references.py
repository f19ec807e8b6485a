"""Configs of Hydra: references from one key to others of the same file."""

import re
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from .python_operations import read_literal

_REFERENCE = re.compile(r"\$\{([^${}]*)\}")
_MOST_REFERENCES = 20
_FUNCTIONS: dict[str, Callable[[list[int]], int]] = {"multiply": prod, "sum": sum}


def resolve(table: dict[str, Any]) -> dict[str, Any]:
    """The table with references to its own keys replaced; one to what the file does not have stays as it is.

    `${model.hidden_size}`, `${.hidden_size}`, `${oc.select:model.hidden_size,4096}`, `${multiply:4,2}`.
    """

    def change(value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, Mapping):
            return {str(key): change(one, (*path, str(key))) for key, one in value.items()}
        return _substitute(value, path, table) if isinstance(value, str) and "${" in value else value

    found: dict[str, Any] = change(table, ())
    return found


def _substitute(text: str, path: tuple[str, ...], table: Mapping[str, Any]) -> Any:
    for _ in range(_MOST_REFERENCES):
        found = next((one for one in _REFERENCE.finditer(text) if _target(one[1], path, table) is not None), None)
        if found is None:
            return text
        value = _target(found[1], path, table)
        if found[0] == text and not (isinstance(value, str) and "${" in value):
            return value
        text = text.replace(found[0], str(value))
    return text


def _target(reference: str, path: tuple[str, ...], table: Mapping[str, Any]) -> Any:
    """What a reference means, or None."""
    name, colon, arguments = reference.partition(":")
    if name == "oc.select":
        place, comma, default = arguments.partition(",")
        found = _target(place, path, table)
        return _value(read_literal(default)) if found is None and comma else found
    if colon:
        numbers = [part.strip() for part in arguments.split(",")]
        known = name in _FUNCTIONS and all(re.fullmatch(r"-?\d{1,15}", number) for number in numbers)
        return _FUNCTIONS[name](list(map(int, numbers))) if known else None
    dots = len(reference) - len(reference.lstrip("."))
    parts = [*(path[:-dots] if dots else ()), *reference.lstrip(".").split(".")]
    found = _look_up(table, parts)
    return _look_up(table, parts[1:]) if found is None and parts[0] == "training" else found  # the launcher's root


def _look_up(table: Any, parts: list[str]) -> Any:
    """The plain value at a place, or None."""
    for part in parts:
        if not isinstance(table, Mapping) or part not in table:
            return None
        table = table[part]
    return None if isinstance(table, Mapping | list) else _value(table)


def _value(found: Any) -> Any:
    """A value that a reference means; nothing is `null`, as None is what the file does not have."""
    return "null" if found is None else found
