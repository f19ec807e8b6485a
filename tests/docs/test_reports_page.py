"""docs/reports.md lists what reports have."""

from pathlib import Path

import pytest
from runcast.simulator import simulate
from runcast.simulator.systems.registry import SYSTEMS

from .reports_page import tables

ROOT = Path(__file__).parents[2]


def test_the_page_lists_every_metric():
    page = (ROOT / "docs/reports.md").read_text()

    assert [table for table in tables() if table not in page] == []


@pytest.mark.parametrize("name", ["tiny-2ranks", "rl-split-given-update-8xh100-nodes", "train-gpt3-175b-1024xa100"])
def test_a_report_has_the_keys_that_its_system_lists(name):
    coarse = ["level=coarse", "run={tokens=1e9}"] if name.startswith("train") else []
    report = simulate(ROOT / f"data/scenarios/{name}.toml", coarse).report.to_json()
    of_all = {"kind", "name", "question", "scenario_hash", "notes", "distance", "not_in_interval", "errors"}

    assert report.keys() - of_all == {one.name for one in SYSTEMS[report["kind"]].report.metrics}
