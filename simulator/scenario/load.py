"""From a TOML file and `--set` changes to a checked Scenario."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..base.files import read_toml
from ..systems.registry import AnyScenario
from ..systems.weight_update.scenario import Scenario
from .changes import changed, parsed
from .check import check_question, check_scenario


def load_question(path: str | Path, changes: Sequence[str] = ()) -> AnyScenario:
    """Read a scenario file of any kind, like `load_scenario`.

    Raises:
        UserError: the file cannot be read, is not TOML, or says something that is not allowed.
    """
    return check_question(_read(path, changes), str(path))


def load_scenario(path: str | Path, changes: Sequence[str] = ()) -> Scenario:
    """Read a scenario file and apply `key=value` changes such as `update.bucket=2 GiB`.

    Raises:
        UserError: the file cannot be read, is not TOML, or says something that is not allowed.
    """
    return check_scenario(_read(path, changes), str(path))


def _read(path: str | Path, changes: Sequence[str]) -> dict[str, Any]:
    return changed(read_toml(Path(path)), parsed(changes), str(path))
