"""What the dashboard may open: what ships, and files of the folder given by `--data`.

Everything has a name from a listing: scenarios and sweeps, profiles, software stacks, samples, and real runs. A name
from a browser is looked up there and never joined to a path.
"""

import gzip
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from ..simulator.base.errors import UserError, fault, unknown
from ..simulator.base.files import read_json, read_toml
from ..simulator.formats.samples import Samples, join_samples, read_samples
from ..simulator.formats.traces import SUFFIXES
from ..simulator.profile import Profile, load_profile, load_stack, profile_names, stack_names

REPORT = "report.csv"
"""The file by which a folder is known as a sweep's."""
DEVICE, SOFTWARE = "profile", "stack"
_SAMPLES = ("*.csv", "*.csv.gz", "*.jsonl", "*.jsonl.gz")
_LOGS = (".log", ".log.gz", ".out", ".txt", ".txt.gz")
_HEAD_BYTES = 2**16
"""Within so many a trace says that it is one; what comes before are the devices of a node."""


@dataclass(frozen=True)
class Library:
    """Shipped files, and those of one folder (none: shipped ones alone)."""

    folder: Path | None = None

    def scenarios(self) -> Mapping[str, Traversable]:
        """Scenario files by name, the user's own first; of two with one name the user's."""
        shipped = sorted((files("runcast.data") / "scenarios").iterdir(), key=lambda file: file.name)
        found: dict[str, Traversable] = {path.stem: path for path in self._files("*.toml") if "kind" in _peek(path)}
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

    def names_of_kind(self, kind: str) -> list[str]:
        """Names of scenarios of a kind."""
        return [name for name, file in self.scenarios().items() if _peek(file).get("kind") == kind]

    def sweeps(self) -> Mapping[str, Path]:
        """Folders of sweeps that are done or under way, by name."""
        return {report.parent.name: report.parent for report in self._files(f"*/{REPORT}")}

    def profiles(self, kind: str) -> list[str]:
        """Names of profiles (DEVICE) or stacks (SOFTWARE): those of the folder, then the shipped ones.

        A file of the folder goes by its full name, `mine.json`, so that it never hides a shipped one.
        """
        return [*self._own_profiles(kind), *(profile_names() if kind == DEVICE else stack_names())]

    def profile(self, kind: str, name: str) -> Profile:
        """A profile, or a stack.

        Raises:
            UserError: there is none of this name, or it cannot be read.
        """
        if name not in (known := self.profiles(kind)):
            raise unknown("address", kind, name, known)
        path = self._own_profiles(kind).get(name)
        return (load_profile if kind == DEVICE else load_stack)(name if path is None else str(path))

    def samples(self) -> Samples | None:
        """All tables of samples of the folder that can be read; None if there is none."""
        found = []
        for path in self._files(*_SAMPLES):
            try:
                found.append(read_samples([path]))
            except UserError:  # a table of something else, such as the report of a sweep
                continue
        return join_samples(found) if found else None

    def runs(self) -> Mapping[str, Path]:
        """Logs and traces of real runs in the folder, and folders with a trace per rank, by their full names."""
        return {path.name: path for path in self._entries("*") if _is_run(path)}

    def run(self, name: str) -> Path | None:
        """The real run of this name, if there is one; no other file is looked into."""
        return next((path for path in self._entries("*") if path.name == name and _is_run(path)), None)

    def _own_profiles(self, kind: str) -> Mapping[str, Path]:
        return {path.name: path for path in self._files("*.json", "*.toml") if _profile_kind(_peek(path)) == kind}

    def _files(self, *patterns: str) -> Iterator[Path]:
        return (path for path in self._entries(*patterns) if path.is_file())

    def _entries(self, *patterns: str) -> Iterator[Path]:
        if self.folder is not None:
            yield from sorted(path for pattern in patterns for path in self.folder.glob(pattern))


def _is_run(path: Path) -> bool:
    """Whether a file is a log by its name, or a trace by how it begins; whether a folder holds traces alone."""
    if path.is_dir():
        inside = [file for file in path.iterdir() if not file.name.startswith(".")]
        return bool(inside) and all(_is_trace(file) for file in inside)
    return path.name.endswith(_LOGS) or _is_trace(path)


def _is_trace(path: Path) -> bool:
    if not (path.is_file() and path.name.endswith(SUFFIXES)):
        return False
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except (OSError, EOFError, zlib.error):
        return False
    return b'"traceEvents"' in head or (head.lstrip().startswith(b"[") and b'"ph"' in head)


def _profile_kind(content: Mapping[str, Any]) -> str:
    """A profile belongs to devices; scenarios and what else has a schema are neither."""
    if "schema" not in content or "kind" in content or not {"base", "parameters", "models"} & set(content):
        return ""
    return DEVICE if {"devices", "models", "limits"} & set(content) else SOFTWARE


def _peek(file: Traversable) -> Mapping[str, Any]:
    """The table of a file, empty where it is not one."""
    try:
        content = read_json(file) if file.name.endswith(".json") else read_toml(file)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
