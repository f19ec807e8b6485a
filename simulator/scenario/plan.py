"""`plan=FILE` among changes: the plan of another scenario's training step, such as the winner of a search."""

from os.path import exists  # of a name that is too long it says no
from pathlib import Path
from typing import Any

from ..base.errors import UserError, fault
from ..base.files import missing_file, read_toml
from ..base.named_files import rename_files
from ..base.shipped import find_shipped

PLAN = "plan"
"""The key of changes that stands for all keys of a plan."""
_WHOLE = ("parallel", "schedule", "recompute", "offload")
"""Tables of a plan; one that a file leaves out says what it says by default."""


def plan_changes(name: Any) -> dict[str, Any]:
    """The changes that give a scenario the plan in a file, or in a shipped scenario.

    dp is left out: it follows from the GPUs. A UserError if there is no such file, or no training step in it.
    """
    if not isinstance(name, str):
        raise UserError(fault("--set", PLAN, name, "expected a file, such as out/winner.toml"))
    path = find_shipped(Path(name))
    if not exists(path):
        raise UserError(missing_file(name, path, "--set", PLAN))
    table = rename_files(read_toml(path), str(path), str)
    if not isinstance(table.get("parallel"), dict):
        raise UserError(f"{name}: parallel: is missing; expected a plan, such as a search's winner.toml")
    changes: dict[str, Any] = {key: table.get(key, {}) for key in _WHOLE}
    changes["parallel"] = {key: value for key, value in table["parallel"].items() if key != "dp"}
    if "overlap" in table:
        changes["overlap"] = table["overlap"]
    if isinstance(batch := table.get("batch"), dict) and "micro" in batch:
        changes["batch.micro"] = batch["micro"]
    return changes
