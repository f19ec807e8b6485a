"""The page of training steps stays true: its commands print what it shows, down to the end of the table, and it says
what is predicted of Llama 3 405B.

Written anew by `python -m tests.report.test_train_page`.
"""

import re
import shlex
from pathlib import Path

import pytest
from runcast.simulator.predict import simulate

from ..command import example, runcast

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/training.md"
LLAMA_405B = ROOT / "data/scenarios/train-llama3-405b-16384xh100.toml"
MFU_OF_405B = re.compile(r"(?<=where this predicts )\d+(?= %)")
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def played() -> str:
    """The page with what its commands really print."""
    page = BLOCK.sub(lambda found: f"```console\n{_played(found[1].partition(chr(10))[0])}```", PAGE.read_text())
    return MFU_OF_405B.sub(f"{100 * simulate(LLAMA_405B).report.mfu:.0f}", page)


def _played(first: str) -> str:
    done = runcast(*shlex.split(first.removeprefix("$ "))[1:], cwd=ROOT)
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    end = next(i for i, line in enumerate(lines) if re.match(r"step +\d", line))
    return "".join(f"{line}\n" for line in (first, *lines[: end + 1], "..."))


@pytest.mark.parametrize(("command", "shown"), [example(block) for block in BLOCK.findall(PAGE.read_text())])
def test_the_page_shows_what_its_commands_print(command, shown):
    assert _played(command) == shown


@pytest.mark.slow
def test_the_page_says_what_is_predicted_of_llama_3_405b():
    assert MFU_OF_405B.findall(PAGE.read_text()) == [f"{100 * simulate(LLAMA_405B).report.mfu:.0f}"]


if __name__ == "__main__":
    PAGE.write_text(played())
