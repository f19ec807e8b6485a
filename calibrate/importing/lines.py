"""A log as clean lines: without what launchers, terminals and collectors of logs put around what the tool wrote."""

import re
from typing import NamedTuple

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")

_PREFIX = re.compile(
    r"""^\s*(?:
        \[\d+,\d+\]<std(?:out|err)>:              # mpirun --tag-output
      | \d+:(?=\s|$)                              # srun --label
      | \[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?:?(?=\s)   # time stamps
      | \[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?:?(?=\s)
      | \([^()]*pid=\d+[^()]*\)(?=\s)             # Ray
      | [\w.-]+\s+\|(?=\s)                        # docker compose
      | [\w./-]+:\s*(?=\#|\d+\s+\d+\s)            # pdsh, kubectl logs --prefix
    )""",
    re.VERBOSE,
)


class Line(NamedTuple):
    """One line, counted from 1 as an editor does."""

    number: int
    text: str


def clean_lines(text: str) -> list[Line]:
    """All lines of a log, with the numbers that they have in the file."""
    return [Line(number, _clean(line)) for number, line in enumerate(text.split("\n"), start=1)]


def _clean(line: str) -> str:
    """The text after the last carriage return that is not the line's end, without colours and up to three prefixes."""
    line = _ANSI.sub("", line).rstrip().rpartition("\r")[2]
    for _ in range(3):
        line = _PREFIX.sub("", line, count=1)
    return line
