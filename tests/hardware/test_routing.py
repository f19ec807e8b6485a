"""How flows choose among equal routes: by hash, all at once, or the least loaded; what that leaves of the links."""

from collections import Counter
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.hardware import Cluster, cluster

SMALL = {"base": "dgx-h100", "gpus_per_node": 1, "nics": 1, "pcie_switches": 1, "sockets": 1}
SPINES = 8


def two_leaves(**keys) -> Cluster:
    """8 nodes under each of two leaves, and a spine for every uplink."""
    return cluster({**SMALL, "fabric": "leaf_spine", "leaf_radix": 16, "cabling": "leaf", **keys}, 16)


def up(machine: Cluster, pairs: list[tuple[int, int]]) -> Counter[str]:
    """What transfers between nodes, under way together, put on the uplinks of leaf0."""
    load: Counter[str] = Counter()
    for shares in machine.spread([(f"n{a}.nic0", f"n{b}.nic0") for a, b in pairs]):
        named = {machine.links[link].name: share for link, share in shares.items()}
        load.update({name: share for name, share in named.items() if name.startswith("leaf0>")})
    return load


ACROSS = [(node, node + 8) for node in range(8)]


def expected_fullest(balls: int, bins: int) -> float:
    """The mean of the largest of the counts of balls thrown into bins: sum over m of P(max >= m).

    P(max < m) is balls! [x^balls] of (sum over i < m of x^i / i!)^bins, over bins^balls.
    """
    return sum(1 - _all_below(most, balls, bins) for most in range(1, balls + 1))


def _all_below(most: int, balls: int, bins: int) -> float:
    ways = [1] + [0] * balls  # to throw so many balls into the bins so far, fewer than `most` into each
    for _ in range(bins):
        ways = [sum(comb(n, i) * ways[n - i] for i in range(min(most, n + 1))) for n in range(balls + 1)]
    return ways[balls] / bins**balls


def test_hashed_flows_are_balls_thrown_into_bins() -> None:
    """The mean of 300 seeds lies within four standard errors (a fullest link varies by less than 1.3)."""
    fullest = [max(up(two_leaves(hash_seed=seed), ACROSS).values()) for seed in range(300)]
    assert sum(fullest) / 300 == pytest.approx(expected_fullest(8, SPINES), abs=4 * 1.3 / 300**0.5)


def test_every_route_is_as_likely() -> None:
    """2,000 flows over 8 spines: chi-squared of 7 degrees of freedom is below 24.3 with 99.9 %."""
    machine = two_leaves()
    flows = [machine.shares("n0.nic0", "n8.nic0", flow) for flow in range(2000)]
    names = Counter(machine.links[link].name for shares in flows for link in shares)
    taken = [names[f"leaf0>spine{i}"] for i in range(SPINES)]
    assert sum((n - 250) ** 2 / 250 for n in taken) < 24.3


def test_a_hash_is_the_same_in_every_process() -> None:
    machine = two_leaves()
    taken = [machine.links[machine.route("n0.nic0", f"n{to}.nic0")[1]].name for to in range(8, 16)]
    assert taken == [f"leaf0>spine{i}" for i in (5, 3, 5, 0, 7, 5, 3, 7)]


@given(seed=st.integers(0, 1000), flow=st.integers(0, 1000))
def test_a_flow_takes_one_of_the_paths(seed: int, flow: int) -> None:
    machine = two_leaves(hash_seed=seed)
    assert set(machine.shares("n0.nic0", "n8.nic0", flow)) in map(set, machine.paths("n0.nic0", "n8.nic0"))


def test_many_flows_of_two_nics_spread_as_far_as_they_are_many() -> None:
    few, many = (max(up(two_leaves(flows=flows), [(0, 8)]).values()) for flows in (1, 64))
    assert (few, many < 0.3) == (1, True)


@pytest.mark.parametrize(("keys", "nodes", "routes"), [({}, 16, 8), ({"fabric": "fat_tree", "leaf_radix": 8}, 128, 16)])
def test_sprayed_bytes_are_even_on_all_equal_paths(keys: dict, nodes: int, routes: int) -> None:
    machine = cluster(
        {**SMALL, "fabric": "leaf_spine", "leaf_radix": 16, "cabling": "leaf", "routing": "spray", **keys}, nodes
    )
    shares, ends = machine.spread([("n0.nic0", f"n{nodes - 1}.nic0")])[0], ("n0.nic0", f"n{nodes - 1}.nic0")
    crossed = Counter(link for path in machine.paths(*ends) for link in path)
    assert shares == pytest.approx({link: times / routes for link, times in crossed.items()})


def test_sprayed_flows_load_all_uplinks_alike() -> None:
    assert set(up(two_leaves(routing="spray"), ACROSS).values()) == {1.0}


def test_adaptive_flows_take_an_uplink_each_while_there_are_enough() -> None:
    assert set(up(two_leaves(routing="adaptive"), ACROSS).values()) == {1.0}


def test_adaptive_flows_avoid_a_slow_link() -> None:
    """Seven uplinks take a flow; the eighth is a second one on one of them, as the slow link would take it longer."""
    degraded = [{"link": "leaf0>spine3", "factor": 0.25}]
    load = up(two_leaves(routing="adaptive", degraded=degraded), ACROSS)
    assert (load["leaf0>spine3"], max(load.values())) == (0, 2)


@given(seed=st.integers(0, 1000))
def test_adaptive_routing_is_no_worse_than_a_hash(seed: int) -> None:
    fullest = [max(up(two_leaves(routing=how, hash_seed=seed), ACROSS).values()) for how in ("adaptive", "hash")]
    assert fullest[0] <= fullest[1]


@pytest.mark.parametrize("routing", ["hash", "spray", "adaptive"])
def test_a_route_does_not_depend_on_the_routing(routing: str) -> None:
    machine, hashed = two_leaves(routing=routing), two_leaves()
    assert machine.route("n0.gpu0", "n9.gpu0") == hashed.route("n0.gpu0", "n9.gpu0")


@pytest.mark.parametrize(
    ("keys", "even"),
    [
        ({"fabric": "rail"}, True), ({"fabric": "rail", "oversubscription": 2}, False), ({"fabric": "rail_only"}, True),
        ({"routing": "spray"}, True), ({"routing": "hash"}, False),
        ({"routing": "spray", "oversubscription": 3}, False),
        ({"routing": "spray", "degraded": [{"link": "leaf0>spine0", "factor": 0.5}]}, False),
        ({"fabric": "torus", "sizes": [4, 4], "routing": "spray"}, False),
    ],
)  # fmt: skip
def test_a_cluster_repeats_itself_where_its_network_slows_nobody(keys: dict, even: bool) -> None:
    given = {**SMALL, "fabric": "leaf_spine", "cabling": "leaf", "leaf_radix": 16, **keys}
    if keys.get("fabric", "leaf_spine") != "leaf_spine":
        del given["cabling"]
    assert (cluster(given, 16).period > 0) == even


FABRICS = (
    {"fabric": "leaf_spine", "leaf_radix": 4, "spine_radix": 16, "cabling": "leaf"},
    {"fabric": "fat_tree", "leaf_radix": 4, "cabling": "leaf"},
    {"fabric": "torus", "sizes": [3, 5]},
    {"fabric": "mesh", "sizes": [5, 3]},
    {"fabric": "dragonfly", "groups": 3, "group_routers": 4, "global_links": 2},
)


@given(keys=st.sampled_from(FABRICS), data=st.data())
def test_bytes_spread_evenly_are_those_of_every_route_listed(keys, data):
    network = cluster({**SMALL, **keys, "routing": "spray"}, 15).network
    leaves = sorted({leaf for own in network.leaves for leaf in own})
    end = data.draw(st.sampled_from(leaves))
    sent = {leaf: data.draw(st.floats(0, 10)) for leaf in leaves if leaf != end}
    listed = np.zeros(len(network.links))
    for leaf, rate in sent.items():
        paths = network.paths(leaf, end)
        np.add.at(listed, paths.ravel(), rate / len(paths))

    assert network.spread_evenly(end, sent) == pytest.approx(listed)
