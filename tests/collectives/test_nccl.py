"""NCCL's choices: what its protocols carry and wait for, what channels carry, and which way it takes by size."""

from functools import cache
from itertools import pairwise
from math import log2

import pytest
from runcast.simulator.collectives import Machines
from runcast.simulator.collectives.algorithms import algorithms
from runcast.simulator.collectives.algorithms.hops import ClusterNet
from runcast.simulator.collectives.backends import Asked
from runcast.simulator.collectives.nccl import Nccl, _estimate_s
from runcast.simulator.hardware import cluster
from runcast.simulator.profile import load_network, load_profile, load_stack


@cache
def net(nodes, name="dgx-h100", device="h100-sxm", op="all_reduce"):
    profile = load_profile(device).join(load_network("infiniband")).join(load_stack("generic"))
    machines = Machines(cluster(name, nodes), profile)
    return ClusterNet(machines, range(machines.cluster.n_gpus), op)


def asked(nodes, size, op="all_reduce", channels=None, **keys):
    given = net(nodes, op=op, **keys)
    return Asked(op, size, given, given.group(), channels)


def ways(one):
    return {(way.algorithm, way.protocol): way for way in Nccl().ways(one)}


def seconds(one, way):
    return one.net.under(way.wire).formula(algorithms(one.op)[way.algorithm], one.size).seconds


def chosen(nodes, size, op="all_reduce", **keys):
    one = asked(nodes, size, op, **keys)
    way = Nccl().choose(one, Nccl().ways(one))
    return way.algorithm, way.protocol


@pytest.mark.parametrize(("protocol", "share"), [("LL", 1 / 2), ("LL128", 120 / 128), ("Simple", 1)])
def test_bytes_of_a_ring_go_at_the_share_of_its_protocol(protocol, share):
    """8 H100: 14 steps of an eighth; LL carries 141 GB/s at most, which is below half of what NVLink sustains."""
    large, empty = asked(1, 8 << 30), asked(1, 8)
    way = ways(large)["ring", protocol]
    rate = min(net(1).kinds["inside"].bytes_per_s * share, 141e9 if protocol == "LL" else 1e15)
    found = seconds(large, way) - seconds(empty, way)
    assert found == pytest.approx(14 / 8 * (8 << 30) / rate, rel=1e-6)


@pytest.mark.parametrize(("protocol", "inside_s", "between_s", "call_s"), [
    ("LL", 0, 0, 0), ("LL128", 1.3e-6, 1.3e-6, 7.4e-6), ("Simple", 2.8e-6, 11.3e-6, 1.8e-6),
])  # fmt: skip
def test_a_ring_waits_for_its_protocol_and_for_each_hop_as_often_as_a_block_takes_it(
    protocol, inside_s, between_s, call_s
):
    """4 nodes: 62 hops, of which 6 lead to another node."""
    one = asked(4, 1e-3)
    hops = {hop: known.latency_s for hop, known in net(4).kinds.items()}
    expected = 56 * (hops["inside"] + inside_s) + 6 * (hops["striped"] + between_s)
    assert seconds(one, ways(one)["ring", protocol]) == pytest.approx(net(4).launch_s + call_s + expected)


def test_few_channels_carry_less():
    """Of Hopper a channel carries 38.7 GB/s in a node; 4 of them hold 4 SMs."""
    one = asked(1, 8 << 30, channels=4)
    way = ways(one)["ring", "Simple"]
    assert way.channels == 4
    assert one.size / seconds(one, way) * 14 / 8 == pytest.approx(4 * 38.7e9, rel=1e-3)


def test_channels_fill_the_slowest_hop_unless_they_are_said():
    for one in ways(asked(4, 1 << 20)).values():
        assert one.channels * 36e9 >= net(4).kinds["inside"].bytes_per_s > (one.channels - 1) * 36e9


@pytest.mark.parametrize("nodes", [2, 4, 32])
def test_between_nodes_trees_take_small_messages_and_nvls_trees_large_ones(nodes):
    found = [chosen(nodes, 1 << k) for k in range(10, 33)]
    assert (found[0], found[-1]) == (("tree", "LL"), ("two_level", "Simple"))
    order = ["LL", "LL128", "Simple"]
    if nodes > 2:
        assert all(order.index(a[1]) <= order.index(b[1]) for a, b in pairwise(found))


def test_a_node_takes_a_ring_for_small_messages_and_nvls_for_large_ones():
    assert (chosen(1, 1 << 10), chosen(1, 1 << 30)) == (("ring", "LL"), ("nvls", "Simple"))


def test_an_all_gather_goes_round_a_ring_with_the_protocol_of_its_size():
    found = [chosen(4, 1 << k, "all_gather") for k in (12, 24, 32)]
    assert found == [("ring", "LL"), ("ring", "LL128"), ("ring", "Simple")]


def test_without_nvlink_there_is_no_ll128_and_without_nvls_no_nvls():
    found = ways(asked(2, 1 << 20, name="l40s-pcie", device="l40s"))
    assert [*found] == [("ring", "LL"), ("ring", "Simple"), ("tree", "LL"), ("tree", "Simple")]


def test_the_estimate_is_that_of_the_source():
    """Ring, LL128, 16 GPUs: 14 + 28 x 1.9 + 2 x 4 us. Tree, LL: 6.8 + 2 (7 x 1 + log2(2) x 5) us."""
    one = asked(2, 1e-3)
    assert _estimate_s(one, ways(one)["ring", "LL128"]) == pytest.approx((14 + 28 * 1.9 + 2 * 4) * 1e-6)
    assert _estimate_s(one, ways(one)["tree", "LL"]) == pytest.approx((6.8 + 2 * (7 + log2(2) * 5)) * 1e-6)


def test_sends_have_no_protocol_to_choose():
    assert chosen(2, 1 << 20, "all_to_all") == ("direct", "")
