"""Plain values as TOML text that reads back as the same values. tomlkit is imported by who writes: it takes 20 ms."""

from collections.abc import Iterable, Mapping
from typing import Any


def to_toml(table: Mapping[str, Any], comments: Iterable[str] = (), *, inline: bool = False) -> str:
    """Comments, values, then tables, what is nested deeper on one line; keys with None are left out.

    With `inline` tables are on one line too, in the order of the keys.
    """
    import tomlkit

    document, sections = tomlkit.document(), tomlkit.document()
    for line in comments:
        document.add(tomlkit.comment(line))
    for key, value in table.items():
        if isinstance(value, Mapping) and not inline:
            sections.add(key, tomlkit.table())
            sections[key].update(_item(value))
        elif value is not None:
            document.add(key, _item(value))
    return "\n".join(text for part in (document, sections) if (text := tomlkit.dumps(part)))


def toml_value(value: Any) -> str:
    """A value as TOML writes it on one line."""
    text: str = _item(value).as_string()
    return text


def _item(value: Any) -> Any:
    """A value as tomlkit has it: tables on one line and without None."""
    import tomlkit

    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        table.update({key: _item(inner) for key, inner in value.items() if inner is not None})
        return table
    if isinstance(value, list | tuple):
        array = tomlkit.array()
        array.extend(_item(inner) for inner in value)
        return array
    return tomlkit.item(value)
