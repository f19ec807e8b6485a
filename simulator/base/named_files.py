"""Files that tables name, and those that these name in turn: what scenarios and sweeps rest on beyond what they say."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .errors import UserError
from .files import digest, path_beside, read_json, read_toml

_READERS = {".toml": read_toml, ".json": read_json}
_OF_ANY_NAME = ("config", "file")
"""Keys whose value may be a file of any name; `config` may be the folder that holds a model's config.json, too."""

_KEYS = (
    ("cluster",), ("cluster", "base"), ("cluster", "node"), ("cluster", "device"), ("profile",), ("stack",),
    ("model", "config"), ("schedule", "file"), ("cycle", "train"),
)  # fmt: skip
"""Keys of a scenario that may name a file beside it."""


def rename_files(table: dict[str, Any], where: str, rename: Callable[[Path], str]) -> dict[str, Any]:
    """The table of a scenario, changed so that it names files beside `where` as `rename` says of their full path."""
    for *path, last in _KEYS:
        inner: Any = table
        for part in path:
            inner = inner.get(part) if isinstance(inner, dict) else None
        name = inner.get(last) if isinstance(inner, dict) else None
        if isinstance(name, str) and (place := path_beside(name, where)).exists():
            inner[last] = rename(place.resolve())
    return table


def find_files(tables: Any, where: str) -> list[tuple[str, str]]:
    """Every file that values of `tables` name, as they write it, with the SHA-256 of what it holds; sorted.

    Names are looked up beside `where`. A file that is not there has no digest: it makes a difference once it is.
    """
    found: dict[tuple[str, Path], str] = {}
    _find_files(tables, where, found)
    return sorted({(name, held) for (name, _), held in found.items()})


def _find_files(tables: Any, where: str, found: dict[tuple[str, Path], str]) -> None:
    for key, text in _texts(tables, ""):
        if Path(text).suffix not in _READERS and key.rpartition(".")[2] not in _OF_ANY_NAME:
            continue
        place = path_beside(text, where)
        place = place / "config.json" if place.is_dir() else place
        if (text, place) in found:
            continue
        try:
            found[text, place] = digest(place)
            _find_files(_READERS[place.suffix](place) if place.suffix in _READERS else None, str(place), found)
        except OSError:
            found[text, place] = ""
        except UserError:  # what cannot be read names nothing
            pass


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """All texts within a value, each with the key that it stands at."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _texts(item, name)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item, key)
