"""The page of the ledger is what the code predicts."""

import re
from pathlib import Path

import pytest

from .ledger_page import page

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_page_is_what_is_predicted(update_ledger):
    assert (ROOT / "docs/weight-update-ledger.md").read_text() == page(update_ledger)


FAMILIES = {
    "checkpoint-engine and miles, the tables that came first": lambda rows: rows[_two(rows) & (rows["line"] < 85)],
    "the same with the rows that we added from the same sources": lambda rows: rows[_two(rows)],
    "other systems": lambda rows: rows[~_two(rows)],
}


def _two(rows):
    return rows["system"].isin(["checkpoint-engine", "miles"])


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_summary_on_the_page_of_methods_is_what_is_predicted(update_ledger, family):
    text = (ROOT / "docs/weight-update.md").read_text()
    rows = FAMILIES[family](update_ledger.table)
    columns = (100 * rows[name] for name in ("error", "model_left_out", "system_left_out"))
    cells = [f"{error.abs().median():.1f} / {error.abs().max():.0f}, {error.median():+.1f}" for error in columns]

    assert re.search(re.escape(f"| {family} ({len(rows)}) | {' | '.join(cells)} |"), text)
