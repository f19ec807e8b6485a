"""Profiles, software stacks and samples by name: shipped ones, and files of the data folder that say what they are.

A name from a browser is looked up here and never joined to a path; a file of the folder goes by its full name,
`mine.json`, so that it never hides a shipped one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..simulator.base.errors import UserError, unknown
from ..simulator.base.files import read_json, read_toml
from ..simulator.formats.samples import Samples, joined, read_samples
from ..simulator.profile import Profile, load_profile, load_stack, profile_names, stack_names

DEVICE, SOFTWARE = "profile", "stack"
_SAMPLES = ("*.csv", "*.csv.gz", "*.jsonl", "*.jsonl.gz")


@dataclass(frozen=True)
class Measured:
    """What may be shown, from what ships and from one folder (none: what ships alone)."""

    folder: Path | None = None

    def names(self, kind: str) -> list[str]:
        """Those of the folder, then the shipped ones."""
        return [*self._own(kind), *(profile_names() if kind == DEVICE else stack_names())]

    def profile(self, kind: str, name: str) -> Profile:
        """A profile, or a stack.

        Raises:
            UserError: there is none of this name, or it cannot be read.
        """
        if name not in (known := self.names(kind)):
            raise unknown("address", kind, name, known)
        path = self._own(kind).get(name)
        return (load_profile if kind == DEVICE else load_stack)(name if path is None else str(path))

    def samples(self) -> Samples | None:
        """All tables of samples of the folder that can be read; None if there is none."""
        found = [samples for path in self._files(*_SAMPLES) if (samples := _read(path)) is not None]
        return joined(found) if found else None

    def _own(self, kind: str) -> Mapping[str, Path]:
        files = ((path, _peek(path)) for path in self._files("*.json", "*.toml"))
        return {path.name: path for path, content in files if content and _kind(content) == kind}

    def _files(self, *patterns: str) -> Iterator[Path]:
        if self.folder is not None:
            yield from sorted(path for pattern in patterns for path in self.folder.glob(pattern) if path.is_file())


def _kind(content: Mapping[str, Any]) -> str:
    """A profile belongs to devices; scenarios and what else has a schema are neither."""
    if "schema" not in content or "kind" in content or not {"base", "parameters", "models"} & set(content):
        return ""
    return DEVICE if {"devices", "models", "limits"} & set(content) else SOFTWARE


def _peek(path: Path) -> Mapping[str, Any]:
    """The table of a file, empty where it is not one."""
    try:
        content = read_json(path) if path.suffix == ".json" else read_toml(path)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _read(path: Path) -> Samples | None:
    try:
        return read_samples([path])
    except UserError:  # a table of something else, such as the report of a sweep
        return None
