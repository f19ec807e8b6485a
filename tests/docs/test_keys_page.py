"""docs/run-keys.md is what its command writes."""

from pathlib import Path

from .keys_page import page


def test_the_page_of_keys_is_up_to_date():
    assert (Path(__file__).parents[2] / "docs/run-keys.md").read_text() == page()
