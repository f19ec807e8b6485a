"""Files that a shell script reads: `source common.sh`."""

import re
from pathlib import Path

from ...base.files import MOST_SETTINGS, read_text

_SOURCE = re.compile(
    r"^[ \t]*(?:source|\.)[ \t][^\n]*?(?P<path>(?:[\w.-]+/)*(?P<name>[\w.-]+\.sh))[\"'`]*[ \t]*$", re.MULTILINE
)


def include_sourced(text: str, folder: Path) -> str:
    """The script with the files that it reads (`source common.sh`) put in, each once.

    They lie beside it, or where their path leads from there: `models/7b.sh`.
    """
    included: set[Path] = set()

    def include(found: re.Match[str]) -> str:
        file = next((folder / path for path in (found["path"], found["name"]) if (folder / path).is_file()), None)
        if file is None or file in included:
            return found[0]
        included.add(file)
        return _SOURCE.sub(include, read_text(file, "a script", MOST_SETTINGS))

    return _SOURCE.sub(include, text)


def missing_sources(text: str) -> list[str]:
    """Names of the files that a script reads and that are not put in."""
    return list(dict.fromkeys(found["name"] for found in _SOURCE.finditer(text)))
