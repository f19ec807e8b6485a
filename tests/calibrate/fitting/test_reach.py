"""Every case of the suite changes a prediction, or docs/measuring.md says why it does not."""

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the suite needs the [calibrate] extra")

from .reach import Reach, groups

PAGE = Path(__file__).parents[3] / "docs/measuring.md"


@pytest.fixture(scope="module")
def silent():
    """Patterns of the cases that the page says change no prediction."""
    text = PAGE.read_text().partition("These cases change no prediction:")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return [pattern for row in rows for pattern in re.findall(r"`([^`]*)`", row)]


def fits(group, patterns):
    return any(fnmatch(group, pattern) for pattern in patterns)


@pytest.mark.slow
def test_the_page_names_no_case_that_does_not_exist(silent):
    assert [pattern for pattern in silent if not any(fnmatch(group, pattern) for group in groups())] == []


@pytest.fixture(scope="module")
def reach(tmp_path_factory):
    return Reach(tmp_path_factory.mktemp("reach"))


@pytest.mark.slow
def test_the_cases_of_the_page_change_no_prediction(silent, reach):
    assert reach.moves(*(group for group in reach.groups if fits(group, silent))) is None


@pytest.mark.slow
def test_every_other_case_changes_a_prediction(silent, reach):
    others = [group for group in reach.groups if not fits(group, silent)]
    assert [group for group in others if not reach.moves(group)] == []
