"""Scenarios and sweeps that ship with runcast: a name of one stands wherever a file of a user's own may.

Of a name that is too long for a file, functions of `os.path` say that there is none; those of Path raise an OSError.
"""

import os
import re
from functools import cache
from importlib.resources import files
from pathlib import Path

from .errors import UserError, did_you_mean, fault

_SUFFIXES = (".toml", ".json", ".txt")


@cache
def shipped(folder: str = "scenarios") -> dict[str, Path]:
    """The shipped files of a folder of data (`scenarios`, `sweeps`, `samples`, …) by name, sorted."""
    paths = sorted(Path(str(files("runcast.data") / folder)).iterdir())
    return {path.name.removesuffix(path.suffix): path for path in paths if path.suffix in _SUFFIXES}


def find_shipped(said: object, folder: str = "scenarios") -> Path:
    """The file that `said` names: a path, or the name of a shipped one, whatever its case, dashes and underscores.

    What is a file here, has a folder or ends as shipped files do is a path. A UserError for any other unknown name, and
    for what is neither.
    """
    what = folder.removesuffix("s")
    if not isinstance(said, str | Path):
        raise UserError(f"{what}: is of type {type(said).__name__}; expected a name, a path or a table")
    path, text = Path(said), str(said)
    if os.path.isfile(path) or len(path.parts) > 1 or path.suffix in _SUFFIXES:
        return path
    if found := _by_loose_name(folder).get(_loose(text)):
        return found
    if os.path.exists(path):
        return path
    hint = did_you_mean(text, shipped(folder)) or f"`runcast list {folder}` lists those that ship"
    raise UserError(fault(what, "", text, f"no such file, and no such {what} ships; {hint}"))


def is_name(path: Path, folder: str = "scenarios") -> bool:
    """Whether `path` is the name of a shipped file, or is meant as one: a bare word, and no file or folder here."""
    if os.path.exists(path) or len(path.parts) > 1:
        return False
    return not path.suffix or _loose(path.name) in _by_loose_name(folder)


def _by_loose_name(folder: str) -> dict[str, Path]:
    return {_loose(name): file for name, file in shipped(folder).items()}


def _loose(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).lower()
