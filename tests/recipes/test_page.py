"""The page of recipes stays true: its files are written, its commands run, and what they print is what it shows."""

import re
import shlex
from pathlib import Path

from ..command import runcast

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/recipes.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def played(folder):
    """The page with all that its blocks show replaced by what really comes of them, in order."""
    return BLOCK.sub(lambda found: f"```{found[1]}\n{_played(found[1], found[2], folder)}```", PAGE.read_text())


def _played(language, text, folder):
    first, _, _ = text.partition("\n")
    if language in ("bash", "python", "yaml"):
        (folder / first.removeprefix("# ")).write_text(text)
    elif language == "json":  # which has no comments
        (folder / first.removeprefix("# ")).write_text(text.partition("\n")[2])
    elif language == "toml":
        return f"{first}\n{(folder / first.removeprefix('# ')).read_text()}"
    elif language == "console":
        command, _, file = first.removeprefix("$ ").partition(" > ")
        done = runcast(*shlex.split(command)[1:], cwd=folder)
        if file:
            (folder / file).write_text(done.stdout)
        return f"{first}\n{'' if file else done.stdout}{done.stderr}"
    return text


def test_the_page_shows_what_its_commands_print(tmp_path):
    (tmp_path / "data").symlink_to(ROOT / "data")

    assert played(tmp_path) == PAGE.read_text()


def test_the_page_names_every_kind_of_argument_that_export_writes():
    lines = re.findall(r'"(--[a-z0-9-]+)[ "{]', (ROOT / "simulator/formats/recipes/to_megatron.py").read_text())

    assert [flag for flag in lines if flag not in PAGE.read_text() and flag not in UNNAMED] == []


UNNAMED = ("--max-position-embeddings", "--exp-avg-sq-dtype", "--fp4-recipe")  # follow from others
