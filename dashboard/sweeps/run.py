"""Starting a small sweep from the browser: what is asked, checked; run in a folder of ours; stopped by a mark there.

It runs in a process of its own, so what is asked are plain values. Names are looked up, and a folder's name is checked
before it is joined to a path.
"""

import fcntl
import re
import sqlite3
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any

from ...simulator.answers.sweep import Progress, Sweep, Swept, load_sweep, run_sweep
from ...simulator.base.errors import UserError, fault, unknown
from ...simulator.base.files import parse_toml, write_atomic
from ...simulator.runner import Runner
from ...simulator.scenario import to_toml
from ..library import Library
from ..question import Question

MOST_POINTS = 200
"""Of a sweep that is started here; larger ones are for the command line."""
FILE = "sweep.toml"
"""What a sweep with axes of one's own is written to, beside its results."""
STOP = "stop"
"""An empty file by which a sweep under way is told to end with what is done."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")


@dataclass(frozen=True)
class SweepRequest:
    """A sweep to start: a shipped one by name, or (`shipped` empty) axes over a scenario of the library.

    `axes` are pairs of a key and its values as they were typed: `2, 4, 8`. `name` is that of the folder.
    """

    name: str
    shipped: str = ""
    base: str = ""
    axes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class SweepState:
    """How far a sweep is: how many of its points are done, and whether a process is at work on the others."""

    done: int
    total: int
    at_work: bool

    def text(self, name: str) -> str:
        """The state of the run as one line."""
        if self.at_work:
            return f"{name}: {self.done} of {self.total} points"
        if self.done < self.total:
            return f"{name}: stopped with {self.done} of {self.total} points; Start goes on"
        return f"{name}: {self.total} points"


@cache
def ready_sweeps() -> Mapping[str, Sweep]:
    """Shipped sweeps that are small enough, by the name of their file."""
    found = {}
    for file in sorted((files("runcast.data") / "sweeps").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml") and len(sweep := load_sweep(Path(str(file)))) <= MOST_POINTS:
            found[file.name.removesuffix(".toml")] = sweep
    return found


def folder_of(home: Path, name: str) -> Path:
    """The folder of a sweep of this name.

    Raises:
        UserError: the name might lead elsewhere.
    """
    if not _NAME.fullmatch(name):
        raise UserError(fault("sweep", "name", name, "expected letters, digits, - and _, at most 60"))
    return home / name


def progress_of(home: Path, name: str) -> SweepState | None:
    """How far the sweep of this name is; None where there is none."""
    folder = home / name
    if not _NAME.fullmatch(name) or not (folder / "state.sqlite").is_file():
        return None
    try:
        with open_state(folder) as database:
            (total,) = database.execute("SELECT value FROM sweep WHERE key = 'points'").fetchone()
            (done,) = database.execute("SELECT count(*) FROM points").fetchone()
    except (sqlite3.Error, TypeError):  # it is being made, or is another program's
        return None
    return SweepState(done, int(total), _at_work(folder))


def open_state(folder: Path) -> "closing[sqlite3.Connection]":
    """The database of a sweep's folder, to be read alone.

    Raises:
        sqlite3.Error: there is none that can be opened.
    """
    place = (folder / "state.sqlite").resolve().as_uri()  # its quoting lets a folder be named `my#1`
    return closing(sqlite3.connect(f"{place}?mode=ro", uri=True))


def _at_work(folder: Path) -> bool:
    """Whether a process holds the folder: the system frees the lock of one that died."""
    try:
        with (folder / "lock").open(encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:  # no lock was ever made here
        return False


def run(library: Library, home: Path, asked: SweepRequest, runner: Runner, watch: Callable[[Progress], None]) -> Swept:
    """Run a sweep in its folder, or what is not done yet of it, until it is done or `stop` is called for it.

    It can be stopped from when `watch` is first called.

    Raises:
        UserError: what is asked is not allowed, or its folder is at work or holds another sweep.
    """
    folder = folder_of(home, asked.name)
    if asked.shipped:
        if asked.shipped not in ready_sweeps():
            raise unknown("sweep", "sweep", asked.shipped, ready_sweeps())
        sweep = ready_sweeps()[asked.shipped]
    else:
        sweep = _own(library, folder, asked)

    begun = False

    def watch_marks(progress: Progress) -> None:
        nonlocal begun
        if not begun:  # the folder is ours from now on, so a mark in it was for a sweep before
            (folder / STOP).unlink(missing_ok=True)
            begun = True
        watch(progress)
        if (folder / STOP).exists():
            (folder / STOP).unlink()
            raise KeyboardInterrupt

    with _reword_faults(folder):
        return run_sweep(sweep, folder, runner, watch_marks)


def stop(home: Path, name: str) -> None:
    """Have a sweep that is under way end soon; what is done is kept.

    Raises:
        UserError: the name is none.
    """
    folder = folder_of(home, name)
    if folder.is_dir():
        (folder / STOP).touch()


def _own(library: Library, folder: Path, asked: SweepRequest) -> Sweep:
    """The sweep of typed axes, written to its folder so that a command can run it again.

    The file is left there only if it is a sweep, or was there before.
    """
    known = library.scenarios()
    if asked.base not in known:
        raise unknown("sweep", "base", asked.base, known)
    axes: list[dict[str, Any]] = [{"key": key, "values": values(key, text)} for key, text in asked.axes if key or text]
    for axis in axes:
        for value in axis["values"]:
            Question(asked.base).change({axis["key"]: value})  # refuses names of files
    table = {"name": asked.name, "base": str(Path(str(known[asked.base])).resolve()), "axes": axes}
    data, place = to_toml(table).encode(), folder / FILE
    fresh, new = not folder.exists(), not place.exists()
    if (new and (folder / "state.sqlite").exists()) or (not new and place.read_bytes() != data):
        raise UserError(fault("sweep", "name", asked.name, "holds another sweep; give another name"))
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(place, data)
    try:
        with _reword_faults(place):
            sweep = load_sweep(place)
        if len(sweep) > MOST_POINTS:
            allowed = f"at most {MOST_POINTS} points here; `runcast sweep` takes more"
            raise UserError(fault("sweep", "axes", len(sweep), allowed))
        return sweep
    except UserError:
        if new:
            place.unlink()
        if fresh:
            folder.rmdir()
        raise


@contextmanager
def _reword_faults(place: Path) -> Iterator[None]:
    """Inside it faults are told to somebody who sees no file and no option."""
    try:
        yield
    except UserError as error:
        lines = [
            line.replace(str(place), "sweep").replace("give another --out", "choose another name")
            for line in error.faults
        ]
        raise UserError(*lines) from None


def values(key: str, text: str) -> list[Any]:
    """Typed values of an axis: TOML without its brackets, or words between commas (`2 GiB, 4 GiB`).

    Raises:
        UserError: no key, no value, or a value that no scenario has, such as a date.
    """
    if not key.strip() or not text.strip():
        raise UserError(fault("sweep", "axes", f"{key}: {text}", "expected a key and its values"))
    try:
        found: list[Any] = parse_toml(f"values = [{text}]")["values"]
    except tomllib.TOMLDecodeError:
        found = [word.strip() for word in text.split(",") if word.strip()]
    inner = list(_leaves(found))
    if any(isinstance(value, float) and not isfinite(value) for value in inner):
        raise UserError(fault("sweep", "axes", f"{key}: {text}", "expected finite numbers"))
    if not found or any(not isinstance(value, bool | int | float | str) for value in inner):
        raise UserError(fault("sweep", "axes", f"{key}: {text}", "expected numbers, texts, lists or tables"))
    return found


def _leaves(value: Any) -> Iterator[Any]:
    """What stands inside of lists and tables."""
    if not isinstance(value, list | dict):
        yield value
        return
    for inner in value.values() if isinstance(value, dict) else value:
        yield from _leaves(inner)
