"""Checkpoints and samples on the links of a cluster: nothing carries more than it can."""

from pathlib import Path

import pytest
from runcast.simulator import simulate

ONE_NODE = """
kind = "run"
cluster = "dgx-a100"
nodes = 1

[step]
time = "1 s"

[run]
steps = 1000
repeats = 1

[checkpoint]
bytes = "160 GB"
store = "1000 TB/s"
interval = "100 s"
"""


@pytest.fixture
def one(tmp_path) -> Path:
    """A node with eight GPUs, two of them below each PCIe switch."""
    path = tmp_path / "one.toml"
    path.write_text(ONE_NODE)
    return path


def test_gpus_below_one_pcie_switch_share_its_uplink_when_they_are_copied(one):
    """20 GB of each of two GPUs over 16 lanes of PCIe 4."""
    resolved = simulate(one, ["checkpoint.mode=background"]).resolved
    uplink = 31.508e9 * resolved.profile.value_or("link_fraction.pcie", 1.0)

    assert resolved.saving.stall_s == pytest.approx(2 * 20e9 / uplink, rel=1e-4)
