"""The page of costs stays true: its commands print the lines of money and energy that it shows, and it names the
devices that have a price.

Written anew by `python -m tests.report.test_costs_page`.
"""

import re
import shlex
from pathlib import Path

import pytest
from runcast.simulator.hardware import device, device_names

from ..command import example, runcast

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/costs-and-energy.md"
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHOWN = tuple(f"  {what} " for what in ("cost", "energy", "whole run", "goodput", "run's cost"))
PRICED = {
    "H100 SXM", "H200 SXM", "B200 SXM", "GB200", "GH200 96GB", "A100 SXM 80GB", "L40S", "A100 SXM 40GB", "H100 PCIe",
    "V100 SXM2 16GB",
}  # fmt: skip


def played() -> str:
    """The page with what its commands really print of money, energy and the run."""
    return BLOCK.sub(lambda found: f"```console\n{_played(found[1].partition(chr(10))[0])}```", PAGE.read_text())


def _played(first: str) -> str:
    done = runcast(*shlex.split(first.removeprefix("$ "))[1:], cwd=ROOT)
    lines = [line.rstrip() for line in done.stdout.splitlines() if line.startswith(SHOWN)]
    return "".join(f"{line}\n" for line in (first, "...", *lines, "..."))


@pytest.mark.parametrize(("command", "shown"), [example(block) for block in BLOCK.findall(PAGE.read_text())])
def test_the_page_shows_what_its_commands_print(command, shown):
    assert _played(command) == shown


def test_the_devices_with_a_price_are_those_that_the_page_names():
    assert {device(name).name for name in device_names() if device(name).price_usd_per_hour is not None} == PRICED


if __name__ == "__main__":
    PAGE.write_text(played())
