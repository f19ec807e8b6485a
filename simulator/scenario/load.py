"""From a TOML file and `--set` changes to a checked Scenario."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..base.errors import UserError, fault, unknown
from ..base.files import read_toml
from ..systems.registry import AnyScenario
from ..systems.weight_update.scenario import Scenario
from .changes import Changes, change, parse_changes
from .check import check_question, check_scenario


def load_question(path: str | Path, changes: Sequence[str] = ()) -> AnyScenario:
    """Read a scenario file of any kind, like `load_scenario`."""
    return check_question(_read(path, changes), str(path))


def load_scenario(path: str | Path, changes: Sequence[str] = ()) -> Scenario:
    """Read a scenario file of kind weight_update and apply `key=value` changes such as `update.bucket=2 GiB`.

    Raises:
        UserError: the file cannot be read, is not TOML, or says something that is not allowed.
    """
    return check_scenario(_read(path, changes), str(path))


def _read(path: str | Path, changes: Sequence[str]) -> dict[str, Any]:
    return change(read_toml(Path(path)), parse_changes(changes), str(path))


# Named what-ifs: changes that people ask for by name, shipped in data/what-ifs.toml or written in a sweep.

SUBJECTS = ("machine", "plan", "update")
"""What one has to change: the hardware, how a step lies on it, how weights travel."""


@dataclass(frozen=True)
class WhatIf:
    """Changes with a name; `about` says in a sentence what they stand for and what a number in them rests on."""

    name: str
    subject: str
    about: str
    changes: Changes


@cache
def what_ifs() -> Mapping[str, WhatIf]:
    """All that are shipped, by name, in the order of their file."""
    path = files("runcast.data") / "what-ifs.toml"
    return MappingProxyType({name: read_what_if(str(path), name, said) for name, said in read_toml(path).items()})


def what_if(name: str, where: str, key: str = "what_if") -> WhatIf:
    """The shipped one of this name; a UserError if there is none."""
    if name not in what_ifs():
        raise unknown(where, key, name, what_ifs())
    return what_ifs()[name]


def read_what_if(where: str, name: str, said: Any) -> WhatIf:
    """A what-if as a file says it: `about`, `subject` (may be left out) and `changes`, a table of key = value.

    A UserError if a key is unknown or missing, or the subject is not one of SUBJECTS.
    """
    key = f"what_if.{name}"
    if not isinstance(said, Mapping) or not set(said) <= {"about", "subject", "changes"}:
        raise UserError(fault(where, key, said, "expected a table of about, subject and changes"))
    if not isinstance(said.get("changes"), Mapping) or not said["changes"]:
        raise UserError(fault(where, f"{key}.changes", said.get("changes"), 'expected changes: { "batch.micro" = 2 }'))
    subject = said.get("subject", SUBJECTS[0])
    if subject not in SUBJECTS:
        raise UserError(fault(where, f"{key}.subject", subject, f"expected one of {', '.join(SUBJECTS)}"))
    return WhatIf(name, subject, str(said.get("about", "")), said["changes"])
