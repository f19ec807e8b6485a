"""Changes to a scenario before it is checked: `--set`, axes of sweeps and what-ifs speak one language.

A change is a key with dots into tables, and a value that takes the key's place, or `{ times = 2 }`, which multiplies
what the key says. Keys below `cluster` change a machine whatever names it: `cluster.nic`, `cluster.device.memory`.
In a list of tables a number names one, from 0: `failures.cause.0.mtbf`. `plan` gives all that a file says of a plan.
Keys that lose their meaning by a change are left out (`adapt`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..base.errors import UserError, fault
from ..base.files import MOST_LEVELS, parse_toml
from ..base.units import times
from ..hardware import cluster_keys, device_keys, own_keys
from ..systems.keys import schema_defaults
from ..systems.registry import system_of
from .adapt import adapt
from .plan import PLAN, plan_changes

Changes = Mapping[str, Any]
"""Values by key; later keys see what earlier ones did."""


def parse_changes(lines: Sequence[str], flag: str = "--set", such_as: str = "update.bucket='2 GiB'") -> dict[str, Any]:
    """Changes from `key=value` lines of a flag; a value is TOML, or text where it is none (`5.89 GiB`).

    A UserError for a line without key or `=`.
    """
    found = {}
    for line in lines:
        key, equals, text = line.partition("=")
        if not equals or not key.strip():
            raise UserError(f"{flag} {line}: expected key=value, such as {such_as}")
        found[key.strip()] = _toml_value(text.strip())
    return found


def read_changes(changes: str | Sequence[str] | Changes) -> dict[str, Any]:
    """Changes by key, from values by key, `key=value` lines, or one line; a UserError for anything else."""
    lines = [changes] if isinstance(changes, str) else changes
    if isinstance(lines, Mapping):
        _check_keys(lines, "changes")
        return {key: plain_values(value) for key, value in lines.items()}
    if not isinstance(lines, Sequence) or not all(isinstance(line, str) for line in lines):
        raise UserError(fault("changes", "", changes, "expected values by key, or key=value lines"))
    return parse_changes(lines)


def read_axes(axes: Mapping[str, Iterable[Any]], flag: str) -> dict[str, list[Any]]:
    """Axes with their values as lists; a UserError for what has no keys, or is no list."""
    if not isinstance(axes, Mapping):
        raise UserError(fault(flag, "", axes, "expected lists of values by key"))
    _check_keys(axes, flag)
    return {key: _read_values(plain_values(values), key, flag) for key, values in axes.items()}


def _read_values(values: Any, key: str, flag: str) -> list[Any]:
    """The values of an axis; a text is one value, not a list of letters."""
    read = [] if isinstance(values, str | Mapping) or not isinstance(values, Iterable) else list(values)
    if not read:
        raise UserError(fault(flag, key, values, "expected a list of values, such as [0, 1, 2]"))
    return [plain_values(value) for value in read]


def _check_keys(table: Mapping[Any, Any], flag: str) -> None:
    for key, value in table.items():
        if not isinstance(key, str):
            raise UserError(fault(flag, str(key), value, 'expected a key as text, such as "parallel.tp"'))


def plain_values(value: Any) -> Any:
    """A copy of a value with numbers and arrays of numpy, within it too, as Python's own."""
    if hasattr(value, "tolist"):  # of numpy, which nobody has to import for that
        plain = value.tolist()
        return plain_values(plain) if isinstance(plain, list) else plain
    if isinstance(value, Mapping):
        return {key: plain_values(item) for key, item in value.items()}
    return [plain_values(item) for item in value] if isinstance(value, list | tuple) else value


def change(table: Mapping[str, Any], changes: Changes | Sequence[Changes], where: str) -> dict[str, Any]:
    """A copy of the table with the changes, or with several tables of them, one after the other.

    What the table says and the changes make meaningless is left out, and `notes` of the copy say so.

    Raises:
        UserError: a key leads through something that is no table, or what is to be multiply is no quantity.
    """
    copy = plain_values(table)
    steps = [with_plan(table, step, where) for step in ([changes] if isinstance(changes, Mapping) else changes)]
    for key, value in (change for step in steps for change in step.items()):
        _apply(copy, key, value, where)
    return adapt(table, copy, {key for step in steps for key in step}, where)


def with_plan(table: Mapping[str, Any], changes: Changes, where: str) -> Changes:
    """The changes with the keys of a plan in place of the file that holds it."""
    if PLAN not in changes:
        return changes
    if "parallel" not in system_of(table).schema.model_fields:
        raise UserError(fault(where, PLAN, changes[PLAN], "training steps and runs alone have a plan"))
    found: dict[str, Any] = {}
    for key, value in changes.items():
        found |= plan_changes(value) if key == PLAN else {key: value}
    return found


def _apply(table: dict[str, Any], key: str, value: Any, where: str) -> None:
    *path, last = key.split(".")
    if len(path) >= MOST_LEVELS:
        raise UserError(fault(where, key, value, f"expected at most {MOST_LEVELS} names"))
    known = schema_defaults(system_of(table).schema)
    for depth, part in enumerate(path):
        known = _open(tuple(path[: depth + 1]), table, known, where)
        inner = table.setdefault(part, {})
        if isinstance(inner, list):
            item = _item(inner, [*path[depth + 1 :], last], key, value, where)
            return _put(item, last, None, key, value, where)
        if not isinstance(inner, dict):
            raise UserError(fault(where, key, value, f"{part} is a value, not a table"))
        table = inner
    _put(table, last, known.get(last), key, value, where)


def _put(table: dict[str, Any], last: str, default: Any, key: str, value: Any, where: str) -> None:
    table[last] = multiply(table.get(last, default), value, key, where) if multiplies(value) else value


def _item(tables: Sequence[Any], path: Sequence[str], key: str, value: Any, where: str) -> dict[str, Any]:
    """The table of a list that a path of its number and a key leads to."""
    items = {str(i): table for i, table in enumerate(tables) if isinstance(table, dict)}
    if len(path) != 2 or path[0] not in items:
        place = key.removesuffix("." + ".".join(path))
        such = f"a number from 0 to {len(items) - 1} and a key behind {place}, as in {place}.0.KEY"
        allowed = such if items else "no key below it: it holds no tables"
        raise UserError(fault(where, key, value, f"expected {allowed}"))
    return items[path[0]]


def _open(path: tuple[str, ...], table: dict[str, Any], known: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The table of a machine at a path; the name of a cluster or device becomes a table of changes."""
    own, outer = table.get(path[-1]), known.get(path[-1])
    given = outer if own is None else own
    if path not in _MACHINES or given is None:
        return {key: value for said in (outer, own) if isinstance(said, Mapping) for key, value in said.items()}
    said, own_of = _MACHINES[path][0](given, where), _MACHINES[path][1]
    if isinstance(given, str):
        table[path[-1]] = own_of(given, where)
    return said


def _own_device_keys(name: str, where: str) -> dict[str, Any]:
    return dict(device_keys(name, where)) if name.endswith(".toml") else {"base": name}


_Keys = Callable[[Any, str], dict[str, Any]]

_MACHINES: Mapping[tuple[str, ...], tuple[_Keys, _Keys]] = {
    ("cluster",): (cluster_keys, own_keys),
    ("cluster", "device"): (device_keys, _own_device_keys),
}
"""All keys of a machine by its place in a scenario, and those that it says itself over its base."""


def multiplies(value: Any) -> bool:
    """Whether a value is `{ times = 2 }`, which multiplies what is there instead of replacing it."""
    return isinstance(value, Mapping) and set(value) == {"times"}


def multiply(said: Any, value: Mapping[str, Any], key: str, where: str) -> Any:
    """What a key says, multiply by `{ times = 2 }`; a UserError if that is no quantity."""
    factor = value["times"]
    if isinstance(factor, bool) or not isinstance(factor, int | float):
        raise UserError(fault(where, f"{key}.times", factor, "expected a number"))
    if said is None:
        raise UserError(fault(where, key, value, "nothing to multiply: the scenario does not say it"))
    try:
        return times(said, factor)
    except ValueError as error:
        raise UserError(fault(where, key, said, f"times {factor:g}: {error}")) from None


def _toml_value(text: str) -> Any:
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError:  # a number of thousands of digits; brackets in brackets in brackets ...
        return text
