"""Matrices of nvbandwidth, from text or JSON, as copies: what each test copies, and how many bytes.

Rates are GB/s of 1e9. A copy is `--bufferSize` bytes: 64 MiB before 0.7 and 512 MiB since (release notes of 0.7). What
a rate counts (the tool's README and `-l`): host and device tests the one copy that is measured, also where another runs
the other way or other GPUs copy at once; device_local_copy one direction, though it reads and writes; bidirectional
device tests the measured copy with the copy engine, and both ways together with a kernel before 0.6, which prints the
two ways and their total since. Latency tests chase pointers, so they are no cost of a call.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...simulator.base.errors import UserError
from .found import Found, Place
from .options import Options, device_of
from .printed import from_json

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


@dataclass(frozen=True)
class Setup:
    """What a log says of the run as a whole; versions such as `v0.8` or `0.8`."""

    devices: frozenset[str]
    version: str | None = None
    buffer_bytes: float | None = None


def add_copies(matrices: Sequence[Matrix], setup: Setup, waived: int, found: Found, options: Options) -> None:
    """All cells as samples; cells without a number are waived, which is no fault.

    Raises:
        UserError: the device or the size of a copy is neither in the log nor in the options.
    """
    good: list[tuple[Place, Matrix, float]] = []
    for matrix in matrices:
        reason = _no_sample(matrix)
        for place, text in matrix.cells:
            rate = from_json(text)
            if rate is None or rate.value == 0:  # some releases print 0 where there is no pair
                found.leave(place, "waived cells")
            elif reason:
                found.leave(place, reason)
            elif rate.value < 0:
                found.leave(place, "rate below zero")
            else:
                good.append((place, matrix, rate.value * 1e9))
    if good:
        _add(good, setup, found, options)
    if waived:
        found.note(f"{waived} test{'s were' if waived > 1 else ' was'} waived")


def _add(cells: Sequence[tuple[Place, Matrix, float]], setup: Setup, found: Found, options: Options) -> None:
    """Cells with their rates in bytes/s."""
    size = _buffer_bytes(setup, found.file, options)
    device = device_of(set(setup.devices), options, found.file)
    for place, matrix, rate in cells:
        library = options.library or _library(matrix.test)
        found.add(place, _cost_class(matrix.test), size / rate, device, library, matrix.test, {"bytes": size})


def _cost_class(test: str) -> str:
    match = _NAME.fullmatch(test)
    assert match is not None, "tests that match nothing are left out before"
    concurrent = match[1] in _CONCURRENT
    direction = _CONCURRENT[match[1]] if concurrent else _DIRECTIONS[match[1]]
    return f"copy.{direction}{'.bidirectional' if match[2] else ''}{'.concurrent' if concurrent else ''}"


def _library(test: str) -> str:
    return "copy kernel" if re.search(r"_sm(_|$)", test) else "copy engine"


def _no_sample(matrix: Matrix) -> str | None:
    """Why no cell of this matrix is the rate of one copy."""
    match = _NAME.fullmatch(matrix.test)
    if _NO_COPY.search(matrix.test) or "(ns)" in matrix.title:
        kind = "a latency of loads" if "latency" in matrix.test else "a sum over GPUs"
        return f"{matrix.test} is {kind}, not a copy"
    if match is None or match[1] not in _DIRECTIONS | _CONCURRENT:
        return f"{matrix.test} has no cost class"
    both_ways = match[1] == "device_to_device" and match[2]
    one_way = re.search(r"\b(read|write)\s*[12]\b", matrix.title, re.IGNORECASE)
    if both_ways and not one_way and (match[4] == "sm" or re.search(r"\btotal\b", matrix.title, re.IGNORECASE)):
        return f"{matrix.test} counts both ways"
    return None


def _buffer_bytes(setup: Setup, file: str, options: Options) -> float:
    """As --buffer says, else the log, else the default of its version.

    Raises:
        UserError: nothing says it.
    """
    known = options.buffer_bytes or setup.buffer_bytes
    version = re.search(r"(\d+)\.(\d+)", setup.version or "")
    if known is None and version is None:
        raise UserError(f"{file}: does not say how many bytes a copy has; give --buffer")
    default = 64 if version and (int(version[1]), int(version[2])) < (0, 7) else 512
    return known or default * _MIB
