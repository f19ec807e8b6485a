"""Pages whose examples are played: what a command prints to stdout, or a line of Python, stands below it.

Console blocks (`$ command`) are run here, or by a shell where they have a pipe, all of a page in one folder with the
repository's files and an empty `out/`; pycon blocks (`>>> line`) in one interpreter, where `folder` is an empty folder.
Written anew by `python -m tests.docs.console docs/questions.md ...`; stderr (progress, warnings) is not shown.
"""

import code
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from ..command import Done, runcast

ROOT = Path(__file__).parents[2]
_CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"^```pycon\n(.*?)^```", re.MULTILINE | re.DOTALL)
LIMIT_S = 300  # a command


def played(text: str, *, silent: bool = False) -> str:
    """The page with what its examples really print. With `silent`, commands that show nothing stay so."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as free:
        workplace = Path(folder)
        for name in ("data", "docs", "tests"):
            (workplace / name).symlink_to(ROOT / name)
        (workplace / "out").mkdir()
        text = _CONSOLE.sub(lambda block: f"```console\n{_commands(block[1], workplace, silent)}```", text)
        interpreter = code.InteractiveConsole({"folder": free})
        with contextlib.chdir(ROOT):
            return _PYTHON.sub(lambda block: f"```pycon\n{_session(interpreter, block[1])}```", text)


def commands(text: str) -> list[str]:
    """All commands of a page."""
    return [line for block in _CONSOLE.findall(text) for line in _behind("$ ", block)]


def _behind(prompt: str, block: str) -> list[str]:
    return re.findall(rf"^{re.escape(prompt)}(.*)$", block, re.MULTILINE)


def _commands(block: str, workplace: Path, silent: bool) -> str:
    shown = zip(_behind("$ ", block), re.split(r"^\$ .*\n", block, flags=re.MULTILINE)[1:], strict=True)
    return "".join(_play(command, workplace, silent and not before.strip()) for command, before in shown)


def _play(command: str, workplace: Path, silent: bool) -> str:
    printed = _printed(command, workplace)
    return f"$ {command}\n{'' if silent else printed}"


def _printed(command: str, workplace: Path) -> str:
    """What a command prints, and where it fails also what it says of that."""
    first, *words = shlex.split(command)
    alone = first == "runcast" and "|" not in words
    done = runcast(*words, cwd=workplace) if alone else _by_a_shell(command, workplace)
    shown = done.stdout if done.returncode == 0 else done.stdout + done.stderr
    return "".join(f"{line.rstrip()}\n" for line in shown.splitlines())


def _by_a_shell(command: str, workplace: Path) -> Done:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run = ["bash", "-o", "pipefail", "-c", command]
    done = subprocess.run(
        run, cwd=workplace, capture_output=True, text=True, timeout=LIMIT_S, env={**os.environ, "PATH": path}
    )
    return Done(done.returncode, done.stdout, done.stderr)


def _session(interpreter: code.InteractiveConsole, block: str) -> str:
    """The lines behind `>>>` with what each of them prints."""
    said = []
    for line in _behind(">>> ", block):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            interpreter.push(line)
        said.append(f">>> {line}\n{printed.getvalue()}")
    return "".join(said)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = Path(name)
        page.write_text(played(page.read_text(), silent=page.name == "README.md"))
