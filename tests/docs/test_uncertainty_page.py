"""The page on uncertainty: its tables are those of kept predictions, and its command prints what it shows."""

import re
import shlex
from pathlib import Path

import pytest
from runcast.simulator.answers.validate.steps import restore

from ..command import runcast
from .uncertainty_page import GOLDEN, PAGE, page

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_tables_are_what_is_kept(update_ledger):
    assert page(PAGE.read_text(), update_ledger) == PAGE.read_text()


def test_the_command_prints_what_the_page_shows():
    ((command, shown),) = re.findall(r"^```console\n\$ ([^\n]*)\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    done = runcast(*shlex.split(command)[1:], cwd=ROOT)
    assert [line.rstrip() for line in done.stdout.splitlines()[-2:]] == shown.splitlines()[-2:]


def test_intervals_hold_about_nine_of_ten_rows_with_their_group_left_out():
    """The widths were estimated for that; of steps that the fit has seen they hold no less."""
    scores = restore(GOLDEN).summary.query("family == 'all'").set_index("errors")["interval_coverage"]
    assert scores["group left out"] == pytest.approx(0.9, abs=0.01)
    assert scores["as shipped"] >= scores["group left out"]
