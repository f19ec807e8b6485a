"""What stands beside a plan and no recipe says: machines, software and data. An exported recipe has it in comments.

A comment such as `# runcast: nodes = 8` is read again by `runcast plan import`.
"""

import re
from collections.abc import Mapping
from typing import Any

from ...base.errors import UserError, hint
from ...base.files import parse_toml, toml_value

KEYS = (
    *("cluster", "nodes", "stack", "profile", "slow", "collectives", "memory", "run", "level", "towers"),
    *("attention", "attention_dropout", "loss", "batch.documents", "batch.split", "overlap.tp_exposed"),
    *("offload.slots", "experts.routing", "experts.zipf", "experts.histogram"),
)
"""Keys of a scenario that are no part of a plan: whoever starts the run with the same recipe may have others."""
_SLURM = re.compile(r"^#SBATCH[ \t].*?(?:--nodes[= \t]|-N[ \t]*)(\d{1,6})\b", re.MULTILINE)
_LINE = re.compile(r"^# runcast: (.*)$", re.MULTILINE)


def write_beside(values: Mapping[str, Any]) -> list[str]:
    """A comment for each key."""
    return [f"# runcast: {key} = {toml_value(value)}" for key, value in values.items()]


def read_beside(text: str, where: str) -> dict[str, Any]:
    """The values that comments of a recipe give, by keys with dots; a UserError for a line that gives none."""
    import tomllib

    found: dict[str, Any] = {}
    for line in _LINE.findall(text):
        key = line.partition("=")[0].strip()
        if key not in KEYS:
            raise UserError(f"{where}: # runcast: {key}: is no key beside a plan; {hint(key, KEYS)}")
        try:
            found[key] = parse_toml(f"value = {line.partition('=')[2]}")["value"]
        except tomllib.TOMLDecodeError:
            raise UserError(f"{where}: # runcast: {line}: expected KEY = VALUE, as TOML has it") from None
    return found


def slurm_nodes(text: str) -> int | None:
    """The nodes that a script asks Slurm for; None where it does not."""
    found = _SLURM.search(text)
    return int(found[1]) if found else None


def put_beside(table: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a scenario with these values in it."""
    found = dict(table)
    for key, value in values.items():
        name, _, inner = key.partition(".")
        found[name] = {**found.get(name, {}), inner: value} if inner else value
    return found
