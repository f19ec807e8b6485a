"""Files that tables name, and those that these name in turn: what a sweep rests on beyond what it says."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...base.errors import UserError
from ...base.files import beside, digest, read_json, read_toml

_READERS = {".toml": read_toml, ".json": read_json}
_FOLDERS = "config"
"""The key whose value may be a file of any name, or the folder that holds a model's config.json."""


def named_files(tables: Any, where: str) -> list[tuple[str, str]]:
    """Every file that values of `tables` name, as they write it, with the SHA-256 of what it holds; sorted.

    Names are looked up beside `where`. A file that is not there has no digest: it makes a difference once it is.
    """
    found: dict[tuple[str, str], str] = {}
    _look(tables, where, found)
    return sorted({(name, held) for (name, _), held in found.items()})


def _look(tables: Any, where: str, found: dict[tuple[str, str], str]) -> None:
    for key, text in _texts(tables, ""):
        suffix = Path(text).suffix
        if suffix not in _READERS and key.rpartition(".")[2] != _FOLDERS:
            continue
        place = beside(text, where)
        place = place / "config.json" if place.is_dir() else place
        if (text, str(place)) not in found:
            found[text, str(place)] = _digest(place)
            _look(_content(place), str(place), found)


def _digest(place: Path) -> str:
    try:
        return digest(place)
    except OSError:
        return ""


def _content(place: Path) -> Any:
    """What a file holds; what cannot be read names nothing."""
    try:
        return _READERS[place.suffix](place) if place.is_file() and place.suffix in _READERS else None
    except UserError:
        return None


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
