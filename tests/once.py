"""What several tests read is made once for a run of pytest, whichever of its processes they are in.

Tests of one file, and those that share a fixture, may be dealt to several workers. The first that asks makes a value;
the others wait for it and read it.
"""

import os
import pickle
from collections.abc import Callable
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import TypeVar

import pytest

Value = TypeVar("Value")


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Value]) -> Value:
    """What `make` returns, given an empty folder of this name that stays until the run is over; it is pickled.

    What raises is made again by the next who asks.
    """
    folder = _shared(factory) / "once" / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        flock(lock, LOCK_EX)  # until it is closed
        made = folder / "made.pickle"
        if not made.exists():
            value = make(_empty(folder))
            made.write_bytes(pickle.dumps(value))
            return value
        found: Value = pickle.loads(made.read_bytes())
        return found


def _shared(factory: pytest.TempPathFactory) -> Path:
    """The folder of all workers of this run."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def _empty(folder: Path) -> Path:
    tries = sum(path.name.startswith("try") for path in folder.iterdir())
    empty = folder / f"try{tries}"
    empty.mkdir()
    return empty
