"""The file of records: JSON lines, the environment first, then one record per visit of a case, written as it ends.

A record is `{"group", "case", "params", "round", "library", "cache", "unit": "us", "samples", "flop", "bytes", "wrong",
"cost_class", "features", "together", "more", "began", "took_s"}`, or has an `error` and no samples. Raw samples are
kept; medians and spreads are derived (`statistics`).
"""

import errno
import fcntl
import gzip
import json
import math
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any

from .case import Case, Measurement, identity

Record = Mapping[str, Any]


def record_of(case: Case, visit_round: int, outcome: Measurement | str) -> dict[str, Any]:
    """What one visit says: its measurement, or why there is none."""
    about = {"group": case.family, "case": case.name, "params": dict(case.params), "round": visit_round}
    fault = outcome if isinstance(outcome, str) else _fault(outcome.samples_s)
    if isinstance(outcome, str) or fault:
        return about | {"error": fault}
    return about | {
        "library": case.library,
        "cache": case.cache,
        "unit": "us",
        "samples": [_short(seconds * 1e6) for seconds in outcome.samples_s],
        "flop": case.flop,
        "bytes": case.bytes,
        "wrong": outcome.wrong,
        "cost_class": case.cost_class,
        "features": dict(case.features),
        "together": case.together,
        "more": _short(dict(outcome.more)),
    }


def _fault(samples_s: Sequence[float]) -> str:
    """Why these are no times; empty if they are."""
    strange = [seconds for seconds in samples_s if not 0 <= seconds < math.inf]
    return f"a sample of {strange[0]:g} s is no time" if strange else "" if samples_s else "gave no samples"


def _short(value: Any) -> Any:
    """With five digits, which is more than clocks tell; None for what is no number."""
    if isinstance(value, dict):
        return {name: _short(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_short(entry) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value


def key_of(record: Record) -> str:
    """The case of a record, as `Case.key` has it."""
    return identity(record["group"], record["case"], record.get("params", {}))


def matches(key: str, pattern: str) -> bool:
    """Whether a pattern is this case's family (`gemm`), fits its name (`collectives/all_*`), or its whole key."""
    name = key.partition(" ")[0]
    return pattern == name.partition("/")[0] or fnmatch(name, pattern) or fnmatch(key, pattern)


def visits_in(records: Iterable[Record], failed_too: bool = True) -> set[tuple[str, int]]:
    """Keys and rounds of the visits that a file holds."""
    cases = [record for record in records if "round" in record and (failed_too or "error" not in record)]
    return {(key_of(record), record["round"]) for record in cases}


def read_records(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a file, gzipped or not: a kill may have cut the last one.

    Raises:
        ValueError: another line is no record; one line with file and number.
    """
    lines = _text(path).split("\n")
    records = [_parsed(line, f"{path}:{number}") for number, line in enumerate(lines[:-1], 1) if line.strip()]
    return records


def _text(path: Path) -> str:
    raw = path.read_bytes()
    try:
        return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot read: {error}") from None


def _parsed(line: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where}: is not JSON: {error}") from None
    if not isinstance(record, dict) or "group" not in record:
        raise ValueError(f"{where}: is no record of this suite")
    return record


class Writer:
    """Appends records; what `append` has taken survives a kill.

    Raises:
        ValueError: another run writes this file.
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path):
        self._file: IO[bytes] = _opened(path)

    def append(self, record: Record) -> None:
        """One line, on the disk when this returns."""
        self._file.write((json.dumps(record, allow_nan=False) + "\n").encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """No more records."""
        self._file.close()


def _opened(path: Path) -> IO[bytes]:
    """At the end of the last whole line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+b")
    _lock(file, path)
    file.seek(0)
    whole = file.read().rfind(b"\n") + 1
    file.truncate(whole)
    file.seek(whole)
    return file


def _lock(file: IO[bytes], path: Path) -> None:
    """Until the file is closed; some network file systems know no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(f"{path}: another run is writing it") from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP):
            raise
