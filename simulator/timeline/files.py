"""Writing result files: whole or not at all. What goes into them is decided elsewhere."""

import gzip
import os
from pathlib import Path

from ..errors import UserError


def write_atomic(path: Path | str, data: bytes) -> None:
    """Write a file under a temporary name beside its place, then move it there; devices and pipes are written to.

    Raises:
        UserError: the folder does not exist, the path is a folder, or it cannot be written.
    """
    place = Path(path).resolve()
    if place.is_dir():
        raise UserError(f"{path}: is a folder, but a file is to be written")
    if not place.parent.is_dir():
        raise UserError(f"{path}: cannot be written, there is no folder {place.parent}")
    try:
        _replace(place, data) if place.is_file() or not place.exists() else place.write_bytes(data)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error


def write_by_suffix(path: Path | str, data: bytes) -> None:
    """Write atomically, compressed if the name ends in `.gz`; equal data give equal bytes."""
    write_atomic(path, gzip.compress(data, mtime=0) if Path(path).suffix == ".gz" else data)


def _replace(place: Path, data: bytes) -> None:
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, place)
    finally:
        temporary.unlink(missing_ok=True)
