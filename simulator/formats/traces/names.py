"""What kernels and process groups of real runs are, by their names; the tables are in data/traces/kernels.toml."""

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from ...base.files import read_toml

OTHER = "other"
"""The kind of a kernel that no expression knows; it counts as memory-bound."""

_COPIES = {"htod": "h2d", "dtoh": "d2h", "ptop": "send_recv"}
_ANONYMOUS = "(anonymous namespace)::"


@lru_cache(maxsize=4096)
def kind_of_kernel(name: str) -> str:
    """The kind of op that a kernel of this name is; `OTHER` if nothing is known of it."""
    return _first("kernel", name) or OTHER


def kind_of_copy(name: str) -> str:
    """The kind of a copy or fill by the name that CUPTI gives it: `Memcpy HtoD (Pinned -> Device)`."""
    return next((kind for word, kind in _COPIES.items() if word in name.lower()), "memory")


@lru_cache(maxsize=1024)
def kind_of_collective(name: str) -> str | None:
    """The kind of exchange that PyTorch means by a collective's name."""
    return _first("collective", name)


@lru_cache(maxsize=1024)
def axis_of_group(description: str) -> str | None:
    """The axis of a process group, None if its description does not say."""
    return _first("group", description)


@lru_cache(maxsize=1024)
def axis_of_library(name: str) -> str | None:
    """The axis of an exchange by its kernel's name, where a library exchanges on one axis alone; else None."""
    return _first("library", name)


def is_exchange(kind: str) -> bool:
    """Whether ops of this kind are between ranks."""
    return kind in kernel_table()["assumed"]


@lru_cache(maxsize=4096)
def short_name(name: str) -> str:
    """A kernel's name without its return type, template arguments and parameters, of at most 80 characters."""
    bare = name.replace(_ANONYMOUS, "").removeprefix("void ")
    return (re.split(r"[<(]", bare, maxsplit=1)[0].strip() or bare)[:80]


def _first(table: str, name: str) -> str | None:
    return next((kind for pattern, kind in _patterns(table) if pattern.search(name)), None)


@cache
def _patterns(table: str) -> list[tuple[re.Pattern[str], str]]:
    what = "axis" if table in ("group", "library") else "kind"
    return [(re.compile(row["found"], re.IGNORECASE), row[what]) for row in kernel_table()[table]]


@cache
def kernel_table() -> Mapping[str, Any]:
    """The tables by name: those of expressions, the axis that a group's `size` tells, the one `assumed`."""
    return read_toml(files("runcast.data") / "traces" / "kernels.toml")
