"""Files that tables name, and those that these name in turn: what scenarios and sweeps rest on beyond what they say."""

from collections.abc import Callable, Iterator, Mapping
from os.path import isdir, isfile  # of a name that is too long they say no
from pathlib import Path
from typing import Any

from .errors import UserError
from .files import digest, path_beside, read_json, read_toml

_READERS = {".toml": read_toml, ".json": read_json}
_OF_ANY_NAME = ("config", "file", "trace", "train")
"""Keys whose value may be a file of any name; `config` may be the folder that holds a model's config.json, too."""

_NOT_BESIDE = ("name", "notes", "about", "plan")
"""Keys whose text is for people, or a plan, which is looked up in the working folder."""


def rename_files(table: dict[str, Any], where: str, rename: Callable[[Path], str]) -> dict[str, Any]:
    """A copy of the table of a scenario that names files beside `where` as `rename` says of their full path."""
    renamed: dict[str, Any] = _rename(table, "", where, rename)
    return renamed


def _rename(value: Any, key: str, where: str, rename: Callable[[Path], str]) -> Any:
    if isinstance(value, Mapping):
        return {name: _rename(item, str(name), where, rename) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rename(item, key, where, rename) for item in value]
    if not _may_name_file(value, key) or _last(key) in _NOT_BESIDE:
        return value
    place = path_beside(value, where)
    return rename(place.resolve()) if isfile(_content_of(place)) else value


def _may_name_file(value: Any, key: str) -> bool:
    return isinstance(value, str) and (Path(value).suffix in _READERS or _last(key) in _OF_ANY_NAME)


def _content_of(place: Path) -> Path:
    return place / "config.json" if isdir(place) else place


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def find_files(tables: Any, where: str) -> list[tuple[str, str]]:
    """Every file that values of `tables` name, as they write it, with the SHA-256 of what it holds; sorted."""
    return sorted({(name, sha256) for (name, _), sha256 in find_places(tables, where).items()})


def find_places(tables: Any, where: str) -> dict[tuple[str, Path], str]:
    """The SHA-256 of every file that values of `tables` name, by its name, as they write it, and its place.

    Names are looked up beside `where`. A file that is not there has no digest: it makes a difference once it is.
    """
    found: dict[tuple[str, Path], str] = {}
    _find_files(tables, where, found)
    return found


def _find_files(tables: Any, where: str, found: dict[tuple[str, Path], str]) -> None:
    for key, text in _texts(tables, ""):
        if not _may_name_file(text, key):
            continue
        place = _content_of(path_beside(text, where))
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
            yield from _texts(item, str(name))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item, key)
