"""The page of the ledger is what the code predicts."""

from pathlib import Path

from .ledger_page import page

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_is_predicted():
    assert (ROOT / "docs/weight-update-ledger.md").read_text() == page()
