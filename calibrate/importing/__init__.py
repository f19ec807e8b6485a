"""Logs of benchmarks that others have run, as samples: nccl-tests, rccl-tests, nvbandwidth and perftest, text and JSON.

Which tool wrote a file shows in its content, and a text may hold several tools' output. Only numbers, sizes and the
names of GPUs and libraries are taken: hosts, addresses, command lines and the environment that some logs hold are read
past and never stored.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...simulator.base.errors import UserError
from ...simulator.base.files import read_text
from ...simulator.formats.samples import Samples, join_samples
from . import nccl, nvbandwidth, perftest
from .log import Found, Network, Options, clean_lines, table

__all__ = ["Network", "Options", "import_logs"]

_KNOWN = "nccl-tests or rccl-tests, nvbandwidth, perftest, each as text or JSON"


def import_logs(paths: Iterable[Path | str], options: Options) -> Samples:
    """Samples of all logs, with a line for each reason why rows were left out.

    A UserError, with file and line where one is known, if a file cannot be read, is of no known format or holds no
    usable row, or if something is in neither the log nor the options.
    """
    return join_samples([_read(Path(path), options) for path in paths])


def _read(path: Path, options: Options) -> Samples:
    text, found = read_text(path, "a log"), Found(str(path), options)
    if text.lstrip().startswith("{"):  # all that these tools write is a table
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


def _parsed(path: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: is not JSON: {error.msg}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, or brackets without end
        raise UserError(f"{path}: is not JSON of any of the tools") from None


def _read_json(root: Any, found: Found) -> None:
    """Let the tool's reader read what its JSON file holds."""
    results = table(root).get("results")
    if "nvbandwidth" in table(root) and isinstance(root["nvbandwidth"], Mapping):
        nvbandwidth.read_json(root["nvbandwidth"], found)
    elif "test_info" in table(root) and isinstance(results, Mapping | list):
        perftest.read_json(table(root["test_info"]), results, found)
    elif "test_info" not in table(root) and isinstance(results, list):
        nccl.read_json(root, found)
    else:
        raise UserError(f"{found.file}: is a log of no known tool; known: {_KNOWN}")
