"""How `runcast` ends, with verbs made up here in place of the entry points."""

import os
import signal
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
import typer
from runcast.simulator import cli
from runcast.simulator.base.errors import UserError

pytestmark = pytest.mark.smoke


def good(times: int = 1):
    """Do it."""
    print("done " * times)


def mistaken():
    """Find two faults."""
    raise UserError("a.toml: nodes = 0: at least 1", "a.toml: tp = 3: must divide 64 heads")


def interrupted():
    """Be interrupted."""
    signal.raise_signal(signal.SIGINT)


def no_torch():
    raise ModuleNotFoundError("No module named 'torch'", name="torch")


def no_own():
    raise ModuleNotFoundError("No module named 'runcast.lost'", name="runcast.lost")


class Verb(EntryPoint):
    def load(self):
        verb = globals()[self.value]
        return verb() if self.value.startswith("no_") else verb


group = typer.Typer(help="Several.")
group.command("good")(good)
group.command("mistaken")(mistaken)


@pytest.fixture
def runcast(monkeypatch, capsys):
    names = ["good", "mistaken", "interrupted", "no_torch", "no_own", "group"]
    monkeypatch.setattr(cli, "entry_points", lambda group: [Verb(name, name, group) for name in names])

    def run(*arguments):
        with pytest.raises(SystemExit) as leave:
            cli.main(list(arguments))
        return leave.value.code, *capsys.readouterr()

    return run


def test_verb_runs(runcast):
    assert runcast("good", "--times", "2") == (0, "done done \n", "")


def test_verb_of_a_group(runcast):
    assert runcast("group", "good") == (0, "done \n", "")


def test_each_fault_is_one_line(runcast):
    lines = "error: a.toml: nodes = 0: at least 1\nerror: a.toml: tp = 3: must divide 64 heads\n"
    assert runcast("mistaken") == runcast("group", "mistaken") == (2, "", lines)


def test_interrupt(runcast):
    assert runcast("interrupted") == (130, "", "interrupted\n")


def test_missing_extra_is_named(runcast):
    assert runcast("no_torch", "--any", "thing") == (
        2,
        "",
        "error: needs the [calibrate] extra: pip install 'runcast[calibrate]'\n",
    )


def test_help_says_what_cannot_run(runcast):
    lines = dict(line.split(maxsplit=1) for line in runcast("--help")[1].partition("Commands:\n")[2].splitlines())
    assert lines["no_torch"].startswith("(needs the [calibrate] extra")
    assert lines["no_own"] == "(cannot load: No module named 'runcast.lost')"
    assert lines["good"] == "Do it."
    assert lines["group"] == "Several."


def test_our_own_fault_keeps_its_traceback(runcast):
    with pytest.raises(ModuleNotFoundError, match="lost"):
        cli.main(["no_own"])


def test_reader_that_left_is_no_error():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", "from runcast.simulator.cli import main; main(['--version'])"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=300)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")
