"""Broadcasts along binomial trees whose senders send to all their children at once, as Gloo's."""

import pytest
from runcast.simulator.collectives.trees import tree_broadcast
from runcast.simulator.hardware import cluster

RATE = 12.5e6  # bytes/s


def machine(hosts, **keys):
    star = {"base": "cpu-host", "gpus_per_node": 1, "nic": "100 Mb/s", "fabric": "leaf", "leaf_radix": 64}
    return cluster(star | keys, hosts)


def tree(there, root=0):
    return tree_broadcast(there, tuple(range(there.n_gpus)), root, there.capacity)


@pytest.mark.parametrize("doublings", [1, 2, 3, 4, 5])
def test_all_children_share_the_link_of_their_parent(doublings):
    found = tree(machine(1 << doublings))
    assert found.s_per_byte * RATE == pytest.approx(doublings * (doublings + 1) / 2)
    assert found.hops == doublings


@pytest.mark.parametrize("hosts", [3, 5, 6, 7, 11])
def test_children_that_are_not_there_take_nothing(hosts):
    assert tree(machine(hosts)).s_per_byte * RATE == pytest.approx(expected(hosts))


def expected(hosts):
    """The end of the last message, in messages, by walking the tree from its leaves."""
    parent = {v: v - (1 << (v.bit_length() - 1)) for v in range(1, hosts)}
    children = {v: sum(at == v for at in parent.values()) for v in range(hosts)}

    def end(v):
        return end(parent[v]) + children[parent[v]] if v else 0

    return max(map(end, range(hosts)))


def test_every_root_takes_as_long_and_sends_each_host_the_bytes_once():
    there = machine(8)
    assert len({round(tree(there, root).s_per_byte, 15) for root in range(8)}) == 1
    shares = tree(there, 3).shares
    into = [shares.get(there.nic_rx(there.nic_of(gpu)), 0.0) for gpu in range(8)]
    assert into == [1, 1, 1, 0, 1, 1, 1, 1]
    assert shares[there.nic_tx(there.nic_of(3))] == 3


def test_a_slow_host_is_slow_as_root_and_as_child():
    base = {"base": "cpu-host", "gpus_per_node": 1, "fabric": "leaf", "leaf_radix": 64}
    mix = [base | {"nic": "100 Mb/s", "nodes": 3}, base | {"nic": "20 Mb/s", "nodes": 1}]
    there = cluster({"mix": mix}, 4)
    assert tree(there, 3).s_per_byte * RATE == pytest.approx(2 * 5 + 1)
    assert tree(there, 0).s_per_byte * RATE == pytest.approx(2 + 5)
