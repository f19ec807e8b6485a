"""`runcast explain` on the command line, and the Python of docs/explain.md."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ..command import runcast

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explain.md").read_text()
TINY = "data/scenarios/tiny-2ranks.toml"


def shown(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("code", shown("python"))
def test_the_example_in_python_runs(code):
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)

    assert (done.returncode, done.stdout.split()[:2]) == (0, ["release", "init_group.s"])


def test_json_on_stdout_is_nothing_else(tmp_path):
    done = runcast("explain", TINY, "--quick", "--json", "-", "--html", tmp_path / "why.html", cwd=ROOT)

    assert json.loads(done.stdout)["of"] == "weight_update"
    assert done.stderr == f"wrote {tmp_path / 'why.html'}\n"


def test_json_in_a_file_is_what_stdout_would_be(tmp_path):
    printed = runcast("explain", TINY, "--quick", "--json", "-", cwd=ROOT)
    runcast("explain", TINY, "--quick", "--json", tmp_path / "why.json", cwd=ROOT)

    assert (tmp_path / "why.json").read_text() == printed.stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([TINY, "--html", "why.txt"], "--html why.txt: expected a name that ends in .html"),
        ([TINY, "--set", "update.buckets=2"], "update.buckets: unknown key"),
        ([TINY, "--set", "cluster.nic='400 GiB'"], "cluster.nic = '400 GiB': unknown unit 'GiB'"),
        (["none.toml"], "none.toml: no such file"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(arguments, line, tmp_path):
    (tmp_path / "data").symlink_to(ROOT / "data")
    done = runcast("explain", *arguments, cwd=tmp_path)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert line in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def read_to_the_end(terminal):
    """What was written to ``terminal``: read while it comes, as a terminal keeps no more than 4 KiB."""
    written = b""
    with contextlib.suppress(OSError):  # Linux says EIO when nobody has the other end any more
        while part := os.read(terminal, 4096):
            written += part
    return written.decode()


@pytest.mark.slow
def test_a_terminal_shows_how_far_it_is():
    terminal, its_end = pty.openpty()
    command = [str(Path(sys.executable).with_name("runcast")), "explain", TINY]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=its_end):
        os.close(its_end)
        seen = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", read_to_the_end(terminal))

    assert re.search(r"\d+/\d+ left \d:\d\d:\d\d", seen)
