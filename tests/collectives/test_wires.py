"""Nothing beats a wire that it crosses: collectives of steps and rings of updates against the line rates of links."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.collectives import Collective, Layout, Machines, Measured
from runcast.simulator.collectives.rings import ring_broadcast
from runcast.simulator.costs import cost
from runcast.simulator.engine import simulate
from runcast.simulator.hardware import Cluster, cluster
from runcast.simulator.profile import load_profile, load_stack, profile_for
from runcast.simulator.program import ProgramBuilder
from runcast.simulator.scenario import check_train
from runcast.simulator.systems.train_step.resolve import ResolvedTrain

from ..examples import examples

MACHINES = ["a100-40-hgx", "b300-hgx", "dgx-2", "dgx-a100", "dgx-b200", "dgx-h100", "dgx-v100", "gb200-nvl72",
            "gb300-nvl72", "h100-roce", "h20-hgx", "h800-hgx", "l40s-pcie", "p5-h100-efa"]  # fmt: skip
KINDS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all"]
SIZES = st.floats(10, 34).map(lambda power: int(2**power))
MORE_NICS = ["dgx-h100", "dgx-b200", "dgx-a100", "h800-hgx", "l40s-pcie"]


@cache
def machines(name: str, nodes: int, changes: tuple = ()) -> Cluster:
    return cluster({"base": name, **dict(changes)}, nodes)


@cache
def profile(name: str):
    device = machines(name, 1).nodes[0].device
    return load_profile(profile_for(*device.lineage)).join(load_stack("generic"))


def priced(kind: str, name: str, nodes: int, size: int, changes: tuple = (), every: int = 1):
    """Seconds of one op of every so manieth GPU of these nodes, and the bytes that it puts on links, by name."""
    there = machines(name, nodes, changes)
    group = tuple(range(0, there.n_gpus, every))
    b = ProgramBuilder()
    b.op(kind, [b.lane(b.place("stage", range(there.n_gpus)), "dp")], size_bytes=size, group=group)
    costs = cost(b.build(), there, profile(name), "measured")
    return float(costs.work_s[0]), dict(zip(costs.demand_of(0)[0].tolist(), costs.demand_of(0)[1], strict=True))


def least_s(kind: str, there: Cluster, nodes: int, size: int) -> float:
    """Of all ranks: what one of them must send and receive over its NVLink port (or PCIe) and its share of the NICs.

    Switches may add up what an all-reduce sends, so that it crosses a port once (NVLink SHARP); two nodes send each
    other their sums once.
    """
    each, ranks = there.gpus_per_node[0], there.n_gpus
    near = there.route(there.gpu(0), there.gpu(1))
    port = min(there.capacity[link] for link in near if there.links[link].kind in ("nvlink", "pcie"))
    if len(there.nvlink_domain(0)) > 2 and there.links[near[0]].kind == "nvlink":  # all wires of the GPU together
        out = [link for link in there.links if link.kind == "nvlink" and link.name.startswith("n0.gpu0>")]
        port = sum(link.bytes_per_s for link in out)
    nics = sum(there.capacity[there.nic_tx(nic)] for nic in there.nics_of(0)) / each
    inside = {"all_reduce": size, "broadcast": size, "reduce": size, "all_to_all": size * (each - 1) / ranks}.get(
        kind, size * (each - 1) / each
    )
    outside = size * (nodes - 1) / nodes if kind == "all_to_all" else size * (ranks - 1) / ranks / each
    return max(inside / port, outside / nics if nodes > 1 else 0.0)


@examples(50)
@given(kind=st.sampled_from(KINDS), name=st.sampled_from(MACHINES), size=SIZES, nodes=st.integers(1, 3))
def test_no_collective_beats_a_wire(kind, name, size, nodes):
    there = machines(name, nodes)
    if len({there.island(gpu) for gpu in range(there.n_gpus)}) < nodes:
        nodes = 1  # one NVLink domain
    seconds, _ = priced(kind, name, there.n_nodes, size)

    assert seconds >= least_s(kind, there, nodes, size) * (1 - 1e-9)


@examples(50)
@given(
    kind=st.sampled_from(KINDS),
    name=st.sampled_from(MACHINES),
    size=SIZES,
    nodes=st.integers(1, 4),
    every=st.sampled_from([1, 2, 8]),
)
def test_links_carry_no_more_than_they_can(kind, name, size, nodes, every):
    _, demand = priced(kind, name, nodes, size, every=every)
    line = machines(name, nodes).capacity

    assert all(rate <= line[link] * (1 + 1e-9) for link, rate in demand.items())


@examples(50)
@given(kind=st.sampled_from(KINDS), name=st.sampled_from(MACHINES), size=SIZES, nics=st.sampled_from([1, 2, 4]))
def test_leaving_a_node_is_no_faster_than_staying(kind, name, size, nics):
    """Weak scaling: the same buffers on twice as many GPUs. An all-to-all may gain where NICs are wider than NVLink."""
    more = len(machines(name, 1).nics_of(0)) * nics
    changes = (("nics", more), ("nvlink_domain_nodes", 1), ("leaf_radix", 4 * more))  # ports for all
    near, far = (priced(kind, name, nodes, size, changes)[0] for nodes in (1, 2))

    assert far >= near * (1 - 1e-9) or (kind == "all_to_all" and nics > 1)


@examples(50)
@given(
    kind=st.sampled_from(KINDS),
    name=st.sampled_from(MORE_NICS),
    size=SIZES,
    nodes=st.integers(1, 4),
    key=st.sampled_from(["nics", "nvlink"]),
)
def test_more_bandwidth_is_never_slower(kind, name, size, nodes, key):
    shape = machines(name, 1)
    rate = max((link.bytes_per_s for link in shape.links if link.kind == "nvlink"), default=0.0)
    changes = {"nics": ("nics", 2 * len(shape.nics_of(0))), "nvlink": ("nvlink_bytes_per_s", 2 * rate)}[key]
    now, more = (priced(kind, name, nodes, size, with_)[0] for with_ in ((), (changes,)))

    assert more <= now * (1 + 1e-9)


def test_an_all_reduce_of_two_h800_nodes_passes_their_nvlink():
    """1 GB: 215 GB/s of bus bandwidth were measured in a node (NVIDIA/nccl#1374), through 200 GB/s of NVLink."""
    near, far = (priced("all_reduce", "h800-hgx", nodes, 2**30)[0] for nodes in (1, 2))

    assert far == pytest.approx(near)
    assert 200e9 < 2 * 7 / 8 * 2**30 / near < 240e9


def test_racks_exchange_no_faster_than_their_nvlink():
    seconds, _ = priced("all_gather", "gb200-nvl72", 36, 2**34)

    assert seconds >= 2**34 * 71 / 72 / 900e9


def test_both_ways_of_a_gpu_without_nvlink_go_through_its_pcie_port():
    """What it sends to its neighbours and to the network shares one x16 port."""
    there = machines("l40s-pcie", 2)
    _, demand = priced("all_gather", "l40s-pcie", 2, 2**30)
    seconds, _ = priced("all_gather", "l40s-pcie", 2, 2**30)
    port = there.route(there.gpu(0), there.gpu(1))[0]

    assert demand[port] * seconds == pytest.approx(2**30 * (7 / 8 + 15 / 16 / 8))


@pytest.mark.parametrize("nics", [3, 5, 6, 7])
def test_nics_that_do_not_divide_the_gpus_carry_equal_shares(nics):
    there = machines("dgx-h100", 4, (("nics", nics),))
    seconds, demand = priced("all_gather", "dgx-h100", 4, 2**32, (("nics", nics),))

    assert demand[there.nic_tx("n0.nic0")] * seconds == pytest.approx(2**32 * 31 / 32 / nics)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "all_to_all", "send_recv"])
def test_two_gpus_use_no_more_than_the_wire_between_them(op):
    """One of six wires of a V100; the others lead to GPUs that are not in the group."""
    switch = {"nvlink": "switch", "nvlink_bytes_per_s": "25 GB/s", "nvlink_wires": []}
    wired, switched = (
        Measured(Machines(there, profile("dgx-v100")), Layout(there, {})).price(Collective(op, (0, 1), 2**28), 0)
        for there in (machines("dgx-v100", 1), cluster({"base": "dgx-v100", **switch}, 1))
    )

    assert wired.seconds == pytest.approx(switched.seconds)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "all_to_all"])
def test_gpus_of_half_a_node_share_their_nics_as_those_of_a_whole_one(op):
    """Two GPUs to a NIC of 400 Gb/s take as long as one to a NIC of 200 Gb/s."""
    half = (0, 1, 2, 3, 8, 9, 10, 11)
    nodes = {"nics": 4, "pcie_switches": 4}, {"nic": "200 Gb/s"}
    shared, own = (
        Measured(Machines(there, profile("dgx-h100")), Layout(there, dict.fromkeys(half, half)))
        for there in (machines("dgx-h100", 2, tuple(changes.items())) for changes in nodes)
    )
    shared_s, own_s = (one.price(Collective(op, half, 2**28), 0).seconds for one in (shared, own))

    assert shared_s == pytest.approx(own_s)


def test_a_nic_behind_a_slower_slot_sends_as_one_of_that_rate():
    """PCIe 4 carries 31.5 GB/s, 252 Gb/s."""
    there = machines("dgx-h100", 2, (("pcie_gen", 4),))
    slot = there.route(there.gpu(0), "n0.nic0")[0]
    wide, slim = (
        priced("all_gather", "dgx-h100", 2, 2**30, (("pcie_gen", 4), ("nic", rate)))[0]
        for rate in ("400 Gb/s", f"{there.capacity[slot]} B/s")
    )

    assert wide == pytest.approx(slim)


@pytest.mark.parametrize(("kind", "crossing"), [("all_reduce", 2 * 7 / 8), ("all_to_all", 2 * 4 * 4 / 8 / 2)])
def test_without_nvlink_what_crosses_sockets_goes_through_their_link(kind, crossing):
    """A ring crosses it once each way; of 4 GPUs on each socket each one sends to 4 on the other."""
    seconds, _ = priced(kind, "l40s-pcie", 1, 2**30, (("socket_bytes_per_s", "1 GB/s"),))
    sustained = 1e9 * profile("l40s-pcie").value("link_fraction.socket")

    assert seconds == pytest.approx(2**30 * crossing / sustained, rel=1e-3)


@pytest.mark.parametrize("name", ["h100-pcie", "h100-nvl"])
def test_no_ring_over_pcie_is_faster_than_its_lanes_sustain(name):
    """Curves of NVLink, on which switches may add what GPUs send, would reach the whole line rate or more."""
    seconds, _ = priced("all_reduce", name, 1, 2**30)
    there = machines(name, 1)
    port = there.capacity[there.route(there.gpu(0), there.gpu(2))[0]]

    assert seconds == pytest.approx(2 * 7 / 8 * 2**30 / (port * profile(name).value("link_fraction.pcie")), rel=1e-3)


def test_gpus_behind_a_pcie_switch_share_its_uplink():
    """Two of 8 GPUs: 2 x 6 messages of an eighth leave the switch."""
    seconds, _ = priced("all_to_all", "l40s-pcie", 1, 2**30)
    there = machines("l40s-pcie", 1)
    uplink = there.route(there.gpu(0), there.gpu(2))[1]

    assert seconds >= 2**30 * 2 * 6 / 8 / there.capacity[uplink] * (1 - 1e-9)


def test_trees_send_sums_to_the_other_node_once():
    """NCCL's trees send less over the NICs of two nodes than a ring would (NVIDIA/nccl#209, nccl-tests#309)."""
    there = machines("dgx-h100", 2)
    seconds, demand = priced("all_reduce", "dgx-h100", 2, 2**32)

    assert demand[there.nic_tx("n0.nic0")] * seconds == pytest.approx(2**32 / 8)


SMALL = {"preset": "llama3.2-1b"}


@pytest.mark.parametrize("name", ["h800-hgx", "l40s-pcie", "dgx-h100", "dgx-a100", "p5-h100-efa"])
@pytest.mark.parametrize("nics", [1, 4])
def test_a_step_gains_nothing_from_a_second_node(name, nics):
    """Weak scaling without overlap: twice the GPUs, twice the batch."""
    many = len(machines(name, 1).nics_of(0)) * nics

    def step_s(nodes):
        table = {
            "kind": "train_step", "cluster": {"base": name, "nics": many}, "nodes": nodes, "model": SMALL,
            "batch": {"global": 16 * nodes, "seq_len": 2048}, "parallel": {"zero": 0}, "overlap": {"dp": False},
            "recompute": {"mode": "full"},
        }  # fmt: skip
        step = ResolvedTrain(check_train(table))
        return simulate(step.program, step.costs).makespan_s

    assert step_s(2) >= step_s(1)


@examples(40)
@given(name=st.sampled_from(MACHINES), nodes=st.integers(1, 3), every=st.sampled_from([1, 2, 4]))
def test_rings_of_updates_beat_no_wire_and_gain_nothing_from_nodes(name, nodes, every):
    there = machines(name, nodes + 1)
    each = there.gpus_per_node[0]
    rings = [ring_broadcast(there, range(0, many * each, every)) for many in (nodes, nodes + 1)]
    rates = [ring.rate_bytes_per_s(there.capacity)[0] for ring in rings]

    assert (rings[1].shares_from(0) * rates[1] <= there.capacity[rings[1].link] * (1 + 1e-9)).all()
    assert rates[1] <= rates[0] * (1 + 1e-9)


@pytest.mark.parametrize("factor", [0.1, 0.9])
def test_software_shortens_a_collective_to_what_its_wires_take(factor):
    """A factor below one is software that is better than what was measured."""
    there, b = machines("dgx-h100", 1), ProgramBuilder()
    b.op("all_gather", [b.lane(b.place("stage", range(8)), "dp")], size_bytes=2**32, group=tuple(range(8)))
    program, wires_s = b.build(), 2**32 * 7 / 8 / 450e9
    usual, with_software = (
        float(cost(program, there, profile("dgx-h100").set_values(values, "a test"), "measured").work_s[0])
        for values in ({"time_factor.dp": 1.0}, {"time_factor.dp": factor})
    )
    assert 0.1 * usual < wires_s < 0.9 * usual
    assert with_software == pytest.approx(max(wires_s, factor * usual))
