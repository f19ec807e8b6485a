"""What a training scenario leaves blank and its software stack says: keys are filled in before they are checked.

A default that would say nothing beside the other keys is left out, so that nobody is blamed for it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ...profile import stack_defaults
from ..keys import Values, unmet_needs
from .keys import NEEDS
from .scenario import TrainScenario


def add_defaults(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The table of a scenario with its stack's defaults.

    Raises:
        UserError: no such stack.
    """
    stack = table.get("stack", "generic")
    added = _added(table, stack_defaults(stack, where)) if isinstance(stack, str) else {}
    filled = _filled(table, added)
    while needless := _needless(Values(filled, TrainScenario)) & added.keys():
        added = {key: value for key, value in added.items() if key not in needless}
        filled = _filled(table, added)
    return filled


def _added(table: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults for keys that the table does not give, by keys with dots."""
    found = {}
    for key, value in defaults.items():
        if not isinstance(value, Mapping):
            found[key] = value
        elif isinstance(table.get(key, {}), Mapping):
            found |= {f"{key}.{name}": item for name, item in value.items()}
    given = Values(table, TrainScenario)
    whole = ("recompute",) if "recompute" in table else ()  # half of one and half of the other is neither
    return {key: value for key, value in found.items() if not given.gives(key) and not key.startswith(whole)}


def _filled(table: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    filled = dict(table)
    for key, value in added.items():
        name, _, inner = key.partition(".")
        filled[name] = {inner: value, **filled.get(name, {})} if inner else value
    return filled


def _needless(values: Values) -> set[str]:
    """Keys that say nothing beside the others."""
    unmet = {need.key for need in unmet_needs(values, NEEDS)}
    return unmet | {key for key, says in _CONDITIONS.items() if not says(values)}


_CONDITIONS: Mapping[str, Callable[[Values], bool]] = {
    "bucket": lambda values: values["parallel.zero"] in (1, 2),  # torch and FSDP have their own
    "memory.gradients": lambda values: values["parallel.zero"] in (0, 1),
    "overlap.dp": lambda values: not values.gives("overlap.fusion"),
}
"""What a file may say anywhere, and a stack does not say everywhere."""
