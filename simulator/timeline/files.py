"""Writing result files: whole or not at all. What goes into them is decided elsewhere."""

import errno
import gzip
import os
from pathlib import Path

from ..errors import UserError


def write_atomic(path: Path | str, data: bytes) -> None:
    """Write a file under a temporary name beside its place, then move it there; devices and pipes are written to.

    Raises:
        UserError: the folder does not exist, the path is a folder, or it cannot be written.
    """
    try:
        _write(Path(path).resolve(), data)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error


def write_by_suffix(path: Path | str, data: bytes) -> None:
    """Write atomically, compressed if the name ends in `.gz`; equal data give equal bytes."""
    write_atomic(path, gzip.compress(data, mtime=0) if Path(path).suffix == ".gz" else data)


def _write(place: Path, data: bytes) -> None:
    if place.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not place.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"there is no folder {place.parent}")
    write = _replace if place.is_file() or not place.exists() else Path.write_bytes
    write(place, data)


def _replace(place: Path, data: bytes) -> None:
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, place)
    finally:
        temporary.unlink(missing_ok=True)
