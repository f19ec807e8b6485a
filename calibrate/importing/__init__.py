"""Logs of benchmarks that others have run, as samples: nccl-tests, rccl-tests, nvbandwidth and perftest, text and JSON.

Which tool wrote a file shows in its content, and a text may hold several tools' output. Only numbers, sizes and the
names of GPUs and libraries are taken: hosts, addresses, command lines and the environment that some logs hold are read
past and never stored.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from ...simulator.base.errors import UserError
from ...simulator.base.files import read_text
from ...simulator.formats.samples import Samples, join_samples
from . import nccl, nvbandwidth, perftest
from .log import Found, clean_lines
from .options import Network, Options

__all__ = ["Network", "Options", "import_logs"]

_KNOWN = "nccl-tests or rccl-tests, nvbandwidth, perftest, each as text or JSON"


def import_logs(paths: Iterable[Path | str], options: Options) -> Samples:
    """Samples of all logs, with a line for each reason why rows were left out.

    Raises:
        UserError: a file cannot be read, is of no known format or holds no usable row, or something is in neither the
            log nor the options; with file, and line where one is known.
    """
    return join_samples([_read(Path(path), options) for path in paths])


def _read(path: Path, options: Options) -> Samples:
    text = read_text(path, "a log")
    found = Found(str(path))
    if text.lstrip().startswith("{"):  # all that these tools write is a table
        _read_json(path, text, found, options)
    else:
        _read_text(text, found, options)
    return found.samples()


def _read_json(path: Path, text: str, found: Found, options: Options) -> None:
    try:
        root = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: is not JSON: {error.msg}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, or brackets without end
        raise UserError(f"{path}: is not JSON of any of the tools") from None
    for reader in (nvbandwidth, perftest, nccl):
        if reader.holds_json(root):
            return reader.read_json(root, found, options)
    raise UserError(f"{path}: is a log of no known tool; known: {_KNOWN}")


def _read_text(text: str, found: Found, options: Options) -> None:
    lines = clean_lines(text)
    readers = [reader for reader in (nccl, nvbandwidth, perftest) if reader.holds_text(lines)]
    if not readers:
        raise UserError(f"{found.file}: is a log of no known tool; known: {_KNOWN}")
    for reader in readers:
        reader.read_text(lines, found, options)
