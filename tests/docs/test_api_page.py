"""docs/api.md, docs/commands.md and docs/runcast.schema.json are as the code has them."""

import json
from pathlib import Path

import runcast
from runcast.simulator.answers.schema import schema_of_all

from . import commands_page
from .api_page import CLASSES, FUNCTIONS, page

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_what_the_code_says():
    assert (DOCS / "api.md").read_text() == page()


def test_the_page_of_commands_is_what_their_help_says():
    assert (DOCS / "commands.md").read_text() == commands_page.page()


def test_the_page_has_every_name():
    assert sorted([*CLASSES, *FUNCTIONS, "UserError"]) == sorted(runcast.__all__)


def test_the_published_schema_is_what_the_command_prints():
    assert json.loads((DOCS / "runcast.schema.json").read_text()) == schema_of_all()
