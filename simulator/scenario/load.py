"""From a TOML file and `--set` changes to a checked Scenario."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field

from ..base.errors import unknown
from ..base.files import read_toml
from ..base.schema import validate
from ..systems.registry import AnyScenario
from ..systems.tables import Table
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


class WhatIfTable(Table):
    """A what-if as a file says it."""

    subject: Literal["machine", "plan", "update", "run"] = Field(
        "machine",
        description="what one has to change: hardware, how a step lies on it, how weights travel, the run around it",
    )
    about: str = Field("", description="what the changes stand for and what a number in them rests on")
    needs: list[str] = Field([], description="keys of a scenario that gives it a meaning by one of them")
    changes: dict[str, Any] = Field(
        min_length=1, description="a table of keys of a scenario with their values", examples=[{"batch.micro": 2}]
    )


@dataclass(frozen=True)
class WhatIf:
    """The changes of a `WhatIfTable` with a name. It has a meaning where a scenario gives one of `needs`, if any."""

    name: str
    subject: str
    about: str
    changes: Changes
    needs: tuple[str, ...] = ()


@cache
def what_ifs() -> Mapping[str, WhatIf]:
    """All that are shipped, by name, in the order of their file."""
    path = files("runcast.data") / "what-ifs.toml"
    said = validate(dict[str, WhatIfTable], read_toml(path), str(path))
    found = {name: WhatIf(name, one.subject, one.about, one.changes, tuple(one.needs)) for name, one in said.items()}
    return MappingProxyType(found)


def what_if(name: str, where: str, key: str = "what_if") -> WhatIf:
    """The shipped one of this name; a UserError if there is none."""
    if name not in what_ifs():
        raise unknown(where, key, name, what_ifs())
    return what_ifs()[name]
