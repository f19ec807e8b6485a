"""Logs of benchmarks that others have run, as samples: nccl-tests, rccl-tests, nvbandwidth and perftest, text and JSON.

Which tool wrote a file shows in its content, and a text may hold several tools' output. Only numbers, sizes and the
names of GPUs and libraries are taken: hosts, addresses, command lines and the environment that some logs hold are read
past and never stored.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...simulator.base.errors import UserError
from ...simulator.base.files import check_once, read_text
from ...simulator.formats.samples import Samples, join_samples
from . import nccl, nvbandwidth, perftest
from .log import Found, Network, Options, clean_lines, table

__all__ = ["Network", "Options", "import_logs"]

_KNOWN = "nccl-tests or rccl-tests, nvbandwidth, perftest, each as text or JSON"


def import_logs(paths: Iterable[Path | str], options: Options) -> Samples:
    """Samples of all logs, with a line for each reason why rows were left out.

    A UserError, with file and line where one is known, if a file is named twice, cannot be read, is of no known format
    or holds no usable row, or if something is in neither the log nor the options.
    """
    logs = [Path(path) for path in paths]
    check_once(logs)
    return join_samples([_read(log, options) for log in logs])


def _read(path: Path, options: Options) -> Samples:
    text, found = read_text(path, "a log"), Found(str(path), options)
    if _JSON.match(text):
        _read_json(_parsed(path, text), found)
    else:
        lines = clean_lines(text)
        readers = [
            reader
            for reader in (nccl, nvbandwidth, perftest)
            if any(mark.search(line.text) for mark in reader.MARKS for line in lines)
        ]
        if not readers:
            raise UserError(f"{path}: is a log of no known tool; known: {_KNOWN}")
        for reader in readers:
            reader.read_text(lines, found)
    return found.samples()


_JSON = re.compile(r"\s*(?:\{|\[\s*\{)")
"""All that these tools write is a table, or a list of tables; a line of a text may begin with a bracket."""


_BLANKS = re.compile(r"\s*")


def _parsed(path: Path, text: str) -> list[Any]:
    """The JSON values that follow one another in a file."""
    values, decoder, at = list[Any](), json.JSONDecoder(), 0
    try:
        while (at := _BLANKS.match(text, at).end()) < len(text):  # type: ignore[union-attr]  # no blanks match, too
            value, at = decoder.raw_decode(text, at)
            values.append(value)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: is not JSON: {error.msg}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, or brackets without end
        raise UserError(f"{path}: is not JSON of any of the tools") from None
    return values


def _read_json(values: list[Any], found: Found) -> None:
    """Let the tools' readers read all tables of a file, which may stand in lists."""
    tables = [one for value in values for one in (value if isinstance(value, list) else [value])]
    rccl_rows = [(f"[{index}]", one) for index, one in enumerate(tables) if nccl.is_rccl_row(one)]
    nccl.read_rccl(rccl_rows, found)
    for index, one in enumerate(tables):
        if not nccl.is_rccl_row(one):
            _read_table(table(one), found, f"[{index}]." if len(tables) > 1 else "")


def _read_table(root: Mapping[str, Any], found: Found, at: str) -> None:
    """Let the tool's reader read what it has written; `at` is put before the places in it."""
    results = root.get("results")
    if isinstance(root.get("nvbandwidth"), Mapping):
        nvbandwidth.read_json(root["nvbandwidth"], found, at)
    elif "test_info" in root and isinstance(results, Mapping | list):
        perftest.read_json(table(root["test_info"]), results, found, at)
    elif "test_info" not in root and isinstance(results, list):
        nccl.read_json(root, found, at)
    else:
        where = f"{found.file}:{at.rstrip('.')}" if at else found.file
        raise UserError(f"{where}: is a log of no known tool; known: {_KNOWN}")
