"""What is said of a fault is a short line that does nothing to a terminal, and gives away no secret."""

import pytest
from runcast.simulator.base.errors import MOST, UserError, fault, printable, unknown_key
from runcast.simulator.base.tables import csv_text

from ..command import runcast

SCENARIO = "data/scenarios/tiny-2ranks.toml"


def test_escapes_are_written_as_text():
    assert printable("\x1b[31m\x07 \u202eé 漢\tx\n") == "\\x1b[31m\\x07 \\u202eé 漢\tx\n"


def test_a_long_line_keeps_its_ends():
    line = str(UserError(f"file.toml: {'x' * 100_000}: expected a number"))
    assert (len(line) <= MOST, line[:10], line[-18:]) == (True, "file.toml:", ": expected a number"[1:])


def test_a_fault_keeps_what_it_says_apart():
    (one,) = UserError(fault("\x1b.toml", "a" * 1000, 3, "expected 4")).faults
    assert (one.value, one.allowed, one.startswith("\\x1b.toml: aaa"), len(one) < 200) == (3, "expected 4", True, True)


def test_the_value_of_an_unknown_key_is_not_said():
    line = unknown_key("secrets.toml", "login.password", ["name", "nodes"])
    assert line == "secrets.toml: login.password: unknown key; known: name, nodes"


@pytest.mark.parametrize("key", ["stack", "profile", "cluster", "model.config"])
def test_secrets_of_a_file_that_a_scenario_names(tmp_path, key):
    """Files of other programs, named by mistake or by somebody else: keys may be said, values never."""
    path = tmp_path / ("x.json" if key == "model.config" else "x.toml")
    path.write_text('{"password": "hunter2"}' if path.suffix == ".json" else "password = 'hunter2'")
    done = runcast("simulate", SCENARIO, "--set", f"{key}={path}", *(["--set", "model.preset="] if "." in key else []))
    assert (done.returncode, "hunter2" in done.stderr + done.stdout) == (2, False), done


def test_no_name_of_a_scenario_acts_on_a_terminal():
    done = runcast("simulate", SCENARIO, "--set", r'name="\u001b[31mred\u0007"')
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, r"\x1b[31mred\x07")


def test_many_faults_are_counted(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text("\n".join(f"key{i} = 1" for i in range(1000)))
    lines = runcast("simulate", path).stderr.splitlines()
    assert (len(lines), lines[-1].startswith("error: and 9")) == (41, True)


def test_cells_are_no_formulas_and_numbers_stay():
    rows = [("=1+1", "@x", "-5", "+1e3", -5, "-", "a=b", "+cmd")]
    assert csv_text(["a"] * 8, rows).splitlines()[1] == "'=1+1,'@x,-5,+1e3,-5,-,a=b,'+cmd"
