"""From a file, a shipped name or a table, with `--set` changes, to a checked Scenario."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field

from ..base.errors import UserError, fault, shorten, unknown
from ..base.files import read_json, read_toml
from ..base.named_files import find_places
from ..base.schema import validate
from ..base.shipped import find_shipped
from ..systems.machines import without_words
from ..systems.registry import AnyScenario
from ..systems.system import SystemPrediction
from ..systems.tables import Table
from ..systems.weight_update.scenario import Scenario
from .changes import Changes, change, plain_values, read_changes
from .check import check_question, check_scenario

Given = Mapping[str, Any] | str | Path | SystemPrediction
"""A scenario as a table of plain values (or `to_json()` of an answer), as a file (TOML, or the JSON of a report), as
the name of a shipped one, or as a prediction of it.
"""


def open_table(scenario: Given, changes: Sequence[str] | Changes = ()) -> tuple[dict[str, Any], str]:
    """(the table of a scenario with changes, the file or name that errors tell and beside which files are looked up).

    Changes are `key=value` lines or values by key. A name that they do not set tells them: it may say what they change.

    Raises:
        UserError: the file cannot be read, or the changes cannot be made.
    """
    table, where = _open(scenario)
    return retitle(change(table, read_changes(changes), where), changes), where


_MOST_LETTERS = 100


def retitle(table: Mapping[str, Any], changes: Sequence[str] | Changes) -> dict[str, Any]:
    """The table after these changes, with a name that tells them: "64 x H100 with nodes=4"."""
    lines = [changes] if isinstance(changes, str) else changes
    if isinstance(lines, Mapping):
        lines = [f"{key}={_text(value)}" for key, value in lines.items()]
    told = {key.strip(): line for line in lines if (key := line.partition("=")[0]).strip() not in ("notes", "kind")}
    if not told or "name" in told or not isinstance(table.get("name"), str):
        return dict(table)
    text = "".join(letter if letter.isprintable() else " " for letter in ", ".join(told.values()))
    return {**table, "name": f"{table['name']} with {shorten(text, _MOST_LETTERS)}"}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(plain_values(value), default=str)


def load_question(scenario: Given, changes: Sequence[str] | Changes = ()) -> AnyScenario:
    """The checked scenario of any kind, like `load_scenario`."""
    return check_question(*open_table(scenario, changes))


def load_scenario(path: str | Path, changes: Sequence[str] = ()) -> Scenario:
    """Read a scenario file of kind weight_update and apply `key=value` changes such as `update.bucket=2 GiB`.

    Raises:
        UserError: the file cannot be read, is not TOML, or says something that is not allowed.
    """
    return check_scenario(*open_table(path, changes))


def _open(scenario: Given) -> tuple[Mapping[str, Any], str]:
    """The table of a scenario before changes, and the file beside which files are looked up."""
    if isinstance(scenario, SystemPrediction):
        return scenario.resolved.inputs["scenario"], scenario.resolved.where
    if isinstance(scenario, Mapping):
        return (open_report(dict(scenario), "report"), "report") if _is_report(scenario) else (scenario, "scenario")
    return _read(scenario)


def _is_report(table: Mapping[str, Any]) -> bool:
    return isinstance(inputs := table.get("inputs"), Mapping) and isinstance(inputs.get("scenario"), Mapping)


def _read(said: str | Path) -> tuple[dict[str, Any], str]:
    """The table in a file, which is a scenario or the report of one, and the file, or the name of a shipped one."""
    path = find_shipped(said)
    where = str(path) if path == Path(said) else path.stem
    if path.suffix != ".json":
        return read_toml(path), where
    return open_report(read_json(path), where), where


def open_report(report: Any, where: str) -> dict[str, Any]:
    """The scenario of a report in a file.

    A UserError where it has none, or where a file that it rests on is not there, or is another one now.
    """
    if not isinstance(report, dict) or not _is_report(report):
        raise UserError(
            f"{where}: inputs.scenario: is missing; expected a scenario (TOML), or a report with its inputs"
        )
    table: dict[str, Any] = report["inputs"]["scenario"]
    rested = report["inputs"].get("files")
    for (name, place), sha256 in find_places(without_words(table), where).items():
        if not isinstance(rested, list) or {"name": name, "sha256": sha256} not in rested:
            what = "is not the file that the report rests on" if sha256 else "no such file"
            raise UserError(fault(where, "inputs.files", name, f"{what}: {place.absolute()}"))
    return table


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
