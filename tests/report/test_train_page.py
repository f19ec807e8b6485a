"""The page of training steps stays true: its commands print what it shows, down to the end of the table, and it says
what is predicted of Llama 3 405B.

Written anew by `python tests/report/test_train_page.py`.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from runcast.simulator.predict import simulate

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
    command = [str(Path(sys.executable).parent / "runcast"), *shlex.split(first.removeprefix("$ "))[1:]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    end = next(i for i, line in enumerate(lines) if re.match(r"step +\d", line))
    return "".join(f"{line}\n" for line in (first, *lines[: end + 1], "..."))


def test_the_page_shows_what_its_commands_print():
    assert played() == PAGE.read_text()


if __name__ == "__main__":
    PAGE.write_text(played())
