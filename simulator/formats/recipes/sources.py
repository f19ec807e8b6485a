"""Files that a shell script reads or starts: `source common.sh`, `bash run.sh`."""

import re
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

from ...base.files import MOST_SETTINGS, read_text
from .shell import Variables

_PATH = r"(?P<path>[^\s\"'`;|&<>()]+\.sh)[\"'`]*"  # without the commands in front of it: $(dirname $0)
_SOURCE = re.compile(rf"^[ \t]*(?:source|\.)[ \t][^\n]*?{_PATH}[ \t]*$", re.MULTILINE)
_START = re.compile(rf"^[ \t]*(?:exec[ \t]+)?(?:bash|sh)[ \t]+[^\s\w-]*{_PATH}(?P<more>[ \t][^\n]*)?$", re.MULTILINE)
_PLAIN = re.compile(r"""[\w./:,=${}-]+|"[^"`@*]*"|'[^']*'""")
_OTHERS = re.compile(r"\(\)\s*\{|^\s*(shift\b|set\s+--)", re.MULTILINE)  # functions have their own `$1`; or it changes
_ARGUMENT = re.compile(r"""'[^'\n]*'|\\\$|\$(?P<bare>[1-9])(?![0-9])|\$\{(?P<name>[1-9])(?::?[-=?][^{}]*)?\}""")
_ASSIGNMENT = re.compile(r"""^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)=(["']?)([^"'\n$`]*)\2[ \t]*$""", re.MULTILINE)
_SIZES = re.compile(r"--(num-layers|hidden-size|hybrid-(layer|override)-pattern)\b")


def include_sourced(text: str, folder: Path, settings: Mapping[str, str] | None = None) -> str:
    """The script with the files that it reads (`source common.sh`) put in, each once.

    They lie beside it, or where the end of their path leads from there: `models/7b.sh`. Variables in a path are those
    of `settings`, or plain values that the script assigns. Where no sizes of a model are found, a script that it starts
    (`bash run.sh 8`) is put in, too, with its arguments.
    """
    included: set[Path] = set()
    variables = Variables(dict(settings or {}))

    def include(found: re.Match[str]) -> str:
        for name, _, value in _ASSIGNMENT.findall(found.string):
            variables.assign(name, value)
        file = _find(variables.substitute(found["path"]), folder)
        if file is None or file in included:
            return found[0]
        included.add(file)
        use = f": {found['path']}\n" if "$" in found["path"] else ""  # so that its variables count as used
        read = _with_arguments(read_text(file, "a script", MOST_SETTINGS), found.groupdict().get("more") or "")
        return use + _SOURCE.sub(include, read)

    whole = _SOURCE.sub(include, text)
    return whole if _SIZES.search(whole) else _START.sub(include, whole)


def _with_arguments(text: str, line: str) -> str:
    """A started script with its arguments in place of `$1` and `${2:-default}`, as far as they are plain words."""
    given = [word.strip("\"'") for word in takewhile(_PLAIN.fullmatch, line.split())]

    def put_in(found: re.Match[str]) -> str:
        number = int(found["bare"] or found["name"] or 0)
        return given[number - 1] if 0 < number <= len(given) else found[0]

    return text if _OTHERS.search(text) else _ARGUMENT.sub(put_in, text)


def _find(path: str, folder: Path) -> Path | None:
    """The file at the longest end of a path that leads to one: its first parts may be known to a shell alone."""
    parts = path.split("/")
    ends = ("/".join(parts[start:]) for start in range(len(parts)))
    return next((folder / end for end in ends if "$" not in end and (folder / end).is_file()), None)


def missing_sources(text: str) -> list[str]:
    """Names of the files that a script reads or, where it says no sizes itself, starts, and that are not put in."""
    found = [*_SOURCE.finditer(text), *(() if _SIZES.search(text) else _START.finditer(text))]
    return list(dict.fromkeys(one["path"].rpartition("/")[2] for one in found))
