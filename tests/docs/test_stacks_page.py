"""docs/choosing-a-stack.md names every stack that ships, and none else."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_has_a_row_for_every_stack():
    rows = [line for line in (ROOT / "docs/choosing-a-stack.md").read_text().splitlines() if line.startswith("| ")]
    named = {word for row in rows for word in re.findall(r"`([\w.-]+)`", row.split("|")[2])} - {"stack"}

    assert named == {path.stem for path in (ROOT / "data/stacks").glob("*.toml")}
