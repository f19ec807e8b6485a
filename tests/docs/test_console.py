"""Pages stay true: their examples print what they show.

If numbers have moved for a good reason: python tests/docs/console.py docs/PAGE.md, and read the text around them.
"""

import re

import pytest

from .console import ROOT, commands, played

QUESTIONS = (ROOT / "docs/questions.md").read_text().split("\n## ")[1:]
PAGES = ("compare", "explain", "search", "sweeps", "traces")


@pytest.mark.parametrize("name", PAGES)
def test_the_page_shows_what_is_printed(name):
    text = (ROOT / f"docs/{name}.md").read_text()

    assert (bool(commands(text)), played(text)) == (True, text)


@pytest.mark.parametrize("section", QUESTIONS, ids=lambda section: section.partition(".")[0])
def test_a_question_is_answered_as_shown(section):
    assert played(section) == section


def test_there_are_ten_questions_whose_answers_are_tables():
    answers = [re.findall(r"^```console\n(.*?)^```", section, re.MULTILINE | re.DOTALL) for section in QUESTIONS]

    assert [bool(of_one) and all(len(block.splitlines()) > 5 for block in of_one) for of_one in answers] == [True] * 10
