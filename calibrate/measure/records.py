"""The file of records: JSON lines, the environment first, then one record per visit of a case, written as it ends.

`Case.record` says what a record holds. Raw samples are kept; medians and spreads are derived (`show`).
"""

import errno
import fcntl
import gzip
import io
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]

_MOST_BYTES = 2**28
"""Of a file of records, packed or not: a full run of the suite writes some ten million."""

_MOST_LINES = _MOST_BYTES // 32


def case_key(family: str, name: str, params: Mapping[str, Any]) -> str:
    """One line that no other case has: `gemm/wgrad m=512 n=4096 k=4096 dtype=bf16`."""
    texts = [f"{param}={f'{value:g}' if isinstance(value, float) else value}" for param, value in params.items()]
    return " ".join([f"{family}/{name}", *texts])


def record_key(record: Record) -> str:
    """The key of the case that a record is of."""
    return case_key(record["group"], record["case"], record.get("params", {}))


def case_order(family: str, name: str, params: Mapping[str, Any]) -> tuple[Any, ...]:
    """What cases are sorted by: family, name, then parameters, sizes as numbers."""
    values = [
        (param, 0, value, "") if isinstance(value, int | float) else (param, 1, 0, str(value))
        for param, value in params.items()
    ]
    return family, name, values


def record_order(record: Record) -> tuple[Any, ...]:
    """What records are sorted by: the order of their cases."""
    return case_order(record["group"], record["case"], record.get("params", {}))


def matches(key: str, pattern: str) -> bool:
    """Whether a pattern is this case's family (`gemm`), fits its name (`collectives/all_*`), or its whole key."""
    name = key.partition(" ")[0]
    return pattern == name.partition("/")[0] or fnmatch(name, pattern) or fnmatch(key, pattern)


def visits_in(records: Iterable[Record], failed_too: bool = True) -> set[tuple[str, int]]:
    """Keys and rounds of the visits that a file holds."""
    cases = [record for record in records if "round" in record and (failed_too or "error" not in record)]
    return {(record_key(record), record["round"]) for record in cases}


def read_records(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a file, gzipped or not: a kill may have cut the last one.

    Raises:
        ValueError: another line is no record; one line with file and number.
    """
    records = []
    for number, line in enumerate(_text(path).split("\n")[:-1], 1):
        if line.strip():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}:{number}: is not JSON: {error}") from None
            if not isinstance(record, dict) or not _is_whole(record):
                raise ValueError(f"{path}:{number}: is no record of this suite")
            records.append(record)
    return records


def _text(path: Path) -> str:
    """What a file holds, unpacked; a ValueError if it is not there, or that is no text, or too much of it."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        if raw[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(raw)) as packed:
                raw = packed.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise ValueError(f"{path}: is too large: at most {_MOST_BYTES >> 20} MiB of records are read")
        if raw.count(b"\n") > _MOST_LINES:
            raise ValueError(f"{path}: is too large: at most {_MOST_LINES:,} lines are read")
        return raw.decode()
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise ValueError(f"{path}: is a folder; expected a file of records") from None
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot read: {error}") from None


def _is_whole(record: Record) -> bool:
    """Whether what is read of a record is there, in the types that `Case.record` writes."""
    if not {"round", "samples"} & record.keys():  # of the environment, whose values are only shown
        return isinstance(record.get("group"), str)
    types = {"group": str, "case": str, "params": dict, "round": int, "samples": list, "cache": str}
    least: Record = {
        "params": {},
        "round": 0,
        "cache": "",
        "samples": [0.0],
        "flop": None,
        "bytes": None,
        "wrong": None,
    }
    filled = {**least, **record}
    samples = filled["samples"] if isinstance(filled["samples"], list) else []
    numbers = [filled[name] for name in ("flop", "bytes", "wrong") if filled[name] is not None] + samples
    return (
        all(isinstance(filled.get(name), kind) for name, kind in types.items())
        and bool({"samples", "error", "left_out"} & record.keys() and samples)
        and all(type(one) in (int, float) and abs(one) < 1e300 for one in numbers)
    )


class Writer:
    """Appends records after the last whole line of a file; what `append` has taken survives a kill.

    Raises:
        ValueError: another run writes this file.
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until the file is closed
        except BlockingIOError:
            raise ValueError(f"{path}: another run is writing it") from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP):  # some network file systems have no locks
                raise
        self._file.seek(0)
        whole = self._file.read().rfind(b"\n") + 1
        self._file.truncate(whole)
        self._file.seek(whole)

    def append(self, record: Record) -> None:
        """One line, on the disk when this returns."""
        self._file.write((json.dumps(record, allow_nan=False) + "\n").encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """No more records."""
        self._file.close()
