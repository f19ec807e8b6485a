"""Matrices of nvbandwidth, from text or JSON, as copies: what each test copies, and how many bytes.

Rates are GB/s of 1e9. A copy is `--bufferSize` bytes: 64 MiB before 0.7 and 512 MiB since (release notes of 0.7). What
a rate counts (the tool's README and `-l`): host and device tests the one copy that is measured, also where another runs
the other way or other GPUs copy at once; device_local_copy one direction, though it reads and writes; bidirectional
device tests the measured copy with the copy engine, and both ways together with a kernel before 0.6, which prints the
two ways and their total since. Latency tests chase pointers, so they are no cost of a call.

Text (output.cpp, and logs of 0.2 to 0.8): `Running <test>.`, a title with its unit, a header of column numbers, and a
row per index; N/A where there is no pair. A test that cannot run prints `Waived:`, in 0.2 `Waiving <test>.`. Tests of
two directions print several matrices. JSON (`--json`, newer `--format json`, json_output.cpp): under `nvbandwidth`
versions, and `testcases` with name, status (Passed, Waived, Error, Not Found) and a matrix whose cells are texts. Most
releases do not list the GPUs; where a list of names is there, whatever its key, it is used.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...simulator.base.errors import UserError
from .log import Found, Line, Place, from_json, parse_number, table

_MIB = float(1 << 20)
_DIRECTIONS = {"host_to_device": "h2d", "device_to_host": "d2h", "device_to_device": "p2p", "device_local": "d2d"}
_CONCURRENT = {"host_to_all": "h2d", "all_to_host": "d2h"}
_NAME = re.compile(r"(\w+?)(_bidirectional)?(?:_memcpy)?(?:_copy)?(?:_(read|write))?(?:_(ce|sm))?(?:_[a-z]+\d?)?")
_NO_COPY = re.compile(r"latency|all_to_one|one_to_all|multicast|broadcast|bisect")


@dataclass(frozen=True)
class Matrix:
    """One matrix as it is printed: the name of the test, its title, and per cell its place and text."""

    test: str
    title: str
    cells: Sequence[tuple[Place, str]]


@dataclass
class Setup:
    """What a log says of the run as a whole; versions such as `v0.8` or `0.8`."""

    devices: set[str] = field(default_factory=set)
    version: str | None = None
    buffer_bytes: float | None = None
    waived: int = 0


def add_copies(matrices: Sequence[Matrix], setup: Setup, found: Found) -> None:
    """All cells as samples; cells without a number are waived, which is no fault."""
    if setup.waived:
        found.note(f"{setup.waived} test{'s were' if setup.waived > 1 else ' was'} waived")
    good: list[tuple[Place, str, str, float]] = []
    for matrix in matrices:
        cost_class, reason = _cost_class(matrix)
        for place, text in matrix.cells:
            rate = from_json(text)
            if rate is None or rate.value == 0:  # some releases print 0 where there is no pair
                found.leave(place, "waived cells")
            elif reason or rate.value < 0:
                found.leave(place, reason or "rate below zero")
            else:
                good.append((place, matrix.test, cost_class, rate.value * 1e9))
    if not good:
        return
    size, device = _buffer_bytes(setup, found), found.device(setup.devices)
    for place, test, cost_class, bytes_per_s in good:
        library = found.options.library or ("copy kernel" if re.search(r"_sm(_|$)", test) else "copy engine")
        found.add(place, cost_class, size / bytes_per_s, device, library, test, {"bytes": size})


def _cost_class(matrix: Matrix) -> tuple[str, str]:
    """The class of its cells, or the reason why none of them is the rate of one copy."""
    test, title = matrix.test, matrix.title
    match = _NAME.fullmatch(test)
    if _NO_COPY.search(test) or "(ns)" in title:
        return "", f"{test} is {'a latency of loads' if 'latency' in test else 'a sum over GPUs'}, not a copy"
    if match is None or match[1] not in _DIRECTIONS | _CONCURRENT:
        return "", f"{test} has no cost class"
    both_ways = match[1] == "device_to_device" and match[2]
    one_way = re.search(r"\b(read|write)\s*[12]\b", title, re.IGNORECASE)
    if both_ways and not one_way and (match[4] == "sm" or re.search(r"\btotal\b", title, re.IGNORECASE)):
        return "", f"{test} counts both ways"
    direction, concurrent = (_DIRECTIONS | _CONCURRENT)[match[1]], match[1] in _CONCURRENT
    return f"copy.{direction}{'.bidirectional' if match[2] else ''}{'.concurrent' if concurrent else ''}", ""


def _buffer_bytes(setup: Setup, found: Found) -> float:
    """The buffer size in bytes: from --buffer, else the log, else the version's default."""
    known = found.options.buffer_bytes or setup.buffer_bytes
    version = re.search(r"(\d+)\.(\d+)", setup.version or "")
    if known is None and version is None:
        raise UserError(f"{found.file}: does not say how many bytes a copy has; give --buffer")
    default = 64 if version and (int(version[1]), int(version[2])) < (0, 7) else 512
    return known or default * _MIB


_RUNNING = re.compile(r"^\s*Running\s+(?:benchmark\s+)?(\w+)\.\s*$")
_TITLE = re.compile(r"\((?:GB/s|ns)\)\s*$")
_HEADER = re.compile(r"^\s*\d+(?:\s+\d+)*\s*$")
_VERSION = re.compile(r"nvbandwidth Version:\s*(\S+)")
_DEVICE = re.compile(r"\b[Dd]evice \d+: (?!.*\bbandwidth\b)(.+)$")
_WAIVED = re.compile(r"^\s*(?:Waived:|Waiving \w+)")
_BUFFER = re.compile(r"\bnvbandwidth\b.*\s(?:-b|--bufferSize)[ =](\d{1,9})")


MARKS = (_VERSION, _RUNNING)
"""What shows that a log holds something of nvbandwidth."""


def read_text(lines: Sequence[Line], found: Found) -> None:
    """All tests of a log."""
    setup = Setup()
    for _, text in lines:
        if match := _VERSION.search(text):
            setup.version = match[1]
        elif match := _DEVICE.search(text):
            setup.devices.add(match[1].strip())
        elif match := _BUFFER.search(text):
            setup.buffer_bytes = float(match[1]) * _MIB
    setup.waived = sum(bool(_WAIVED.match(text)) for _, text in lines)
    add_copies(_matrices(lines, found), setup, found)


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
        if len(values) != columns or any(parse_number(value) is None and value != "N/A" for value in values):
            found.leave(number, f"row is not an index and {columns} rates")
        else:
            cells += [(number, value) for value in values]
    return cells, len(lines)


def read_json(body: Mapping[str, Any], found: Found, at: str = "") -> None:
    """All tests of a run; `at` is put before their places."""
    cases = body.get("testcases")
    if not isinstance(cases, list):
        raise UserError(f"{found.file}: {at}nvbandwidth.testcases: expected a list")
    size, version = body.get("bufferSize"), body.get("version") or body.get("git_version")
    known = size * _MIB if isinstance(size, int) and 0 < size < 1 << 40 else None
    setup, matrices = Setup(_devices(body), str(version) if version else None, known), []
    for index, case in enumerate(map(table, cases)):
        place = f"{at}testcases[{index}]"
        name, status, rows = str(case.get("name", "")), case.get("status"), case.get("bandwidth_matrix")
        if status == "Waived":
            setup.waived += 1
        elif status not in ("Passed", None) or not isinstance(rows, list):
            found.leave(place, "tests that did not pass")
        else:
            cells = [(place, str(cell)) for row in rows if isinstance(row, list) for cell in row]
            matrices.append(Matrix(name, str(case.get("bandwidth_description", "")), cells))
    add_copies(matrices, setup, found)


def _devices(body: Mapping[str, Any]) -> set[str]:
    """Names in lists such as `GPU Device list`: `0: NVIDIA GB200 (00000008:01:00)`."""
    lists = [value for key, value in body.items() if "device" in key.lower() and isinstance(value, list)]
    texts = [text for names in lists for text in names if isinstance(text, str)]
    return {text.partition(": ")[2] or text for text in texts}
