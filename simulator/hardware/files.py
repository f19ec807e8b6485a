"""Reading `data/hardware`: which files there are, names that match loosely, values that carry their source.

What the keys of a file mean is decided by its reader, `devices` or `spec`.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from ..base.errors import unknown
from ..base.files import read_toml

Table = Mapping[str, Any]

_ROOT = files("runcast.data") / "hardware"


def loose(name: str) -> str:
    """The form in which names are compared: `H100 SXM`, `h100_sxm` and `H100-SXM` are one."""
    return re.sub(r"[\s_-]+", "", name).lower()


@cache
def tables(folder: str) -> Mapping[str, Table]:
    """All tables of one catalogue folder (`devices`, `nodes`, `clusters`) by file name."""
    found = (entry for entry in (_ROOT / folder).iterdir() if entry.name.endswith(".toml"))
    return MappingProxyType({e.name[:-5]: read_toml(e) for e in sorted(found, key=_name)})


@cache
def wires() -> Table:
    """PCIe generations and link latencies."""
    return MappingProxyType(read_toml(_ROOT / "wires.toml"))


@cache
def networks() -> Table:
    """Kinds of network by name: `base`, `source`, `date` and `parameters`, as data/networks.toml has them."""
    return MappingProxyType(read_toml(files("runcast.data") / "networks.toml"))


def network_value(kind: str, name: str) -> float:
    """A number of a kind of network, or of the one that it rests on."""
    table = networks()[kind]
    entry = table["parameters"].get(name)
    return float(entry["value"]) if entry is not None else network_value(table["base"], name)


def _name(entry: Any) -> str:
    return str(entry.name)


def plain(table: Table) -> dict[str, Any]:
    """The table with each `{ value, source }` replaced by its value."""
    return {key: x["value"] if isinstance(x, Mapping) and "value" in x else x for key, x in table.items()}


def find(folder: str, name: str, where: str, key: str) -> tuple[str, Table]:
    """The catalogue entry that a user means by `name` (or by one of its aliases), with its file name."""
    known = tables(folder)
    for entry, table in known.items():
        if loose(name) in map(loose, (entry, table.get("name", entry), *table.get("aliases", ()))):
            return entry, table
    raise unknown(where, key, name, known)
