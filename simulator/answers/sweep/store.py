"""What a sweep has done so far, on disk: `state.sqlite` holds every finished point with its row, and is the truth.

A chunk of points is one transaction, so a process that is killed leaves whole points or none. The write-ahead log lets
others read meanwhile. Only one process at a time may hold a folder: the system frees the lock of one that died.
"""

import fcntl
import json
import os
import socket
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any, get_args

from ...base.errors import UserError
from .plan import Outcome, Status, Sweep

_PRAGMAS = """
PRAGMA journal_mode=WAL;
PRAGMA synchronous=NORMAL; -- a power cut may lose the last transactions, never more
"""
_TABLES = """
CREATE TABLE IF NOT EXISTS sweep (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS points (
    number INTEGER PRIMARY KEY, asked TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL,
    hash TEXT NOT NULL, seconds REAL NOT NULL, report TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS points_by_asked ON points (asked);
CREATE TEMP TABLE IF NOT EXISTS claimed (asked TEXT PRIMARY KEY) WITHOUT ROWID;
"""
_DAMAGED = "CASE WHEN json_valid(report) THEN json_type(report) <> 'object' ELSE 1 END"
"""Of a row that something else has written over: it is forgotten, and its point computed again."""
_OF_DISK = ("CANTOPEN", "READONLY", "FULL", "IOERR", "BUSY", "LOCKED", "PERM", "NOLFS")
"""How SQLite names faults of the disk and of those who share it; others are faults of the file."""
_CHECKED = 10_000  # rows that are compared with the sweep when a folder is taken up again; of more, evenly spaced ones
_BLOCK = 1024  # numbers that are looked up at once


class Store:
    """The folder of a sweep while one process works on it; `with` its database, changes are made all or not at all."""

    def __init__(self, folder: Path, database: sqlite3.Connection):
        self.folder, self._database = folder, database

    @classmethod
    @contextmanager
    def open(cls, folder: Path, sweep: Sweep) -> Iterator["Store"]:
        """The folder of this sweep, made or taken up again.

        A UserError if it cannot be written, another process works on it, or it holds another sweep or other files.
        """
        with disk_faults(folder, OSError):
            _check_free(folder, Path(sweep.where))
            folder.mkdir(parents=True, exist_ok=True)
            lock = _locked(folder)
        try:
            with disk_faults(folder), closing(_connect(folder)) as database:
                store = cls(folder, database)
                store._own(sweep)
                store._check_rows(sweep)
                with disk_faults(folder, OSError):  # say in the lock file who holds it
                    lock.truncate(0)
                    lock.write(f"process {os.getpid()} on {socket.gethostname()}\n")
                    lock.flush()
                yield store
        finally:
            lock.close()

    def record(self, outcomes: Sequence[Outcome]) -> None:
        """Keep what became of points, all or nothing."""
        rows = [
            (one.number, one.asked, one.status, one.reason, one.hash, one.spent_s, json.dumps(dict(one.row)))
            for one in outcomes
        ]
        with self._database:
            self._database.executemany("INSERT OR IGNORE INTO points VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def open_numbers(self, total: int) -> Iterator[int]:
        """Numbers of points that are not done, in order."""
        for first in range(0, total, _BLOCK):
            block = range(first, min(first + _BLOCK, total))
            query = "SELECT number FROM points WHERE number BETWEEN ? AND ?"
            done = {number for (number,) in self._database.execute(query, (block[0], block[-1]))}
            yield from (number for number in block if number not in done)

    def copy_result(self, number: int, asked: str) -> bool:
        """Whether another point asked the same and is done; this one is then done too."""
        columns = "SELECT ?, asked, status, reason, hash, 0, report FROM points WHERE asked = ? LIMIT 1"
        with self._database:
            return self._database.execute(f"INSERT INTO points {columns}", (number, asked)).rowcount == 1

    def claim(self, asked: str) -> bool:
        """Whether this process has asked for this already; it has now."""
        with self._database:
            return self._database.execute("INSERT OR IGNORE INTO claimed VALUES (?)", (asked,)).rowcount == 0

    def reopen(self, status: Status) -> None:
        """Forget the outcomes of this status: their points are to be computed again."""
        with self._database:
            self._database.execute("DELETE FROM points WHERE status = ?", (status,))

    def counts(self) -> dict[str, int]:
        """The number of finished points by status."""
        return dict(self._database.execute("SELECT status, count(*) FROM points GROUP BY status ORDER BY status"))

    def rows(self) -> Iterator[tuple[int, str, str, str, dict[str, Any]]]:
        """Number, status, reason, hash and flat report of every point that is done, in order of their numbers."""
        query = "SELECT number, status, reason, hash, report FROM points ORDER BY number"
        for number, status, reason, hash_, report in self._database.execute(query):
            yield number, status, reason, hash_, json.loads(report)

    def report(self, number: int) -> dict[str, Any]:
        """The flat report of a point that is done."""
        query = "SELECT report FROM points WHERE number = ?"
        (found,) = self._database.execute(query, (number,)).fetchone()
        flat: dict[str, Any] = json.loads(found)
        return flat

    def _own(self, sweep: Sweep) -> None:
        """Note whose folder this is; a UserError if it is another sweep's, or the file is another program's."""
        tables = {name for (name,) in self._database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables and "sweep" not in tables:
            raise _taken(self.folder, "state.sqlite")
        self._database.executescript(_PRAGMAS + _TABLES)
        with self._database:
            self._database.execute(f"DELETE FROM points WHERE {_DAMAGED}")
        held = defaultdict(lambda: "unknown", self._database.execute("SELECT key, value FROM sweep"))
        if held and held["digest"] != sweep.digest:
            whose = f"{held['name']!r} of {held['file']} ({held['points']} points)"
            raise UserError(
                f"{self.folder}: holds another sweep, {whose}, or that one with another base, axes, constraints, "
                "version of runcast or files that these name; give another --out"
            )
        if not held:
            said = {"digest": sweep.digest, "name": sweep.name, "file": sweep.where, "points": str(len(sweep))}
            with self._database:
                self._database.executemany("INSERT INTO sweep VALUES (?, ?)", said.items())

    def _check_rows(self, sweep: Sweep) -> None:
        """A UserError for a row that is no point of the sweep, or asks what that point does not."""
        (many,) = self._database.execute("SELECT count(*) FROM points").fetchone()
        known = ", ".join(f"'{status}'" for status in get_args(Status))
        odd = f"status NOT IN ({known}) OR number NOT BETWEEN 0 AND {len(sweep) - 1}"
        query = f"SELECT number, asked, {odd} FROM points WHERE number % {max(1, many // _CHECKED)} = 0 OR {odd}"
        for number, asked, is_odd in self._database.execute(query):
            if is_odd or sweep.point(number).asked != asked:
                raise UserError(
                    f"{self.folder}: state.sqlite: row {number} is no point of this sweep; remove the folder, or give "
                    "another --out"
                )


def _connect(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / "state.sqlite", isolation_level="IMMEDIATE", timeout=10)


def _check_free(folder: Path, sweep_file: Path) -> None:
    """A UserError if files of others lie where a sweep writes; its own file may, and an empty one, such as a lock."""
    if not folder.is_dir() or (folder / "state.sqlite").exists():
        return
    for entry in sorted(folder.iterdir()):
        if not entry.is_file() or (entry.stat().st_size and entry.resolve() != sweep_file.resolve()):
            raise _taken(folder, entry.name)


def _taken(folder: Path, name: str) -> UserError:
    return UserError(f"{folder}: holds {name}, which is no sweep's; give another --out")


def _locked(folder: Path) -> IO[str]:
    """The folder's lock file, locked; a UserError if another process holds it."""
    lock = (folder / "lock").open("a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = " ".join(lock.read().split()) or "it just began"
        lock.close()
        raise UserError(f"{folder}: another sweep is at work here ({holder}); wait, or give another --out") from None
    return lock


@contextmanager
def disk_faults(folder: Path, kinds: type[Exception] = sqlite3.DatabaseError) -> Iterator[None]:
    """Turn errors of the disk into a UserError of one line."""
    try:
        yield
    except kinds as error:
        why = error.strerror if isinstance(error, OSError) else None
        name = getattr(error, "sqlite_errorname", "")
        if name and not name.removeprefix("SQLITE_").startswith(_OF_DISK):
            way_out = "remove the folder, or give another --out"
            raise UserError(f"{folder}: state.sqlite is damaged ({error}); {way_out}") from error
        kept = "; what is finished is kept" if os.path.exists(folder / "state.sqlite") else ""
        raise UserError(f"{folder}: cannot be written: {why or error}{kept}") from error
