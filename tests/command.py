"""`runcast` in this process: what it prints and its exit code, without the second or two that a process takes to start.

That an installed command starts is the business of tests/smoke.
"""

import contextlib
import io
import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import pytest
from runcast.simulator import cli


class Done(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def runcast(*arguments: object, cwd: Path | str = ".") -> Done:
    """The command line with these arguments, in a folder."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code = 0
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main([str(word) for word in arguments])
        except SystemExit as leave:
            code = int(leave.code or 0)
    return Done(code, _text(out), _text(err))


def marks_of(command: str) -> Collection[pytest.MarkDecorator]:
    """Of a test that runs this command: a thousand GPUs and more take their time, and so do splits of an RL cycle."""
    return [pytest.mark.slow] if re.search(r"-\d{4,}x|what-if-(scale|split)", command) else []


def example(block: str):
    """The parameters (command, block) of a test of a console block, which begins with its command."""
    command = block.partition("\n")[0]
    return pytest.param(command, block, marks=marks_of(command), id=command)


def _text(written: io.TextIOWrapper) -> str:
    written.seek(0)
    return written.read()
