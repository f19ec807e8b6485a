"""The page of what-ifs stays true: its tables are what the code gives, its commands run, every scenario is on it."""

import re
import shlex

import pytest

from ..command import marks_of, runcast
from .what_ifs_page import PAGE, ROOT, commands, filled, tables

TEXT = PAGE.read_text()


def marked(command: str, *more: str):
    return pytest.param(command, *more, marks=marks_of(command))


@pytest.mark.slow
@pytest.mark.parametrize(("command", "table"), [marked(*each) for each in tables(TEXT)])
def test_a_table_shows_what_the_code_gives(command, table):
    """If numbers have moved for a good reason: python tests/docs/what_ifs_page.py, and read the text around them."""
    assert filled(command, table) == table


@pytest.mark.parametrize("command", [marked(command) for command in commands(TEXT)])
def test_a_command_runs_or_is_refused_as_shown(command):
    done = runcast(*shlex.split(command)[1:], cwd=ROOT)
    error = re.search(rf"^\$ {re.escape(command)}\n(error: .*)", TEXT, re.MULTILINE)

    assert (done.returncode, done.stderr.strip()) == ((2, error[1]) if error else (0, ""))


def test_only_the_edges_of_buckets_are_refused():
    assert {command.split()[2] for command, table in tables(TEXT) if "refused" in table} == {
        "data/scenarios/what-if-bucket.toml",
        "data/scenarios/what-if-bucket-from-trainers.toml",
    }


def test_every_scenario_of_a_what_if_is_on_the_page():
    names = {path.name for path in (ROOT / "data/scenarios").glob("what-if-*.toml")}

    assert names == set(re.findall(r"what-if-[\w.-]+?\.toml", TEXT))


def test_the_stack_on_the_page_is_the_one_that_ships():
    (block,) = re.findall(r"^```toml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)

    assert block in (ROOT / "data/scenarios/stacks/fast-loader.toml").read_text()
