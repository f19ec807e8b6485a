"""What oversubscribed leaves leave of a NIC's rate, by hand: pods of 4 nodes, one GPU and one NIC each."""

import pytest
from runcast.simulator import simulate
from runcast.simulator.collectives import Collective, Layout, Machines, Measured
from runcast.simulator.collectives.algorithms.hops import ClusterNet, Wire
from runcast.simulator.collectives.networks import Uplinks
from runcast.simulator.hardware import cluster
from runcast.simulator.profile import load_profile
from runcast.simulator.scenario import change, check_train

PODS = (tuple(range(4)), tuple(range(4, 8)))
ALL = (*PODS[0], *PODS[1])


def machine(oversubscription, **changes):
    """Leaves with 4 ports down, so that 8 nodes are two pods."""
    radix = 4 + 4 // oversubscription
    given = {"base": "dgx-h100", "gpus_per_node": 1, "nics": 1, "pcie_switches": 1, "sockets": 1}
    return cluster({**given, "oversubscription": oversubscription, "leaf_radix": radix, **changes}, 8)


def uplinks(oversubscription, *stages):
    alike = {rank: stage for stage in stages for rank in stage}
    return Uplinks(machine(oversubscription), alike)


@pytest.mark.parametrize("oversubscription", [1, 2, 4])
def test_messages_to_another_pod_share_its_uplinks(oversubscription):
    kept = uplinks(oversubscription, *PODS).share_left("send_recv", (0, 4), 1)

    assert kept == pytest.approx(1 / oversubscription)


@pytest.mark.parametrize("op", ["all_to_all", "all_reduce"])
def test_uplinks_leave_as_much_to_nics_on_slow_slots(op):
    """Of 400 Gb/s, more than what a slot of the third generation carries."""
    slots = ({}, {"pcie_gen": 3, "upstream_pcie_gen": 3})
    nets = [
        ClusterNet(Machines(machine(4, fabric="leaf", **slot), load_profile("h100-sxm")), ALL, op).crowded()
        for slot in slots
    ]
    fast, slow = (net.kinds["rail"].bytes_per_s * net.share_left("direct") for net in nets)

    assert slow == pytest.approx(min(fast, nets[1].kinds["rail"].bytes_per_s))


def test_uplinks_do_not_slow_a_library_that_sends_less_than_they_carry():
    """Rings across pods of 50 GB/s leave a quarter, 12.5 GB/s."""
    net = ClusterNet(Machines(machine(4), load_profile("h100-sxm")), (0, 4), "all_reduce", dict.fromkeys(ALL, ALL))
    rates = []
    for most in (5e9, 10e9, 20e9):
        one = net.crowded().under(Wire(most_bytes_per_s=most))
        rates.append(one.kinds["striped"].bytes_per_s * one.share_left(hop="striped"))

    assert rates == pytest.approx([5e9, 10e9, 12.5e9])


@pytest.mark.parametrize(("oversubscription", "share"), [(1, 1), (4 / 3, 3 / 4), (2, 1 / 2), (4, 1 / 4)])
def test_messages_between_pods_use_of_a_nic_no_more_than_uplinks_carry(oversubscription, share):
    """A NIC of 50 GB/s sends at e times that."""
    curve = load_profile("h100-sxm").model("send_recv.network").coefficients
    cluster = machine(oversubscription, leaf_radix=round(4 + 4 / oversubscription))
    pods = {rank: pod for pod in PODS for rank in pod}
    priced = Measured(Machines(cluster, load_profile("h100-sxm")), Layout(cluster, pods))

    found = priced.price(Collective("send_recv", (0, 4), 2**26), 0)

    assert found.seconds == pytest.approx(curve["a_s"] + 2**26 / (min(curve["e"], share) * 50e9))


@pytest.mark.parametrize("op", ["all_gather", "all_to_all"])
def test_no_software_sends_through_uplinks_more_than_they_carry(op):
    """Pods of one node each, whose uplinks carry half of what its NIC sends."""
    least_s = []
    for changes in ({"oversubscription": 1, "leaf_radix": 2}, {"oversubscription": 2, "leaf_radix": 2}):
        there = machine(**changes)
        priced = Measured(Machines(there, load_profile("h100-sxm")), Layout(there, dict.fromkeys(ALL, ALL)))
        least_s.append(priced.price(Collective(op, ALL, 2**28), 0).least_s)

    assert least_s[1] == pytest.approx(2 * least_s[0])


@pytest.mark.parametrize("fabric", [{}, {"fabric": "leaf_spine", "routing": "spray"}], ids=["ideal", "spines"])
def test_sends_round_a_group_of_one_stage_share_uplinks(fabric):
    """Ring attention in four groups of two ranks, one in each pod: every NIC sends beyond its leaf."""
    there = machine(4, **fabric)
    kept = Uplinks(there, dict.fromkeys(ALL, ALL)).share_left("send_recv", (0, 4), 1)

    assert kept == pytest.approx(1 / 4)


def test_messages_inside_a_pod_need_none():
    near = uplinks(4, (0, 1), (2, 3)).share_left("send_recv", (0, 2), 1)

    assert near == 1


def test_a_ring_sends_on_from_one_node_of_a_pod():
    """Of 4 NICs under a leaf one sends beyond it: its uplinks carry 4 / 4 of a NIC."""
    assert uplinks(4, ALL).share_left("all_reduce", ALL, 1) == 1


def test_rings_across_pods_all_send_beyond():
    """Four rings of two ranks each: every NIC sends beyond its leaf."""
    assert uplinks(4, ALL).share_left("all_reduce", (0, 4), 1) == pytest.approx(1 / 4)


def test_groups_across_pods_slow_those_of_their_stage_inside_one():
    """Of (0, 3), (1, 4) and (2, 5) two rings cross the border: 2 NICs on an uplink of one."""
    assert uplinks(4, ALL).share_left("all_reduce", (0, 3), 1) == pytest.approx(1 / 2)


def test_an_all_to_all_sends_what_lies_elsewhere():
    """4 of a rank's 7 peers are in the other pod: 4 NICs x 4/7 on an uplink of 4/4 NICs."""
    assert uplinks(4, ALL).share_left("all_to_all", ALL, 1) == pytest.approx(7 / 16)


def test_a_step_slows_where_its_stages_lie_in_two_pods():
    table = {
        "kind": "train_step", "nodes": 8, "level": "coarse", "model": {"preset": "llama3.2-1b"},
        "cluster": {"base": "dgx-h100", "gpus_per_node": 1, "nics": 1, "pcie_switches": 1, "sockets": 1},
        "parallel": {"pp": 2}, "batch": {"global": 32, "seq_len": 2048},
    }  # fmt: skip

    def step_s(oversubscription, radix):
        changes = {"cluster.oversubscription": oversubscription, "cluster.leaf_radix": radix}
        return simulate(check_train(change(table, changes, "a"), "a")).report.step_time_s

    assert step_s(1, 64) == step_s(4, 64) == step_s(1, 8) < step_s(4, 5)
