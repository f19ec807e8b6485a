"""A worker as its supervisor sees it, with a small program in its place."""

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure import supervisor as module
from runcast.calibrate.measure.job import Job, Place
from runcast.calibrate.measure.plan import Options
from runcast.calibrate.measure.supervisor import Child, describe_exit

TELLS = "import os, subprocess, sys, time\ntell = os.fdopen(int(sys.argv[4]), 'w', buffering=1).write\n"
STARTS = "tell('%d\\n' % subprocess.Popen(['sleep', '60']).pid)\ntime.sleep(60)\n"


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Starts a child that does this."""
    started = []

    def starts(code):
        program = tmp_path / "program"
        program.write_text(f"#!{sys.executable} -S\n{TELLS}{code}")
        program.chmod(0o755)
        monkeypatch.setattr(module, "sys", SimpleNamespace(executable=str(program), stderr=sys.__stderr__))
        started.append(Child(Job(Place(), "cpu", Options())))
        return started[-1]

    yield starts
    for child in started:
        if child._process.poll() is None:
            child._process.kill()


def all_of(child):
    """What it tells until it has ended."""
    told, until = [], time.monotonic() + 30
    while child.exit_code is None:
        assert time.monotonic() < until, "it has not ended"
        told += child.messages(0.1)
    return told


def runs(pid):
    """Whether it has not ended: one that has may wait for somebody to ask how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pid):
    until = time.monotonic() + 10
    while runs(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not runs(pid)


def test_what_one_that_died_has_told_is_heard_before_it_counts_as_ended(start):
    child = start("tell('{\"a\": 1}\\n')\nos.abort()\n")
    assert ends(child._process.pid)
    assert child.exit_code is None
    assert all_of(child) == [{"a": 1}]
    assert describe_exit(child.exit_code) == "was killed by SIGABRT"


def test_lines_are_heard_whole(start):
    child = start("tell('1\\n{\"a\"')\ntime.sleep(0.3)\ntell(': 2}\\n')\n")
    assert all_of(child) == [1, {"a": 2}]
    assert describe_exit(child.exit_code) == "ended with exit code 0"


def test_with_it_ends_what_it_has_started(start):
    child = start(STARTS)
    (other,) = child.messages(30)
    assert runs(other)
    child.kill()
    assert ends(other)
    assert not runs(child._process.pid)


def test_a_terminal_reaches_the_supervisor_only(start):
    child = start("time.sleep(60)\n")
    assert os.getsid(child._process.pid) == child._process.pid != os.getsid(0)
    child.kill()
