"""Functions compiled by numba if it is installed; otherwise they run interpreted, with the same bits.

To import numba and load compiled code takes 0.3 s, to compile 5 s; `Pace` decides when that pays. Compiled code is kept
in the user's cache folder, in a separate folder for each version of these files, because numba does not notice changes
of functions in other files. If no such folder can be written, every process compiles again.
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
_LOADING_S = 0.3
_COMPILING_S = 1.5  # less than compiling takes, because later processes gain too


@cache
def compile_numba(function: Function, helpers: tuple[Function, ...] = ()) -> Function:
    """The compiled function, with the helpers that it calls; the plain function if numba is not installed."""
    try:
        from numba import njit
    except ImportError:
        return function
    _import_arrays_without_blas()
    for helper in helpers:
        _let_compiled_code_call(helper)
    with _cache_folder() as folder:
        found: Function = njit(cache=folder is not None)(function)
    return found


def _import_arrays_without_blas() -> None:
    """Import numba's arrays without scipy's BLAS. Importing that takes 0.12 s, and no loop of ours calls it.

    Numba asks for BLAS once when it imports its arrays, and again when it compiles a function that needs it.
    """
    from numba.np import linalg

    if not hasattr(linalg, "ensure_blas"):  # it is no public name
        return
    ensure_blas = linalg.ensure_blas
    linalg.ensure_blas = lambda: None
    try:
        import numba.np.arraymath  # noqa: F401
    finally:
        linalg.ensure_blas = ensure_blas


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
    """A column of `length` equal values: a list in interpreted code, which reads lists faster; else an array."""
    return [value] * length


def _array_column(length: Any, value: Any) -> Any:
    def make(length: Any, value: Any) -> Any:
        return np.full(length, value)

    return make


def drop_owners(columns: Any) -> Any:
    """The same arrays without reference counts in compiled code; counting takes longer than the work itself.

    The caller must keep them alive during the call, as it does with arguments.
    """
    return columns


def _let_go_of_owners() -> None:
    """Define `drop_owners` for numba: an array without `meminfo` has no owner, so references are not counted."""
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
    """Counts the seconds that a process spends in interpreted loops, to decide when compiling pays."""

    def __init__(self) -> None:
        self._spent_s = 0.0

    def pays(self, function: Function, seconds: float) -> bool:
        """Whether to compile a function, given about how many seconds its next interpreted run would take."""
        self._spent_s += seconds
        return self._spent_s > _COMPILING_S or (self._spent_s > _LOADING_S and _is_kept(function))


@cache
def pace() -> Pace:
    """The Pace of this process. Global state, but it changes only how fast results come, not the results."""
    return Pace()


@cache
def _is_kept(function: Function) -> bool:
    """Whether an earlier process has compiled the function and kept the code."""
    folder = _folder()
    return folder is not None and any(folder.rglob(f"*.{function.__qualname__}-*.nbi"))


@contextmanager
def _cache_folder() -> Iterator[Path | None]:
    """Within this context numba keeps compiled code in this folder; None if it cannot be written."""
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
    """The folder for compiled code of this version; None if the user has no home folder."""
    given = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(given or Path.home() / ".cache") / "runcast" / _version()
    except RuntimeError:
        return None


@cache
def _version() -> str:
    """A hash of the source files in this folder."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
