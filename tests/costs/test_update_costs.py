"""Costs of an update Program on cluster graphs: which links carry how many bytes, and what limits an op alone."""

from dataclasses import replace

import numpy as np
import pytest
from runcast.simulator.collectives import STREAMS, ring_broadcast
from runcast.simulator.collectives.wires import read_route
from runcast.simulator.costs import Costs, cost
from runcast.simulator.engine import simulate
from runcast.simulator.hardware import Cluster, cluster, cluster_names
from runcast.simulator.profile import PARAMETERS, Parameter, Profile
from runcast.simulator.program import Program
from runcast.simulator.systems.weight_update.lower import BucketSize, assign_readers, make_plan, three_stage, two_stage

GB = 10**9
BUCKETS = np.array([3, 1, 4, 1, 5, 9, 2, 6]) * GB
IDEAL = Profile(
    "ideal",
    {
        name: Parameter(
            float(name.startswith(("link_fraction", "copy.hbm_fraction", "interference"))), 0.0, "exact", "-"
        )
        for name in PARAMETERS
    },
)


def priced(machine: Cluster, ranks: int, write=two_stage) -> tuple[Program, Costs]:
    program = write(make_plan(BUCKETS, ranks, BucketSize(9 * GB, 3)))
    return program, cost(program, machine, IDEAL, STREAMS)


def bytes_by_kind_of_link(machine: Cluster, costs: Costs) -> dict[str, list[float]]:
    """Bytes on each link of a kind, in GB, in index order."""
    found: dict[str, list[float]] = {}
    for link, size in zip(machine.links, costs.link_bytes, strict=True):
        found.setdefault(link.kind, []).append(round(float(size) / GB, 6))
    return found


def test_an_h2d_copy_takes_its_bytes_over_the_slowest_link():
    machine = cluster("l40s-pcie", 1)
    program, costs = priced(machine, 4)
    h2d = np.flatnonzero(program.is_kind("h2d"))
    slowest = [min(machine.capacity[list(machine.h2d_route(int(program.root[op])))]) for op in h2d]
    np.testing.assert_allclose(costs.uncontended_s[h2d], program.bytes[h2d] / slowest, rtol=1e-12)


def test_a_broadcast_inside_a_node_takes_its_bytes_over_one_nvlink_port():
    machine = cluster("h20-hgx", 1)
    program, costs = priced(machine, 8)
    casts = np.flatnonzero(program.is_kind("broadcast"))
    np.testing.assert_allclose(costs.uncontended_s[casts], program.bytes[casts] / 450e9, rtol=1e-12)


def test_a_broadcast_between_nodes_takes_its_bytes_over_all_rails():
    machine = cluster("h20-hgx", 2)
    assert ring_broadcast(machine, range(16)).rate_bytes_per_s(machine.capacity)[0] == pytest.approx(8 * 50e9)


def test_a_ring_inside_a_node_puts_its_share_on_every_port():
    """All S bytes, to (n-1)/n, leave and enter each of the n GPUs; H2D crosses no NVLink."""
    machine = cluster("h20-hgx", 1)
    _, costs = priced(machine, 8)
    assert bytes_by_kind_of_link(machine, costs)["nvlink"] == pytest.approx([31 * 7 / 8] * 16)


def test_each_node_receives_the_buckets_of_the_others_over_its_nics():
    """Two nodes with a bucket of 31/8 GB per rank on average: what node 0 owns enters node 1, and the reverse."""
    machine = cluster({"base": "h20-hgx", "gpus_per_node": 4, "nics": 4, "pcie_switches": 4}, 2)
    _, costs = priced(machine, 8)
    own = BUCKETS[:4].sum() / GB, BUCKETS[4:].sum() / GB
    entering = [
        sum(float(costs.link_bytes[machine.nic_rx(f"n{node}.nic{k}")]) for k in range(4)) / GB for node in range(2)
    ]
    assert entering == pytest.approx([own[1], own[0]])


def test_h2d_loads_each_gpus_inbound_lane_with_its_own_share():
    machine = cluster("h20-hgx", 1)
    _, costs = priced(machine, 8)
    inbound = [machine.h2d_route(rank)[-1] for rank in range(8)]
    np.testing.assert_allclose(costs.link_bytes[inbound], BUCKETS, rtol=1e-12)


@pytest.mark.parametrize("name", ["h20-hgx", "l40s-pcie", "gb200-nvl72"])
@pytest.mark.parametrize("write", [two_stage, three_stage])
def test_a_run_is_never_faster_than_the_busiest_link(name, write):
    machine = cluster(name, 2)
    program, costs = priced(machine, 8, write)
    assert simulate(program, costs).makespan_s >= (costs.link_bytes / costs.capacity_bytes_per_s).max() * (1 - 1e-9)


MACHINES = [
    *((name, 2) for name in cluster_names()),
    ({"base": "h20-hgx", "nics": 4}, 2),
    ({"base": "h20-hgx", "nic_attach": "socket", "pcie_switches": 4}, 2),
    ({"base": "h20-hgx", "fabric": "leaf", "leaf_radix": 16, "oversubscription": 16}, 8),
]


@pytest.mark.parametrize(("name", "nodes"), MACHINES, ids=str)
def test_a_ring_asks_no_more_of_a_link_than_there_is(name, nodes):
    machine = cluster(name, nodes)
    ring = ring_broadcast(machine, range(machine.n_gpus))
    for island in range(ring.islands):
        rate, slowest = ring.rate_bytes_per_s(machine.capacity, island)
        used = ring.shares_from(island) * rate / machine.capacity[ring.link]
        assert used.max() <= 1 + 1e-9
        assert used[ring.link == slowest] > 0.7  # a lone ring leaves 1/m of its slowest link idle


@pytest.mark.parametrize(("name", "nodes"), MACHINES, ids=str)
def test_every_rank_but_the_root_receives_every_byte_once(name, nodes):
    """Bytes into GPUs over wires of any kind: one per byte sent, in the islands together as often as ranks but one."""
    machine = cluster(name, nodes)
    ring = ring_broadcast(machine, range(machine.n_gpus))
    entering = [link.name.split(">")[-1].startswith("gpu") and link.kind != "hbm" for link in machine.links]
    share = ring.shares_from(0)[np.array(entering)[ring.link]]
    assert share.sum() == pytest.approx(machine.n_gpus - 1)


def test_a_ring_over_wires_visits_neighbours():
    """DGX-1: in natural order two hops would cross PCIe; the widest ring runs over double NVLinks, 50 GB/s."""
    machine = cluster("dgx-v100", 1)
    ring = ring_broadcast(machine, range(8))
    kinds = {machine.links[link].kind for link in ring.link}
    assert (kinds, ring.rate_bytes_per_s(machine.capacity)[0]) == ({"nvlink"}, 50e9)


def test_an_oversubscribed_leaf_slows_a_broadcast():
    rates = [
        ring_broadcast(machine, range(64)).rate_bytes_per_s(machine.capacity)[0]
        for factor in (1, 4)
        for machine in [cluster({"base": "h20-hgx", "fabric": "leaf", "leaf_radix": 16, "oversubscription": factor}, 8)]
    ]
    assert rates[1] < rates[0]


@pytest.mark.parametrize("name", ["h20-hgx", "l40s-pcie", "h100-pcie"])
def test_no_op_asks_more_of_a_link_than_there_is(name):
    """Otherwise its uncontended time would not be what it takes alone. Device memory counts reads and writes."""
    machine = cluster(name, 2)
    sizes = np.tile(BUCKETS, 2)
    program = two_stage(make_plan(sizes, 16, BucketSize(9 * GB, 3)))
    costs = cost(program, machine, IDEAL, STREAMS)
    for op in range(len(program)):
        links, rates = costs.demand_of(op)
        assert (rates <= costs.capacity_bytes_per_s[links] * (1 + 1e-9)).all(), program.names[op]


def test_one_rank_alone_broadcasts_to_nobody():
    machine = cluster("h20-hgx", 1)
    program, costs = priced(machine, 1)
    assert costs.uncontended_s[program.is_kind("broadcast")].tolist() == [0.0] * int(program.is_kind("broadcast").sum())
    assert np.isfinite(costs.link_bytes).all()
    assert np.isfinite(simulate(program, costs).makespan_s)


def priced_at(**values: float) -> Profile:
    """Ideal links, and these parameters; all others cost nothing."""
    plain = {n: float(n.startswith(("link_fraction", "copy.hbm_fraction", "interference"))) for n in PARAMETERS}
    return Profile("p", {n: Parameter(v, 0.0, "exact", "-") for n, v in (plain | values).items()})


SMALL = {"base": "h20-hgx", "gpus_per_node": 2, "nics": 2, "pcie_switches": 2}


def seconds_of(kind: str, nodes: int, **values: float) -> tuple[Cluster, np.ndarray]:
    machine = cluster(SMALL, nodes)
    program = two_stage(make_plan(np.full(2 * nodes, GB), 2 * nodes, BucketSize(GB, 3)))
    costs = cost(program, machine, priced_at(**values), STREAMS)
    return machine, costs.uncontended_s[program.is_kind(kind)]


def test_filling_the_ring_adds_in_the_4_norm():
    """4 ranks in 2 nodes: 2 hops inside, 1 between; as long as the transfer, they make it 2 ** (1/4) as long."""
    machine, _ = seconds_of("broadcast", 2)
    wires = ring_broadcast(machine, range(4)).latency_s
    transfer = GB / (2 * 50e9)
    hops = {"broadcast.hop_s": transfer / 4, "broadcast.node_hop_s": transfer / 2 - wires}
    np.testing.assert_allclose(seconds_of("broadcast", 2, **hops)[1], 2**0.25 * transfer, rtol=1e-9)


def test_agreeing_takes_a_step_per_doubling_of_nodes_and_its_wires():
    machine, seconds = seconds_of("agree", 4, **{"agree.latency_s": 1.0, "agree.doubling_s": 10.0})
    wires = ring_broadcast(machine, range(8)).latency_s
    assert wires > 0
    np.testing.assert_allclose(seconds, 1 + 2 * 10 + 2 * 2 * wires, rtol=1e-12)


def test_a_reload_is_a_call_and_host_work_per_tensor_and_its_bytes():
    values = {"reload.s": 0.5, "reload.tensor_s": 0.25, "copy.hbm_fraction": 0.5}
    _, seconds = seconds_of("reload", 1, **values)
    np.testing.assert_allclose(seconds, 0.5 + 1 * 0.25 + 2 * GB / (0.5 * 4e12), rtol=1e-12)


def test_slow_device_memory_bounds_a_broadcast_which_reads_and_writes_it():
    machine = cluster({"base": "h20-hgx", "device": {"base": "h20", "memory_bytes_per_s": "100 GB/s"}}, 1)
    program, costs = priced(machine, 8)
    casts = np.flatnonzero(program.is_kind("broadcast"))
    np.testing.assert_allclose(costs.uncontended_s[casts], 2 * program.bytes[casts] / 100e9, rtol=1e-12)


@pytest.mark.parametrize(("nodes", "expected"), [(1, 2 * 0.25), (2, 4 * (0.25 + 0.5))])
def test_gathering_metadata_takes_longer_per_tensor_between_nodes(nodes, expected):
    _, seconds = seconds_of("gather_metas", nodes, **{"gather.tensor_s": 0.25, "gather.node_tensor_s": 0.5})
    assert seconds.tolist() == [expected]


def test_landing_buffers_are_registered_and_forgotten_at_prices_of_their_own():
    values = {"register.s": 1.0, "register.byte_s": 2 / GB, "unregister.s": 4.0, "unregister.byte_s": 8 / GB}
    machine = cluster(SMALL, 1)
    plan = make_plan(np.full(2, GB), 2, BucketSize(GB, 3))
    program = two_stage(assign_readers(plan, [machine.nic_of(rank) for rank in range(2)], 2))
    seconds = cost(program, machine, priced_at(**values, **{"rdma.nic_fraction": 1.0}), STREAMS).uncontended_s
    size = plan.size.bytes / GB
    assert set(seconds[program.is_kind("register")].round(6)) == {round(1 + 2 * size, 6)}
    assert set(seconds[program.is_kind("unregister")].round(6)) == {round(4 + 8 * size, 6)}


def test_a_read_leaves_the_owners_host_and_enters_the_readers_device():
    machine = cluster(SMALL, 2)
    nics = [machine.nic_of(rank) for rank in range(4)]
    plan = assign_readers(make_plan(np.full(4, GB), 4, BucketSize(GB, 3)), nics, 2)
    program = two_stage(plan)
    costs = cost(program, machine, priced_at(**{"rdma.nic_fraction": 1.0}), STREAMS)
    for op in np.flatnonzero(program.is_kind("read")):
        reader, (owner,) = int(program.root[op]), program.shape[op].tolist()
        assert set(costs.demand_of(op)[0].tolist()) == {*read_route(machine, owner, reader), machine.hbm(reader)}


def test_where_the_software_says_so_a_rank_copies_what_it_owns_itself_in_memory():
    machine = cluster(SMALL, 2)
    plan = assign_readers(
        make_plan(np.full(4, GB), 4, BucketSize(GB, 3)), [machine.nic_of(rank) for rank in range(4)], 2
    )
    program = two_stage(plan)
    costs = cost(program, machine, priced_at(**{"rdma.nic_fraction": 1.0, "read.in_memory": 1.0}), STREAMS)
    read_by = {(int(program.root[op]), program.shape[op][0]): op for op in np.flatnonzero(program.is_kind("read"))}

    assert set(costs.demand_of(read_by[0, 0])[0].tolist()) == {*machine.h2d_route(0), machine.hbm(0)}
    assert machine.nic_rx(machine.nic_of(1)) in costs.demand_of(read_by[1, 3])[0]


def test_a_broadcast_writes_and_reads_every_byte_in_each_memory():
    machine = cluster("h20-hgx", 1)
    program, costs = priced(machine, 8)
    moved = costs.link_bytes[[machine.hbm(rank) for rank in range(8)]]
    copies = BUCKETS * 3.0  # H2D writes, the copy reads and writes
    kept = 2 * float(program.bytes[program.is_kind("reload")].sum()) / 8
    np.testing.assert_allclose(moved, copies + kept + 2 * BUCKETS.sum(), rtol=1e-12)


def test_a_class_moves_what_all_its_ranks_move():
    machine, size = cluster("h20-hgx", 1), BucketSize(9 * GB, 3)
    sums = [
        cost(program, machine, IDEAL, STREAMS).link_bytes[[machine.hbm(rank) for rank in range(8)]].sum()
        for program in (two_stage(make_plan(BUCKETS, 8, size, classes=classes)) for classes in (None, [range(8)]))
    ]
    assert sums[0] == pytest.approx(sums[1])


def test_the_slowest_memory_bounds_a_reload():
    slow = SMALL | {"device": {"base": "h20", "memory_bytes_per_s": "1 TB/s"}, "nodes": 1}
    machine = cluster({"mix": [SMALL | {"nodes": 1}, slow]}, 2)
    program = two_stage(make_plan(np.full(4, GB), 4, BucketSize(GB, 3), classes=[range(4)]))
    seconds = cost(program, machine, IDEAL, STREAMS).uncontended_s[program.is_kind("reload")]
    np.testing.assert_allclose(seconds, 2 * GB / 1e12, rtol=1e-12)


def test_where_one_node_has_fewer_nics_those_on_their_rails_are_used():
    machine = cluster("h20-hgx", 2)
    ring = ring_broadcast(machine, range(4, 16))
    used = {machine.links[link].name for link in ring.link if machine.links[link].kind == "nic"}
    assert {name for name in used if name.startswith("n1.nic")} == {f"n1.nic{k}>port{k}" for k in range(4, 8)}


def test_where_the_library_says_so_broadcasts_between_nodes_go_along_trees():
    """Of four nodes the root sends to two at once, one of which sends on: three times the bytes over its link."""
    trees = replace(IDEAL, parameters={**IDEAL.parameters, "broadcast.tree": Parameter(1.0, 0.0, "exact", "-")})
    machine = cluster({"base": "cpu-host", "gpus_per_node": 1}, 4)
    program = two_stage(make_plan(BUCKETS, 4, BucketSize(9 * GB, 3)))
    ring, tree = (cost(program, machine, profile, STREAMS) for profile in (IDEAL, trees))
    casts = program.is_kind("broadcast")
    assert tree.uncontended_s[casts] == pytest.approx(
        3 * program.bytes[casts] / machine.capacity[machine.nic_tx(machine.nic_of(0))], rel=1e-3
    )  # and start-ups
    assert (tree.uncontended_s[casts] > ring.uncontended_s[casts]).all()
    assert tree.uncontended_s[~casts] == pytest.approx(ring.uncontended_s[~casts])
