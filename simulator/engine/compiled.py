"""Compiled by numba where it is installed; elsewhere the same functions run interpreted, with the same bits.

Importing numba takes 0.17 s and compiling seconds, so only long runs ask for it. What was compiled is kept in the
user's cache folder, in a folder of its own for each version of these files: numba itself would not notice that a
function in another file has changed. Where no such folder can be written, every process compiles anew.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

Function = Callable[..., Any]


@cache
def compiled(function: Function, helpers: tuple[Function, ...] = ()) -> Function:
    """The function compiled, with the helpers that it calls; or as it is where numba is not installed."""
    try:
        from numba import njit
    except ImportError:
        return function
    for helper in helpers:
        _let_compiled_code_call(helper)
    with _cache_folder() as folder:
        found: Function = njit(cache=folder is not None)(function)
    return found


@cache
def _let_compiled_code_call(helper: Function) -> None:
    from numba.extending import register_jitable

    register_jitable(helper)


@contextmanager
def _cache_folder() -> Iterator[Path | None]:
    """Inside, numba decides to keep what it compiles in this folder; None if it cannot be written."""
    from numba.core import config

    before = config.CACHE_DIR
    try:
        folder = Path(before or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "runcast" / _version()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home
        yield None
        return
    config.CACHE_DIR = str(folder)
    try:
        yield folder
    finally:
        config.CACHE_DIR = before


def _version() -> str:
    """Of the files in this folder."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
