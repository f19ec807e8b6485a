"""Reading `data/hardware`: which files there are, names that match loosely, values that carry their source.

What the keys of a file mean is decided by its reader, `device` or `catalogue`.
"""

import os
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from ..base.errors import UserError, fault, unknown, unknown_key
from ..base.files import path_beside, read_toml

Table = Mapping[str, Any]

_ROOT = files("runcast.data") / "hardware"


def loose(name: str) -> str:
    """The form in which names are compared: `H100 SXM`, `h100_sxm` and `H100-SXM` are one."""
    return re.sub(r"[\s_-]+", "", name).lower()


@cache
def names(folder: str) -> tuple[str, ...]:
    """The file names of one catalogue folder (`devices`, `nodes`, `clusters`)."""
    return tuple(sorted(entry.name[:-5] for entry in (_ROOT / folder).iterdir() if entry.name.endswith(".toml")))


@cache
def table(folder: str, name: str) -> Table:
    """The content of a catalogue file."""
    return MappingProxyType(read_toml(_ROOT / folder / f"{name}.toml"))


def tables(folder: str) -> Mapping[str, Table]:
    """All tables of one catalogue folder by file name."""
    return {name: table(folder, name) for name in names(folder)}


@cache
def wires() -> Table:
    """PCIe generations and link latencies."""
    return MappingProxyType(read_toml(_ROOT / "wires.toml"))


@cache
def network_parts() -> Table:
    """What parts of a network draw, by the rate of a port."""
    return MappingProxyType(read_toml(_ROOT / "network-parts.toml"))


@cache
def networks() -> Table:
    """Kinds of network by name: `base`, `source`, `date` and `parameters`, as data/networks.toml has them."""
    return MappingProxyType(read_toml(files("runcast.data") / "networks.toml"))


def network_value(kind: str, name: str) -> float:
    """A number of a kind of network, or of the one that it rests on."""
    table = networks()[kind]
    entry = table["parameters"].get(name)
    return float(entry["value"]) if entry is not None else network_value(table["base"], name)


def plain(table: Any, where: str = "", prefix: str = "") -> Any:
    """The table with each `{ value, source }` in it replaced by its value; a UserError for another key in one."""
    if not isinstance(table, Mapping):
        return table
    if not any(key in table for key in _STATED):
        return {key: plain(x, where, f"{prefix}{key}.") for key, x in table.items()}
    if wrong := [key for key in table if key not in _STATED]:
        raise UserError(*(unknown_key(where, f"{prefix}{key}", _STATED) for key in wrong))
    if "value" not in table:
        raise UserError(f"{where}: {prefix}value: is missing beside source")
    return table["value"]


_STATED = ("value", "source")
"""The keys of a value that says where it is from."""


def find(folder: str, name: str, where: str, key: str) -> tuple[str, Table]:
    """The catalogue entry that a user means by `name` (or by one of its aliases), with its file name."""
    for entry in names(folder):
        if loose(name) == loose(entry):
            return entry, table(folder, entry)
    for entry, known in tables(folder).items():
        if loose(name) in map(loose, (known.get("name", entry), *known.get("aliases", ()))):
            return entry, known
    if os.path.isfile(path := path_beside(name, where)):
        allowed = f"is a file ({path.absolute()}); expected one whose name ends in .toml"
        raise UserError(fault(where, key, name, allowed))
    raise unknown(where, key, name, names(folder))
