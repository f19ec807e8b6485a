"""What the dashboard may open: shipped scenarios, and scenarios and sweeps in the folder given by `--data`.

Everything has a name from a listing. A name from a browser is looked up there and never joined to a path.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from ..simulator.base.errors import UserError, fault, unknown
from ..simulator.base.files import read_toml

REPORT = "report.csv"
"""The file by which a folder is known as a sweep's."""


@dataclass(frozen=True)
class Library:
    """Shipped files, and those of one folder (none: shipped ones alone)."""

    folder: Path | None = None

    def scenarios(self) -> Mapping[str, Traversable]:
        """Scenario files by name, the user's own first; of two with one name the user's."""
        own = sorted(self.folder.glob("*.toml")) if self.folder is not None else []
        shipped = sorted((files("runcast.data") / "scenarios").iterdir(), key=lambda file: file.name)
        found: dict[str, Traversable] = {path.stem: path for path in own if "kind" in _peek(path)}
        for file in shipped:
            if file.name.endswith(".toml"):
                found.setdefault(file.name.removesuffix(".toml"), file)
        return found

    def scenario(self, name: str, kinds: Collection[str] = ()) -> tuple[dict[str, Any], str]:
        """The table of a scenario, and how it is called in messages: the place of its file.

        Raises:
            UserError: there is none of this name, or it cannot be read, or it is of another kind than these.
        """
        known = self.scenarios()
        if name not in known:
            raise unknown("address", "base", name, known)
        table = read_toml(known[name])
        if kinds and table.get("kind") not in kinds:
            raise UserError(fault("address", "base", name, f"expected a scenario of kind {' or '.join(kinds)}"))
        return table, str(known[name])

    def of_kind(self, kind: str) -> list[str]:
        """Names of scenarios of a kind."""
        return [name for name, file in self.scenarios().items() if _peek(file).get("kind") == kind]

    def sweeps(self) -> Mapping[str, Path]:
        """Folders of sweeps that are done or under way, by name."""
        if self.folder is None:
            return {}
        return {report.parent.name: report.parent for report in sorted(self.folder.glob(f"*/{REPORT}"))}


def _peek(file: Traversable) -> Mapping[str, Any]:
    """The table of a file, empty where it is not one."""
    try:
        return read_toml(file)
    except ValueError:
        return {}
