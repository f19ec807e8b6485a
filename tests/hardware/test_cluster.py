"""Routes: what a transfer crosses, what two transfers share, and that stamped nodes agree with the template."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator import UserError
from runcast.simulator.hardware import Cluster, cluster, device, duplex, half_duplex, loop


def kinds(machine: Cluster, route: tuple[int, ...]) -> list[str]:
    return [machine.links[i].kind for i in route]


def names(machine: Cluster, route: tuple[int, ...]) -> list[str]:
    return [machine.links[i].name for i in route]


def ends(machine: Cluster, link: str) -> list[str]:
    """The vertices that a link joins; what nodes share has a name of its own."""
    home, dot, local = link.rpartition(".")
    return [shared(machine, f"{home}{dot}{vertex}") for vertex in local.split(">")]


def shared(machine: Cluster, vertex: str) -> str:
    node, _, local = vertex.partition(".")
    if local.startswith("port"):
        return machine.leaf_of(vertex.replace("port", "nic"))
    return f"nvswitch of {machine.nvlink_domain(machine.gpus_of(int(node[1:]))[0])}" if local == "nvswitch" else vertex


def tiny(gpus: int = 4) -> Cluster:
    """GPUs with one PCIe link each way to one host, and nothing else."""
    wires = half_duplex("numa0", "cpu0", "host_memory", 100.0)
    for i in range(gpus):
        wires += [loop(f"gpu{i}", "hbm", 1000.0), *duplex(f"gpu{i}", "cpu0", "pcie", 10.0)]
    return Cluster.from_wires(device("h20"), wires)


# -- Inside a node ----------------------------------------------------------------------------------------------------


def test_host_memory_that_is_not_stated_is_zero() -> None:
    assert Cluster.from_wires(device("h100-sxm"), [loop("gpu0", "hbm", 1.0)]).nodes[0].host_memory_bytes == 0


def test_gpus_of_one_nvswitch_use_nvlink_only() -> None:
    machine = cluster("dgx-h100", 1)
    assert kinds(machine, machine.route("n0.gpu1", "n0.gpu6")) == ["nvlink", "nvlink"]


def test_gpus_without_nvlink_meet_at_their_pcie_switch() -> None:
    machine = cluster("l40s-pcie", 1)
    assert names(machine, machine.route("n0.gpu0", "n0.gpu1")) == ["n0.gpu0>pcie0", "n0.pcie0>gpu1"]


def test_gpus_on_different_sockets_cross_the_socket_link() -> None:
    machine = cluster("l40s-pcie", 1)
    assert kinds(machine, machine.route("n0.gpu0", "n0.gpu7")) == ["pcie", "pcie", "socket", "pcie", "pcie"]


def test_bridged_pair_uses_its_bridge() -> None:
    machine = cluster("a100-pcie", 1)
    assert kinds(machine, machine.route("n0.gpu2", "n0.gpu3")) == ["nvlink"]


def test_mesh_neighbours_without_a_link_go_over_pcie_not_through_a_gpu() -> None:
    machine = cluster("dgx-v100", 1)
    assert set(kinds(machine, machine.route("n0.gpu0", "n0.gpu5"))) == {"pcie", "socket"}


def test_first_quad_of_the_v100_mesh_is_fully_joined() -> None:
    assert cluster({"base": "dgx-v100", "gpus_per_node": 4}, 1).nvlink_domain(0) == (0, 1, 2, 3)


def test_host_to_device_crosses_memory_upstream_port_and_the_gpus_inbound_link() -> None:
    machine = cluster("dgx-a100", 1)
    assert names(machine, machine.h2d_route(3)) == ["n0.numa0<>cpu0", "n0.cpu0>pcie1", "n0.pcie1>gpu3"]


def test_device_to_host_is_the_other_direction_of_the_same_wires() -> None:
    machine = cluster("dgx-a100", 1)
    assert names(machine, machine.d2h_route(3)) == ["n0.gpu3>pcie1", "n0.pcie1>cpu0", "n0.numa0<>cpu0"]


def test_gpudirect_and_host_copies_share_only_the_gpus_inbound_link() -> None:
    machine = cluster("h800-hgx", 1)
    shared = set(machine.nic_in_route(5, machine.nic_of(5))) & set(machine.h2d_route(5))
    assert names(machine, tuple(shared)) == ["n0.pcie5>gpu5"]


def test_a_nic_on_the_socket_shares_the_upstream_port_as_well() -> None:
    machine = cluster({"base": "h800-hgx", "nic_attach": "socket"}, 1)
    shared = set(machine.nic_in_route(5, machine.nic_of(5))) & set(machine.h2d_route(5))
    assert sorted(names(machine, tuple(shared))) == ["n0.cpu1>pcie5", "n0.pcie5>gpu5"]


def test_outbound_gpudirect_shares_nothing_with_host_to_device() -> None:
    machine = cluster("h800-hgx", 1)
    assert set(machine.nic_out_route(5, machine.nic_of(5))) & set(machine.h2d_route(5)) == set()


def test_superchip_copies_over_c2c() -> None:
    machine = cluster("gb200-nvl72", 1)
    assert kinds(machine, machine.h2d_route(2)) == ["host_memory", "c2c"]


def test_a_gpus_memory_is_one_link_of_its_own() -> None:
    machine = cluster("dgx-h100", 2)
    assert [machine.links[machine.hbm(g)].name for g in (0, 9)] == ["n0.gpu0.hbm", "n1.gpu1.hbm"]


def test_each_gpu_has_its_own_nic() -> None:
    machine = cluster("dgx-h100", 1)
    assert [machine.nic_of(g) for g in range(8)] == [f"n0.nic{k}" for k in range(8)]


def test_gpus_share_few_nics_evenly() -> None:
    machine = cluster({"base": "l40s-pcie", "nics": 2}, 1)
    assert [machine.nic_of(g) for g in range(8)] == ["n0.nic0"] * 4 + ["n0.nic1"] * 4


def test_a_gpu_has_all_of_its_nics() -> None:
    machine = cluster("p5-h100-efa", 1)
    assert machine.nics_of_gpu(7) == tuple(f"n0.nic{k}" for k in (28, 29, 30, 31))


# -- Between nodes ----------------------------------------------------------------------------------------------------


def test_same_rail_stays_on_its_leaf() -> None:
    machine = cluster("dgx-h100", 4)
    assert kinds(machine, machine.route("n0.gpu3", "n2.gpu3")) == ["pcie", "pcie", "nic", "nic", "pcie", "pcie"]


def test_another_rail_goes_over_the_spine() -> None:
    machine = cluster("dgx-h100", 4)
    route = kinds(machine, machine.route("n0.gpu3", "n2.gpu4"))
    assert route == ["pcie", "pcie", "nic", "leaf", "spine", "nic", "pcie", "pcie"]


def test_another_pod_goes_over_the_spine_on_the_same_rail() -> None:
    machine = cluster("dgx-h100", 33)
    assert "spine" in kinds(machine, machine.route("n0.gpu3", "n32.gpu3"))


def test_plain_leaf_joins_all_nics_of_a_node() -> None:
    machine = cluster({"base": "dgx-h100", "fabric": "leaf"}, 2)
    assert "spine" not in kinds(machine, machine.route("n0.gpu3", "n1.gpu4"))


def test_nvlink_domain_spans_the_trays_of_a_rack() -> None:
    machine = cluster("gb200-nvl72", 36)
    assert kinds(machine, machine.route("n0.gpu0", "n17.gpu3")) == ["nvlink", "nvlink"]


def test_another_rack_is_reached_over_the_network() -> None:
    machine = cluster("gb200-nvl72", 36)
    assert "nic" in kinds(machine, machine.route("n17.gpu0", "n18.gpu0"))


def test_nvlink_domain_of_the_second_rack() -> None:
    assert cluster("gb300-nvl72", 36).nvlink_domain(100) == tuple(range(72, 144))


def test_uplink_of_a_leaf_is_its_nics_over_the_oversubscription() -> None:
    machine = cluster({"base": "dgx-h100", "oversubscription": 2}, 16)
    up = next(link for link in machine.links if link.name == "leaf0>spine")
    assert up.bytes_per_s == 16 * 50e9 / 2


def test_remote_host_memory_is_read_over_a_nic_of_its_socket() -> None:
    machine = cluster("dgx-h100", 2)
    route = names(machine, machine.route("n0.numa1", "n1.gpu0"))
    assert route[:5] == ["n0.numa1<>cpu1", "n0.cpu1>pcie4", "n0.pcie4>nic4", "n0.nic4>port4", "leaf4>spine"]


def test_nic_to_nic_is_the_wire_alone() -> None:
    machine = cluster("dgx-h100", 2)
    assert machine.route("n0.nic2", "n1.nic2") == (machine.nic_tx("n0.nic2"), machine.nic_rx("n1.nic2"))


def test_no_route_names_both_ends() -> None:
    machine = cluster({"base": "dgx-h100", "nics": 0}, 2)
    with pytest.raises(UserError, match=r"^no route from n0.gpu0 to n1.gpu0$"):
        machine.route("n0.gpu0", "n1.gpu0")


@pytest.mark.parametrize("vertex", ["n2.gpu0", "n0.gpu8", "gpu0", "nowhere", "n0", "n-1.gpu0", "n0.port0", "leaf2"])
def test_an_unknown_vertex_is_named(vertex: str) -> None:
    with pytest.raises(UserError, match=f"no vertex '{vertex}'"):
        cluster("dgx-h100", 2).route("n0.gpu0", vertex)


def test_a_gpu_without_a_nic_says_so() -> None:
    with pytest.raises(UserError, match=r"no NIC is attached to n0.gpu2"):
        tiny().nic_of(2)


def test_a_gpu_without_a_host_says_so() -> None:
    machine = Cluster.from_wires(device("h20"), duplex("gpu0", "gpu1", "nvlink", 10.0))
    with pytest.raises(UserError, match=r"no host memory is attached to n0.gpu1"):
        machine.h2d_route(1)


def test_a_nic_of_another_node_is_refused() -> None:
    with pytest.raises(UserError, match=r"no route from n1.nic0 to n0.gpu0: they are in different nodes"):
        cluster("dgx-h100", 2).nic_in_route(0, "n1.nic0")


# -- By hand, and large -----------------------------------------------------------------------------------------------


def test_a_cluster_by_hand() -> None:
    machine = tiny()
    assert [machine.capacity[machine.h2d_route(g)[1]] for g in range(machine.n_gpus)] == [10.0] * 4


def test_a_shared_memory_bus_is_one_link_both_ways() -> None:
    machine = tiny()
    assert machine.h2d_route(0)[0] == machine.d2h_route(3)[-1]


@pytest.fixture(scope="module")
def large() -> Cluster:
    return cluster("dgx-h100", 512)


def test_nodes_of_one_type_share_one_template(large: Cluster) -> None:
    assert len({id(node) for node in large.nodes}) == 1


def test_every_gpu_of_a_large_cluster_has_its_own_links(large: Cluster) -> None:
    own = [i for g in range(4096) for i in (large.hbm(g), large.h2d_route(g)[-1], large.nic_rx(large.nic_of(g)))]
    assert len(set(own)) == 3 * 4096


@given(nics=st.integers(8, 40))
def test_every_nic_serves_exactly_one_gpu_when_there_are_enough(nics: int) -> None:
    machine = cluster({"base": "dgx-h100", "nics": nics}, 1)
    served = [nic for g in range(8) for nic in machine.nics_of_gpu(g)]
    assert sorted(served) == sorted(machine.nics_of(0))


@given(nics=st.sampled_from([1, 2, 4, 8]), base=st.sampled_from(["dgx-h100", "dgx-a100", "dgx-b200"]))
def test_few_nics_serve_equally_many_gpus(nics: int, base: str) -> None:
    machine = cluster({"base": base, "nics": nics}, 1)
    own = [machine.nic_of(g) for g in range(8)]
    assert {own.count(nic) for nic in machine.nics_of(0)} == {8 // nics}


@given(gpu=st.integers(0, 4095))
def test_every_node_routes_as_node_zero_does(large: Cluster, gpu: int) -> None:
    node, local = large.node_of(gpu), gpu - large.gpus_of(large.node_of(gpu)).start
    shifted = [name.replace("n0.", f"n{node}.", 1) for name in names(large, large.h2d_route(local))]
    assert names(large, large.h2d_route(gpu)) == shifted


@pytest.fixture(scope="module")
def mixed() -> Cluster:
    parts = [("dgx-h100", 3), ("gb300-nvl72", 10), ("dgx-v100", 1)]
    return cluster({"mix": [{"base": base, "nodes": nodes} for base, nodes in parts]}, 14)


@given(a=st.integers(0, 71), b=st.integers(0, 71))
def test_a_route_is_a_path_from_source_to_destination(mixed: Cluster, a: int, b: int) -> None:
    steps = [ends(mixed, name) for name in names(mixed, mixed.route(mixed.gpu(a), mixed.gpu(b)))]
    stops = [mixed.gpu(a), *(dst for _, dst in steps)]
    assert ([src for src, _ in steps], stops[-1]) == (stops[:-1], mixed.gpu(b))


# -- Machines that repeat themselves -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "nodes", "period"),
    [
        ("dgx-h100", 4, 8),
        ("gb200-nvl72", 36, 72),
        ({"base": "dgx-h100", "oversubscription": 2}, 4, 0),
        ({"mix": [{"base": "dgx-h100", "nodes": 2}, {"base": "dgx-a100", "nodes": 2}]}, 4, 0),
    ],
)
def test_a_cluster_repeats_itself_after_a_node_or_a_domain(spec, nodes, period) -> None:
    assert cluster(spec, nodes).period == period


@pytest.mark.parametrize(("name", "nodes"), [("dgx-h100", 4), ("l40s-pcie", 4), ("gb200-nvl72", 36)])
def test_routes_move_by_a_period(name, nodes) -> None:
    machine = cluster(name, nodes)
    moved = machine.period
    for a, b in ((0, 1), (0, 3), (1, 2)):
        route = machine.route(machine.gpu(a), machine.gpu(b))
        beyond = machine.route(machine.gpu(a + moved), machine.gpu(b + moved))
        by = machine.links_moved(np.array([moved]))[0]
        assert tuple(link + by for link in route) == beyond
