"""Scenarios as text: TOML that reads back as the same values."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(table: Mapping[str, Any]) -> str:
    """A table of plain values as TOML: values first, then tables, those within them in line; None says nothing."""
    lines = [f"{_key(key)} = {toml_value(value)}" for key, value in table.items() if not _apart(value)]
    for key, inner in table.items():
        if isinstance(inner, Mapping):
            said = [f"{_key(name)} = {toml_value(value)}" for name, value in inner.items() if value is not None]
            lines += ["", f"[{_key(key)}]", *said]
    return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:
    """A value as TOML writes it on one line."""
    if isinstance(value, Mapping):
        said = [f"{_key(key)} = {toml_value(item)}" for key, item in value.items() if item is not None]
        return "{ " + ", ".join(said) + " }" if said else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # nan, inf and -inf are TOML's words too
    return json.dumps(value)


def _apart(value: Any) -> bool:
    return value is None or isinstance(value, Mapping)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
