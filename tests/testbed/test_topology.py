"""The Cluster file of a testbed says what was set up."""

import pytest
from runcast.simulator.hardware import cluster

from .topology import Topology, star, two_level, write_cluster


def read(topology, folder):
    write_cluster(topology, folder / "cluster.toml")
    return cluster(str(folder / "cluster.toml"), topology.hosts)


def rates(found, kind):
    return {link.name: 8 * link.bytes_per_s for link in found.links if link.kind == kind}


def test_hosts_on_one_switch_share_no_link(tmp_path):
    found = read(star(4, 1e8), tmp_path)
    assert (found.n_gpus, found.n_nodes) == (4, 4)
    assert set(rates(found, "nic").values()) == {1e8}
    assert not rates(found, "leaf")


@pytest.mark.parametrize(
    ("hosts", "leaves", "uplink"), [(4, 2, 1e8), (4, 2, 5e7), (8, 2, 2e8), (6, 3, 1e8), (8, 4, 2e8)]
)
def test_hosts_are_under_their_leaf_whose_uplink_has_its_rate(hosts, leaves, uplink, tmp_path):
    topology = two_level(hosts, 1e8, leaves, uplink)
    found = read(topology, tmp_path)
    assert found.fabric.down_ports == topology.under_leaf
    assert rates(found, "leaf") == pytest.approx({f"leaf{leaf}>spine": uplink for leaf in range(leaves)})


def test_a_slow_host_has_a_slow_cable(tmp_path):
    found = read(star(4, 1e8).with_rate(2, 5e7), tmp_path)
    assert [8 * found.links[found.nic_tx(found.nic_of(gpu))].bytes_per_s for gpu in range(4)] == [1e8, 1e8, 5e7, 1e8]


def test_what_no_cluster_file_can_say_is_refused(tmp_path):
    with pytest.raises(ValueError, match="late or lost"):
        write_cluster(Topology((1e8,) * 2, losses=((0, 0.01),)), tmp_path / "cluster.toml")


def test_leaves_need_uplinks_and_equal_hosts():
    with pytest.raises(ValueError, match="5 hosts do not divide by 2 leaves"):
        two_level(5, 1e8, 2, 1e8)
    with pytest.raises(ValueError, match="uplink"):
        two_level(4, 1e8, 2, 0.0)
