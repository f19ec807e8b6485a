"""Routes of one-sided transfers: which links bytes cross between the memories of two ranks, by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator import UserError
from runcast.simulator.collectives.wires import nic_route, read_route, write_route
from runcast.simulator.hardware import Cluster, cluster, cluster_names

from ..examples import examples

DGX = cluster("dgx-h100", 2)


def names(machine: Cluster, route: tuple[int, ...]) -> list[str]:
    return [machine.links[link].name for link in route]


def kinds(machine: Cluster, route: tuple[int, ...]) -> list[str]:
    return [machine.links[link].kind for link in route]


def test_a_write_between_nodes_leaves_by_the_nic_of_its_source_and_enters_by_that_of_its_target():
    crossed = names(DGX, write_route(DGX, 1, 10, from_host=False))
    assert [name for name in crossed if "nic" in name and "port" in name] == ["n0.nic1>port1", "n1.port2>nic2"]
    assert (crossed[0].startswith("n0.gpu1>"), crossed[-1].endswith(">gpu2")) == (True, True)


def test_from_host_memory_it_reads_the_nearest_and_leaves_the_device_alone():
    crossed = names(DGX, write_route(DGX, 5, 10, from_host=True))
    assert "host_memory" in kinds(DGX, write_route(DGX, 5, 10, from_host=True))
    assert not any(name.startswith("n0.gpu5>") for name in crossed)


def test_a_read_is_a_write_from_the_owners_host_memory():
    assert read_route(DGX, 5, 10) == write_route(DGX, 5, 10, from_host=True)


def test_inside_a_node_bytes_leave_through_one_nic_and_come_back_by_the_other():
    assert names(DGX, nic_route(DGX, "n0.nic1", "n0.nic3")) == ["n0.nic1>port1", "n0.port3>nic3"]


def test_through_one_nic_they_leave_and_come_back():
    machine = cluster({"base": "h20-hgx", "gpus_per_node": 4, "nics": 2, "pcie_switches": 2}, 1)
    assert machine.nic_of(0) == machine.nic_of(1)
    crossed = names(machine, write_route(machine, 0, 1, from_host=False))
    assert sum("port" in name for name in crossed) == 2


def test_between_nodes_of_several_leaves_they_pass_the_fabric():
    machine = cluster({"base": "h20-hgx", "fabric": "leaf", "leaf_radix": 16}, 4)
    assert {"leaf", "spine"} <= set(kinds(machine, write_route(machine, 0, 31, from_host=False)))


@examples(60)
@given(data=st.data(), name=st.sampled_from(cluster_names()), from_host=st.booleans())
def test_a_route_crosses_each_link_once_and_both_nics(data, name, from_host):
    if name == "cpu-host":
        return
    machine = cluster(name, 1 if name in ("dgx-v100", "dgx-2") else 2)
    source, target = (data.draw(st.integers(0, machine.n_gpus - 1)) for _ in range(2))
    route = write_route(machine, source, target, from_host=from_host)
    assert len(set(route)) == len(route)
    assert {machine.nic_tx(machine.nic_of(source)), machine.nic_rx(machine.nic_of(target))} <= set(route)


def test_a_node_without_nics_writes_nothing():
    machine = cluster({"base": "h20-hgx", "nics": 0}, 1)
    with pytest.raises(UserError, match=r"no NIC is attached to n0\.gpu0"):
        write_route(machine, 0, 1, from_host=False)
