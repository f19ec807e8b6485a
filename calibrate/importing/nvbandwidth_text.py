"""What nvbandwidth prints (output.cpp, and logs of 0.2 to 0.8).

`Running <test>.`, a title with its unit, a header of column numbers, and a row per index; N/A where there is no pair. A
test that cannot run prints `Waived:`, in 0.2 `Waiving <test>.`. Tests of two directions print several matrices.
"""

import re
from collections.abc import Sequence

from .found import Found
from .lines import Line
from .nvbandwidth import Matrix, Setup, add_copies
from .options import Options
from .printed import printed

_RUNNING = re.compile(r"^\s*Running\s+(?:benchmark\s+)?(\w+)\.\s*$")
_TITLE = re.compile(r"\((?:GB/s|ns)\)\s*$")
_HEADER = re.compile(r"^\s*\d+(?:\s+\d+)*\s*$")
_VERSION = re.compile(r"nvbandwidth Version:\s*(\S+)")
_DEVICE = re.compile(r"\b[Dd]evice \d+: (?!.*\bbandwidth\b)(.+)$")
_WAIVED = re.compile(r"^\s*(?:Waived:|Waiving \w+)")
_BUFFER = re.compile(r"\bnvbandwidth\b.*\s(?:-b|--bufferSize)[ =](\d{1,9})")


def recognises(lines: Sequence[Line]) -> bool:
    """Whether the log holds something of nvbandwidth."""
    return any(_VERSION.search(text) or _RUNNING.match(text) for _, text in lines)


def read(lines: Sequence[Line], found: Found, options: Options) -> None:
    """All tests of a log.

    Raises:
        UserError: what the log does not say and the options neither.
    """
    waived = sum(bool(_WAIVED.match(text)) for _, text in lines)
    add_copies(_matrices(lines, found), _setup(lines), waived, found, options)


def _setup(lines: Sequence[Line]) -> Setup:
    version, buffer_bytes, devices = None, None, set()
    for _, text in lines:
        if match := _VERSION.search(text):
            version = match[1]
        elif match := _DEVICE.search(text):
            devices.add(match[1].strip())
        elif match := _BUFFER.search(text):
            buffer_bytes = float(match[1]) * (1 << 20)
    return Setup(frozenset(devices), version, buffer_bytes)


def _matrices(lines: Sequence[Line], found: Found) -> list[Matrix]:
    matrices: list[Matrix] = []
    test, index = "", 0
    while index < len(lines):
        text = lines[index].text
        index += 1
        if match := _RUNNING.match(text):
            test = match[1]
        elif test and _TITLE.search(text) and index < len(lines) and _HEADER.match(lines[index].text):
            cells, index = _rows(lines, index, found)
            matrices.append(Matrix(test, text.strip(), cells))
    return matrices


def _rows(lines: Sequence[Line], index: int, found: Found) -> tuple[list[tuple[int, str]], int]:
    """The cells below the header at `index`, and where the matrix ends."""
    columns = len(lines[index].text.split())
    cells: list[tuple[int, str]] = []
    for end in range(index + 1, len(lines)):
        number, text = lines[end]
        tokens = text.split()
        if not tokens or not tokens[0].isdigit():
            return cells, end
        values = tokens[1:]
        if len(values) != columns or any(printed(value) is None and value != "N/A" for value in values):
            found.leave(number, f"row is not an index and {columns} rates")
        else:
            cells += [(number, value) for value in values]
    return cells, len(lines)
