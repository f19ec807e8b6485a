"""The oracles that other tests lean on are there, and answer what theory says."""

import subprocess
from pathlib import Path

SCRIPT = Path(__file__).with_name("simgrid_shared_link.py")


def test_simgrid_shares_a_link_fairly(simgrid):
    assert simgrid(SCRIPT, {"bandwidth": 1e6, "sizes": [1e6, 3e6]}) == [2.0, 4.0]


def test_chromium_starts(chromium):
    command = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--version"]
    assert "Chrom" in subprocess.run(command, capture_output=True, text=True, timeout=300).stdout
