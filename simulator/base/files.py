"""Files of the user's: read with one line for whatever is wrong, found beside the file that names them, written whole.

What stands in a file is its reader's business, what goes into one its writer's; plain values become TOML here, which
reads back as the same values.
"""

import codecs
import errno
import gzip
import hashlib
import io
import json
import os
import select
import stat
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO, Any

from .errors import Fault, UserError, fault
from .shipped import shipped
from .units import format_bytes

MOST_BYTES = 2**28
"""Larger files are refused, packed or not, unless their reader says what is the most."""
MOST_SETTINGS = 2**22
"""Bytes of a file that people write (TOML, recipes), whose parsers take a second for a megabyte, at most."""
MOST_JSON = 2**25
"""Bytes of a JSON file at most, unless it is a trace or a log."""
MOST_LEVELS = 100
"""Tables in tables: dotted keys nest without end, and what looks through a table calls itself for each level."""
_DEEP = f"tables or lists are more than {MOST_LEVELS} levels deep in each other"
_LINE = 32
"""As many lines as there would be if each had so many bytes and the file were as large as it may be: no more."""
_MOST_DIGITS = 1000
_SMALL_BYTES, _MOST_TIMES = 2**24, 100
"""What unpacks to more bytes may be so many times as large as its file. Our own traces unpack to 10 to 13 times."""
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""How a text starts that PowerShell's `>` or a spreadsheet's "Unicode text" has written."""
_DIGITS_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
WAIT_FOR_PIPE_S = 60.0
"""Seconds until a pipe that gives nothing is given up."""


def read_toml(path: Traversable) -> dict[str, Any]:
    """A TOML file as plain values; a UserError of one line if it cannot be read or is not TOML."""
    table: dict[str, Any] = _parse(path, "TOML", parse_toml, MOST_SETTINGS)
    return table


def parse_toml(text: str) -> dict[str, Any]:
    """TOML as plain values; a TOMLDecodeError for what is none, or nests more than `MOST_LEVELS` deep."""
    try:
        table = tomllib.loads(text)
        check_levels(table)
    except RecursionError:
        raise tomllib.TOMLDecodeError(_DEEP) from None
    return table


def check_levels(value: Any) -> None:
    """A RecursionError for tables and lists that are more than `MOST_LEVELS` deep in each other."""
    level = [[value]]
    for _ in range(MOST_LEVELS + 1):
        inside = (one for some in level for one in some if isinstance(one, dict | list))
        level = [list(one.values()) if isinstance(one, dict) else one for one in inside]
    if level:
        raise RecursionError(_DEEP)


def read_json(path: Traversable) -> Any:
    """The content of a JSON file; a UserError of one line if it cannot be read or is not JSON."""
    return _parse(path, "JSON", json.loads, MOST_JSON)


def read_text(path: Traversable, expected: str = "a text file", most_bytes: int = MOST_BYTES) -> str:
    """A text in UTF-8, or in UTF-16 with a byte-order mark; unpacked if it is a gzip file, and without that mark.

    A UserError of one line if it is none, or holds more than `most_bytes` or too many lines.
    """
    try:
        data = _read(path, most_bytes)
        text = data
        if data[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(data)) as packed:
                text = packed.read(most_bytes + 1)
        _check(path, text, most_bytes)
        if text[:2] in _UTF_16:
            text = text.decode("utf-16").encode()
            _check(path, text, most_bytes)
        if len(text) > max(_MOST_TIMES * len(data), _SMALL_BYTES):
            raise UserError(f"{path}: unpacks to more than {_MOST_TIMES} times its size, the most that is read")
        return text.decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder; expected {expected}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not text; expected {expected}") from None
    except UserError:
        raise
    except (OSError, EOFError, zlib.error, ValueError) as error:  # ValueError: a name that no file can have
        raise UserError(f"{path}: cannot read: {_one_line(error)}") from None


def _read(path: Traversable, most_bytes: int) -> bytes:
    """The bytes of a file, or one more than it may have."""
    with open(path, "rb", opener=_open) if isinstance(path, Path) else path.open("rb") as file:
        data: bytes = file.read(most_bytes + 1)
        return data


def _open(path: str, flags: int) -> int:
    """Open a file; an OSError for a pipe into which nothing comes for a while, where `open` would wait for ever."""
    file = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISFIFO(os.fstat(file).st_mode) and not any(select.select([file], [], [], WAIT_FOR_PIPE_S)):
        os.close(file)
        raise OSError(errno.EPIPE, f"nothing came through this pipe for {WAIT_FOR_PIPE_S:g} s")
    os.set_blocking(file, True)
    return file


def _check(path: Traversable, data: bytes, most_bytes: int) -> None:
    """A UserError for more than is read, or a number that Python refuses to read."""
    if len(data) > most_bytes:
        raise UserError(f"{path}: holds more than {format_bytes(most_bytes)}, the most that is read")
    if data.count(b"\n") > (most := most_bytes // _LINE):
        raise UserError(f"{path}: holds more than {most:,} lines, the most that are read")
    if b"0" * _MOST_DIGITS in data.translate(_DIGITS_AS_ZEROS):
        raise UserError(f"{path}: holds a number of more than {_MOST_DIGITS:,} digits")


def path_beside(name: str, where: str) -> Path:
    """The place of a file that a user names in `where`: beside it if that is a file, else in the working folder.

    `where` may be the name of a shipped scenario. What is not beside it may still be in the working folder, so that
    both ways of writing a path work. What is in neither is looked for beside files of the user's own alone.
    """
    own = os.path.isfile(where)
    home = Path(where) if own else shipped().get(where)
    path = Path(name) if home is None else home.parent / name
    return path if os.path.exists(path) or (own and not os.path.exists(name)) else Path(name)


def find_beside(name: str, where: str, key: str) -> Path:
    """The place of a file or folder that a key of `where` names (`path_beside`); a UserError if nothing is there."""
    path = path_beside(name, where)
    if not os.path.exists(path):
        raise UserError(missing_file(name, path, where, key))
    return path


def missing_file(name: str, path: Path, where: str, key: str) -> Fault:
    """The line for a key that names a file which is not there, with the place where it was looked for."""
    return fault(where, key, name, f"no such file: {path.absolute()}")


def name_beside(name: str, file: Path) -> str:
    """How `file` names another one (`path_beside`): a shipped one by its name, else by the path from its folder."""
    return os.path.relpath(name, file.resolve().parent) if name.endswith((".json", ".toml")) else name


def digest(path: Path) -> str:
    """SHA-256 of a file in hexadecimal, by which its bytes are known again; a UserError for a device or a pipe."""
    if not (path.is_file() or path.is_dir()) and path.exists():
        raise UserError(f"{path}: is a device or a pipe; expected a file, which can be read twice")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_once(paths: Sequence[Path]) -> None:
    """Raise UserError if a file is named twice, or two hold the same, packed or not: their rows would count twice."""
    places = [path.resolve() for path in paths]
    contents: dict[str, Path] = {}
    for at, path in enumerate(paths):
        if places[at] in places[:at]:
            raise UserError(f"{path}: is named twice")
        content = _unpacked_digest(path) if len(paths) > 1 else ""
        if content and (twin := contents.setdefault(content, path)) is not path:
            raise UserError(f"{path}: holds the same as {twin}, which is named too")


def _unpacked_digest(path: Path) -> str:
    """SHA-256 of what a file holds, unpacked; empty for one that holds nothing or cannot be read, and for a pipe."""
    try:
        if not path.is_file() or not path.stat().st_size:
            return ""
        with path.open("rb") as file:
            data = file.read(MOST_BYTES)
        if data[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(data)) as packed:
                data = packed.read(MOST_BYTES)
    except (OSError, EOFError, zlib.error, ValueError):  # its reader says what is wrong
        return ""
    return hashlib.sha256(data).hexdigest()


def write_atomic(path: Path | str, data: bytes) -> None:
    """Write a file under a temporary name beside its place, then move it there; devices and pipes are written to.

    A UserError if the folder does not exist, the path is a folder, or it cannot be written.
    """
    try:
        place = _place(path)
        if Path(path).exists() and not place.is_file():
            Path(path).write_bytes(data)
            return
        with replace_whole(place) as file:
            file.write(data)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error


def check_place(path: Path | str) -> None:
    """Raise a UserError if a file cannot be written there: its folder does not exist, or the path is a folder."""
    try:
        _place(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None


def _place(path: Path | str) -> Path:
    """The full path; an OSError if it is a folder, or is in none."""
    place = Path(path).resolve()
    if place.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not place.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"there is no folder {place.parent}")
    return place


@contextmanager
def replace_whole(place: Path) -> Iterator[IO[bytes]]:
    """A new file that takes its place when it is whole."""
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
        os.replace(temporary, place)
    finally:
        temporary.unlink(missing_ok=True)


def write_by_suffix(path: Path | str, data: bytes) -> None:
    """Write atomically, compressed if the name ends in `.gz`; equal data give equal bytes."""
    write_atomic(path, gzip.compress(data, mtime=0) if Path(path).suffix == ".gz" else data)


def _parse(path: Traversable, language: str, parse: Callable[[str], Any], most_bytes: int) -> Any:
    text = read_text(path, f"a {language} file", most_bytes)
    try:
        return parse(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: is not {language}: {_one_line(error)}") from None


def _one_line(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:100]


def to_toml(table: Mapping[str, Any], comments: Iterable[str] = (), *, inline: bool = False) -> str:
    """Comments, values, then tables, what is nested deeper on one line; keys with None are left out.

    With `inline` tables are on one line too, in the order of the keys.
    """
    import tomlkit

    document, sections = tomlkit.document(), tomlkit.document()
    for line in comments:
        document.add(tomlkit.comment(line))
    for key, value in table.items():
        if isinstance(value, Mapping) and not inline:
            sections.add(key, tomlkit.table())
            sections[key].update(_item(value))
        elif value is not None:
            document.add(key, _item(value))
    return "\n".join(text for part in (document, sections) if (text := tomlkit.dumps(part)))


def toml_value(value: Any) -> str:
    """A value as TOML writes it on one line."""
    text: str = _item(value).as_string()
    return text


def _item(value: Any) -> Any:
    """A value as tomlkit has it: tables on one line and without None."""
    import tomlkit

    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        table.update({key: _item(inner) for key, inner in value.items() if inner is not None})
        return table
    if isinstance(value, list | tuple):
        array = tomlkit.array()
        array.extend(_item(inner) for inner in value)
        return array
    return tomlkit.item(value)
