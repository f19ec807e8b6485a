"""Plain words: phrases that readers stumbled over stand nowhere in what users and developers read."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RIDDLES = (
    "How long new weights take into the engines", "Tokens each", "Products in", "Told apart by", "Take the last away",
    "When what ran", "What a tenth is worth", "1 points were refused", "Who would rather look than read",
    "Simulate so often with errors drawn", "but for resharding", "what differs in what went in", "without remainder",
)  # fmt: skip
"""Labels and sentences of the first version that were rewritten."""
READ = [
    *(file for folder in ("simulator", "calibrate", "dashboard", "kernels") for file in (ROOT / folder).rglob("*.py")),
    *(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md",
]  # fmt: skip


@pytest.mark.parametrize("phrase", RIDDLES)
def test_a_riddle_stands_nowhere(phrase):
    assert [str(file.relative_to(ROOT)) for file in READ if phrase in file.read_text()] == []
