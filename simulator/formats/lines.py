"""Lines of logs, without what launchers, terminals and collectors of logs put around what a tool wrote."""

import re

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


def strip_colours(text: str) -> str:
    """A text without colours and other orders to a terminal."""
    return _ANSI.sub("", text)


def clean_line(line: str) -> str:
    """The text after the last carriage return that is not the line's end, without colours and up to three prefixes."""
    line = strip_colours(line).rstrip().rpartition("\r")[2]
    for _ in range(3):
        line = _PREFIX.sub("", line, count=1)
    return line
