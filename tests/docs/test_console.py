"""Pages stay true: their examples print what they show.

If numbers have moved for a good reason: python -m tests.docs.console docs/PAGE.md, and read the text around them.
"""

import re
import shlex

import pytest
import typer
from runcast.simulator.cli import build_app

from .console import ROOT, commands, played

QUESTIONS = (ROOT / "docs/questions.md").read_text().split("\n## ")[1:]
TUTORIALS = sorted(f"tutorials/{page.stem}" for page in (ROOT / "docs/tutorials").glob("*.md"))
SLOW = ("choosing-a-stack", "devices", "explain", "own-runs", "own-schedules", "run", "search", "sweeps", *TUTORIALS)
PAGES = ("collectives", "compare", "fabrics", "traces", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW))
QUICK = ("3",)
"""Questions that are answered within seconds."""


def number(section):
    return section.partition(".")[0]


def marked(section):
    return pytest.param(section, id=number(section), marks=() if number(section) in QUICK else pytest.mark.slow)


@pytest.mark.parametrize("name", PAGES)
def test_the_page_shows_what_is_printed(name):
    text = (ROOT / f"docs/{name}.md").read_text()

    assert (bool(commands(text)), played(text)) == (True, text)


@pytest.mark.parametrize("section", [marked(section) for section in QUESTIONS])
def test_a_question_is_answered_as_shown(section):
    assert played(section) == section


def test_there_are_ten_questions_whose_answers_are_tables():
    answers = [re.findall(r"^```console\n(.*?)^```", section, re.MULTILINE | re.DOTALL) for section in QUESTIONS]

    assert [bool(of_one) and all(len(block.splitlines()) > 5 for block in of_one) for of_one in answers] == [True] * 10


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))], ids=lambda page: page.stem)
def test_every_command_of_a_page_has_options_that_exist(page):
    """Parsed and not run: what they print is compared above, and for other pages beside what these are about."""
    given = [shlex.split(re.split(r" [|>] ", line)[0])[1:] for line in commands(page.read_text()) if "runcast" in line]

    for words in given:
        parse(typer.main.get_command(build_app(words)), words)


def parse(command, words):
    """A usage error where a word is none that the verb takes."""
    while hasattr(command, "get_command"):
        name, *words = words
        command = command.get_command(None, name)
    command.make_context(name, words)
