"""Compiled by numba where it is installed; elsewhere the same functions run interpreted, with the same bits.

Importing numba and loading compiled code takes 0.4 s, compiling 5 s, so `Pace` says when that pays. What was compiled
is kept in the user's cache folder, in a folder of its own for each version of these files, as numba would not notice
that a function in another file has changed. Where no such folder can be written, every process compiles anew.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

Function = Callable[..., Any]
_LOADING_S = 0.4
_COMPILING_S = 1.5  # less than it takes: later processes gain too


@cache
def compile_numba(function: Function, helpers: tuple[Function, ...] = ()) -> Function:
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
    from numba.extending import overload, register_jitable

    if helper is column:
        overload(column)(_array_column)
    elif helper is drop_owners:
        _let_go_of_owners()
    else:
        register_jitable(forceinline=True)(helper)


def column(length: int, value: Any) -> Any:
    """So many times a value: a list, which interpreted code reads faster; in compiled code an array, for its sake."""
    return [value] * length


def _array_column(length: Any, value: Any) -> Any:
    def make(length: Any, value: Any) -> Any:
        return np.full(length, value)

    return make


def drop_owners(columns: Any) -> Any:
    """The same arrays; compiled code does not count who refers to them, which takes longer than what it does with them.

    They must live as long as it runs, as arguments do.
    """
    return columns


def _let_go_of_owners() -> None:
    """Teach numba `unowned`: an array without `meminfo` belongs to nobody, so that there is nothing to count."""
    from numba.core import types
    from numba.extending import intrinsic, overload

    def without(context: Any, builder: Any, kind: Any, value: Any) -> Any:
        if isinstance(kind, types.Array):
            array = context.make_array(kind)(context, builder, value)
            array.meminfo = array.meminfo.type(None)
            return array._getvalue()
        if isinstance(kind, types.containers.BaseTuple):
            for i, of in enumerate(kind):
                one = without(context, builder, of, builder.extract_value(value, i))
                value = builder.insert_value(value, one, i)
        return value

    @intrinsic
    def let_go(_typing: Any, columns: Any) -> Any:
        return columns(columns), lambda context, builder, _, args: without(context, builder, columns, args[0])

    overload(drop_owners)(lambda columns: lambda columns: let_go(columns))


class Pace:
    """The seconds that a process has spent interpreting: when they exceed what compiled code costs, it is worth it."""

    def __init__(self) -> None:
        self._spent_s = 0.0

    def pays(self, function: Function, seconds: float) -> bool:
        """Whether to compile the function, instead of interpreting it for about these seconds once more."""
        self._spent_s += seconds
        return self._spent_s > _COMPILING_S or (self._spent_s > _LOADING_S and _is_kept(function))


@cache
def pace() -> Pace:
    """That of the process, beside what it has compiled: it decides how soon results are there, not what they are."""
    return Pace()


@cache
def _is_kept(function: Function) -> bool:
    """Whether an earlier process has compiled the function."""
    folder = _folder()
    return folder is not None and any(folder.rglob(f"*.{function.__qualname__}-*.nbi"))


@contextmanager
def _cache_folder() -> Iterator[Path | None]:
    """Inside, numba decides to keep what it compiles in this folder; None if it cannot be written."""
    from numba.core import config

    before, folder = config.CACHE_DIR, _folder()
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            config.CACHE_DIR = str(folder)
    except OSError:
        folder = None
    try:
        yield folder
    finally:
        config.CACHE_DIR = before


def _folder() -> Path | None:
    """Where compiled code of this version is kept; None if the user has no home."""
    given = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(given or Path.home() / ".cache") / "runcast" / _version()
    except RuntimeError:
        return None


@cache
def _version() -> str:
    """Of the files in this folder."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
