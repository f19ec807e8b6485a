"""What fabrics are made of: closed forms of switches and cables, and what their transceivers draw."""

import pytest
from runcast.simulator.hardware import cluster
from runcast.simulator.hardware.fabrics.parts import several

from ..command import runcast

SMALL = {"base": "dgx-h100", "gpus_per_node": 1, "nics": 1, "pcie_switches": 1, "sockets": 1}


@pytest.mark.parametrize("k", [4, 8])
def test_a_full_fat_tree(k):
    """k^2/2 leaves and aggregation switches, k^2/4 cores, and k^3/4 cables on each of three levels."""
    parts = cluster({**SMALL, "fabric": "fat_tree", "leaf_radix": k}, k**3 // 4).parts()
    assert (parts.switches, parts.cables) == (
        {"leaf": k * k // 2, "agg": k * k // 2, "core": k * k // 4},
        {"from NICs": k**3 // 4, "between switches": k**3 // 2},
    )


@pytest.mark.parametrize(
    ("keys", "nodes", "switches", "between"),
    [
        ({}, 33, {"leaf": 16}, 0),
        ({"fabric": "rail_only"}, 64, {"leaf": 8}, 0),
        ({"fabric": "leaf_spine"}, 256, {"leaf": 64, "spine": 32}, 2048),
        ({"fabric": "leaf_spine", "spines": 8}, 64, {"leaf": 16, "spine": 8}, 512),
        ({"fabric": "leaf_spine", "planes": 4}, 64, {"leaf": 16, "spine": 128}, 512),
        ({"fabric": "torus", "sizes": [4, 4]}, 16, {}, 64),
        ({"fabric": "dragonfly", "groups": 9, "group_routers": 4, "global_links": 2}, 72, {"router": 36}, 90),
    ],
)
def test_switches_and_the_cables_between_them(keys, nodes, switches, between):
    parts = cluster({"base": "dgx-h100", **keys}, nodes).parts()
    assert (parts.switches, parts.cables["between switches"]) == (switches, between)


def test_a_mesh_leaves_the_ports_at_its_edges_open():
    """Of 16 nodes with 8 NICs each, 12 of 16 links along x and as many along y are there: 2 NICs for each end."""
    parts = cluster({"base": "dgx-h100", "fabric": "mesh", "sizes": [4, 4]}, 16).parts()
    assert parts.cables["between switches"] == 2 * (12 + 12)


def test_a_twin_port_transceiver_serves_two_ports_of_a_switch():
    """64 NICs of 400 Gb/s with 9 W each; 64 ports of leaves down and 64 up, and 64 of spines, 17 W for two."""
    keys = {"fabric": "leaf_spine", "leaf_radix": 8, "spine_radix": 16, "cabling": "leaf", "nics": 4}
    parts = cluster({"base": "dgx-h100", **keys}, 16).parts()
    assert (parts.optics, parts.optics_w) == ({"at NICs": 64, "at switches": 96}, 64 * 9 + 96 * 17)


def test_transceivers_of_other_rates_are_counted_but_their_power_is_not_known():
    parts = cluster({"base": "dgx-h100", "nic": "100 Gb/s"}, 4).parts()
    assert (parts.optics_w, "power of transceivers of this rate" in parts.missing) == (None, True)


def test_one_switch_of_a_level_is_not_several():
    facts = dict(cluster({**SMALL, "fabric": "leaf_spine", "leaf_radix": 16, "spines": 1}, 16).parts().facts())
    assert (facts["switches"], several("agg", 1)) == ("2 leaves, 1 spine", "aggregation switch")


def test_a_link_that_is_down_has_its_cable_all_the_same():
    whole = {**SMALL, "fabric": "leaf_spine", "leaf_radix": 16, "cabling": "leaf"}
    broken = {**whole, "degraded": [{"link": "leaf0<>spine0", "factor": 0}]}
    assert cluster(whole, 16).parts() == cluster(broken, 16).parts()


def test_the_command_prints_and_draws_them(tmp_path):
    page = tmp_path / "fabric.html"
    done = runcast("cluster", "show", "dgx-h100", "--nodes", 64, "--set", "fabric=leaf_spine", "--out", page)
    assert (done.returncode, done.stdout.splitlines()[1:3], "spine31" in page.read_text()) == (
        0,
        ["switches      16 leaves, 32 spines", "cables        512 from NICs, 512 between switches"],
        True,
    )


def test_a_mistake_of_the_command_is_one_line():
    done = runcast("cluster", "show", "dgx-h100", "--nodes", 5, "--set", "fabric=torus", "--set", "sizes=[4]")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
