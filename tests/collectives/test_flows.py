"""What links between switches leave of a NIC's rate, by hand: nodes of one GPU and one NIC each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.collectives import flows
from runcast.simulator.collectives.flows import tiles
from runcast.simulator.collectives.networks import Uplinks
from runcast.simulator.collectives.rings import ring_broadcast
from runcast.simulator.collectives.wires import Crossings, write_route
from runcast.simulator.hardware import cluster

SMALL = {"base": "dgx-h100", "gpus_per_node": 1, "nics": 1, "pcie_switches": 1, "sockets": 1}
LEAVES = {**SMALL, "fabric": "leaf_spine", "cabling": "leaf", "routing": "spray"}
ALL = tuple(range(16))


def share_left(keys, kind, group, *stages, nodes=16):
    alike = {rank: stage for stage in (stages or (tuple(range(nodes)),)) for rank in stage}
    return Uplinks(cluster(keys, nodes), alike).share_left(kind, group, 1)


@pytest.mark.parametrize(("o", "radix"), [(1, 16), (3, 16), (7, 16)])
def test_sprayed_messages_between_leaves_share_the_uplinks(o, radix):
    """16 ports: 8, 12 or 14 down; 12 or 14 nodes of one leaf send to the others' as many."""
    down = radix * o // (o + 1)
    stages = tuple(range(down)), tuple(range(down, 2 * down))
    keys = {**LEAVES, "leaf_radix": radix, "oversubscription": o}
    assert share_left(keys, "send_recv", (0, down), *stages, nodes=2 * down) == pytest.approx(1 / o)


@given(seed=st.integers(0, 500))
def test_of_hashed_messages_the_fullest_uplink_decides(seed):
    keys = {**LEAVES, "routing": "hash", "leaf_radix": 16, "hash_seed": seed}
    machine, stages = cluster(keys, 16), (tuple(range(8)), tuple(range(8, 16)))
    routes = [machine.route(f"n{node}.nic0", f"n{node + 8}.nic0") for node in range(8)]
    most = max(sum(link in route for route in routes) for link in range(machine.node_links, len(machine.links)))
    assert share_left(keys, "send_recv", (0, 8), *stages) == 1 / most


def test_a_ring_leaves_a_leaf_once():
    assert share_left({**LEAVES, "leaf_radix": 16, "oversubscription": 7}, "all_reduce", ALL) == 1


def test_rings_across_leaves_all_send_beyond():
    """16 ports, 12 down and 4 up: of rings of a rank under each leaf, 12 flows share 4 uplinks."""
    keys = {**LEAVES, "leaf_radix": 16, "oversubscription": 3}
    assert share_left(keys, "all_reduce", (0, 12), nodes=24) == pytest.approx(1 / 3)


@pytest.mark.parametrize("routing", ["hash", "spray", "adaptive"])
def test_an_all_to_all_sends_what_lies_elsewhere(routing):
    """12 of 23 peers are under the other leaf: 12 NICs x 12/23 on 4 uplinks."""
    keys = {**LEAVES, "routing": routing, "leaf_radix": 16, "oversubscription": 3}
    assert share_left(keys, "all_to_all", tuple(range(24)), nodes=24) == pytest.approx(23 / 36)


@pytest.mark.parametrize(("gpus", "nics"), [(1, 2), (2, 2), (4, 2), (8, 2), (2, 4)])
def test_an_all_to_all_fills_each_nic_once_however_many_gpus_share_it(gpus, nics):
    """16 ports, 12 down: 12 / nics nodes of a leaf send to the other leaf's as many, on 4 uplinks."""
    inside = {"gpus_per_node": gpus, "nics": nics, "pcie_switches": 1, "sockets": 1}
    under = 12 // nics
    machine = cluster({**LEAVES, **inside, "leaf_radix": 16, "oversubscription": 3}, 2 * under)
    ranks = tuple(range(machine.n_gpus))
    left = Uplinks(machine, dict.fromkeys(ranks, ranks)).share_left("all_to_all", ranks, gpus)
    assert left == pytest.approx(4 / (12 * under / (2 * under - 1)))


@pytest.mark.parametrize("kind", ["all_to_all", "direct"])
def test_an_all_to_all_on_two_planes_sends_on_the_plane_of_each_receiver(kind):
    """Two leaves of half the nodes, either one for all 4 NICs of a node or one of each plane for two of them."""
    inside = {"gpus_per_node": 4, "nics": 4, "pcie_switches": 1, "sockets": 1}
    one, two = ({"leaf_radix": radix, "planes": planes} for radix, planes in ((10, 1), (5, 2)))
    ranks = tuple(range(16))

    def left(keys):
        machine = cluster({**SMALL, **inside, "fabric": "leaf", "oversubscription": 4, **keys}, 4)
        return Uplinks(machine, dict.fromkeys(ranks, ranks)).share_left(kind, ranks, 4)

    assert left(two) == pytest.approx(left(one)) == pytest.approx(12 / 8 / 4)


@pytest.mark.parametrize(
    ("kind", "share"), [("all_to_all", 3 / 4), ("direct", 3 / 4), ("all_reduce", 1 / 2), ("messages", 1 / 2)]
)
def test_fast_nics_load_links_no_faster_than_the_slow_ones_for_which_they_wait(kind, share):
    """A ring of four nodes, whose links have half the rate of the slow NICs; a third of all bytes passes two."""
    ring = {**SMALL, "fabric": "torus", "sizes": [4]}
    slow = {**ring, "nic": "100 Gb/s"}
    nodes = tuple(range(4))

    def left(*kinds):
        machine = cluster({"mix": [{**keys, "nodes": 1} for keys in kinds]}, 4)
        pairs = [(a, (a + 1) % 4) for a in nodes]
        return flows.share_by_flows(machine, kind, pairs if kind == "messages" else [nodes], 1)

    assert left(slow, ring, slow, ring) == left(slow, slow, slow, slow) == pytest.approx(share)


@pytest.mark.parametrize("kind", ["all_reduce", "messages"])
def test_a_fast_pair_of_a_ring_waits_for_the_others(kind):
    """Two leaves of a fast and a slow node; each hop of the ring crosses: two slow NICs on an uplink of one."""
    leaf = {**SMALL, "fabric": "leaf", "leaf_radix": 3, "oversubscription": 5}
    machine = cluster({"mix": [{**leaf, "nic": f"{rate} Gb/s", "nodes": 1} for rate in (400, 100, 400, 100)]}, 4)
    ring = (0, 2, 1, 3)
    pairs = [(a, ring[(i + 1) % 4]) for i, a in enumerate(ring)]

    assert flows.share_by_flows(machine, kind, pairs if kind == "messages" else [ring], 1) == pytest.approx(1 / 2)


def test_a_node_without_the_rail_of_a_receiver_sends_on_its_plane():
    """GPU 7 has nic2 of four, on another plane than nic5 of the node with eight."""
    few = {"base": "dgx-h100", "nics": 4, "planes": 2, "oversubscription": 2}
    machine = cluster({"mix": [{**few, "nodes": 1}, {**few, "nics": 8, "nodes": 1}]}, 2)

    assert Uplinks(machine, {}).share_left("send_recv", (7, 13), 1) == 1


def test_the_core_of_a_fat_tree_counts_where_groups_lie_in_two_pods():
    """k = 4, aggregation switches with 2 ports down and 2 up, of which one link of each core is down: half is left."""
    down = [{"link": f"agg{a}>core{a % 2 * 2}", "factor": 0} for a in range(4)]
    keys = {**SMALL, "fabric": "fat_tree", "cabling": "leaf", "leaf_radix": 4, "routing": "spray", "degraded": down}
    assert share_left(keys, "all_reduce", (0, 4), tuple(range(8)), nodes=16) == pytest.approx(1 / 2)


def test_a_ring_round_a_torus_has_a_link_of_each_node():
    """Links have R / 2D, and a ring along x uses one of the four."""
    keys = {**SMALL, "fabric": "torus", "sizes": [4, 4]}
    assert share_left(keys, "all_reduce", (0, 1, 2, 3)) == pytest.approx(1 / 4)


def test_an_all_to_all_on_a_ring_of_nodes_is_bound_by_its_cut():
    """Of n (n - 1) pairs on a ring of n, n^2/8 pass each link; it has half of a NIC's rate."""
    n = 8
    keys = {**SMALL, "fabric": "torus", "sizes": [n]}
    assert share_left(keys, "all_to_all", tuple(range(n)), nodes=n) == pytest.approx(1 / 2 * 8 * (n - 1) / n**2)


def test_messages_to_another_site_share_the_link_between_them():
    keys = {**LEAVES, "leaf_radix": 16, "sites": 2, "site_bandwidth": "400 Gb/s"}
    stages = tuple(range(8)), tuple(range(8, 16))
    assert share_left(keys, "send_recv", (0, 8), *stages) == pytest.approx(1 / 8)


@pytest.mark.parametrize("factor", [1.0, 0.1])
@pytest.mark.parametrize(("nodes", "keys"), [
    (16, {"fabric": "torus", "sizes": [4, 4]}), (30, {"fabric": "torus", "sizes": [5, 3, 2]}),
    (16, {"fabric": "mesh", "sizes": [4, 4]}), (15, {"fabric": "mesh", "sizes": [5, 3]}),
    (32, {"fabric": "dragonfly", "groups": 4, "group_routers": 4, "global_links": 3}),
    (20, {"fabric": "dragonfly", "groups": 4, "group_routers": 4, "global_links": 3}),
    (100, {"fabric": "fat_tree", "leaf_radix": 8, "oversubscription": 3}),
    (100, {"fabric": "fat_tree", "leaf_radix": 8, "core_oversubscription": 3}),
    (33, {"fabric": "leaf_spine", "leaf_radix": 16, "oversubscription": 3}),
    (32, {"fabric": "torus", "sizes": [8, 2], "sites": 2, "site_bandwidth": "10 Tb/s"}),
    (32, {"fabric": "leaf_spine", "leaf_radix": 16, "nics": 2, "planes": 2, "oversubscription": 3}),
])  # fmt: skip
def test_levels_leave_an_all_to_all_what_following_every_byte_does(nodes, keys, factor, monkeypatch):
    first = cluster({**SMALL, **keys}, nodes).network.hops[0].name
    degraded = [] if factor == 1 else [{"link": first, "factor": factor}]
    group = tuple(range(nodes))

    def left(most_steps):
        monkeypatch.setattr(flows, "_MOST_STEPS", most_steps)
        return share_left({**SMALL, **keys, "degraded": degraded}, "all_to_all", group, nodes=nodes)

    assert left(0) == pytest.approx(left(20_000_000))


FOLLOWED = pytest.mark.parametrize("most_steps", [flows._MOST_STEPS, 0])
"""With every byte followed, and by levels alone, as where there are too many leaves for that."""


@FOLLOWED
def test_an_all_to_all_shares_the_link_between_sites_however_many_leaves_there_are(most_steps, monkeypatch):
    """Each of n/2 NICs of a site sends (n/2)/(n - 1) of its bytes over a link of one NIC's rate."""
    keys = {**SMALL, "fabric": "leaf", "leaf_radix": 2, "sites": 2, "site_bandwidth": "400 Gb/s"}
    monkeypatch.setattr(flows, "_MOST_STEPS", most_steps)
    nodes = 60
    ranks, half = tuple(range(nodes)), nodes // 2
    assert share_left(keys, "all_to_all", ranks, nodes=nodes) == pytest.approx((nodes - 1) / half**2)


@FOLLOWED
def test_an_all_to_all_shares_the_uplinks_of_each_site_however_many_leaves_there_are(most_steps, monkeypatch):
    """A NIC alone under a leaf, with an uplink of a 40th, sends (n/2 - 1)/(n - 1) of its bytes inside its site."""
    keys = {**SMALL, "fabric": "leaf", "leaf_radix": 2, "oversubscription": 40, "sites": 2, "site_bandwidth": "1 PB/s"}
    monkeypatch.setattr(flows, "_MOST_STEPS", most_steps)
    nodes = 60
    ranks, half = tuple(range(nodes)), nodes // 2
    assert share_left(keys, "all_to_all", ranks, nodes=nodes) == pytest.approx((nodes - 1) / (half - 1) / 40)


@pytest.mark.parametrize("leaves", [64, 72])
def test_a_narrow_uplink_slows_an_all_to_all_of_few_and_of_many_leaves(leaves):
    """8 NICs of a leaf spread what they send to other leaves over 8 uplinks, one of which has a tenth of its rate."""
    narrow = [{"link": "leaf0<>spine0", "factor": 0.1}]
    keys = {**LEAVES, "leaf_radix": 16, "spine_radix": 128, "degraded": narrow}
    n = 8 * leaves
    assert share_left(keys, "all_to_all", tuple(range(n)), nodes=n) == pytest.approx((n - 1) / (n - 8) / 10)


@pytest.mark.parametrize("sizes", [(8, 8), (8, 9)])
def test_an_all_to_all_on_a_torus_is_bound_by_the_links_along_its_longer_side(sizes):
    """Of all pairs width x `ahead` pass each link along the length; it has a quarter of a NIC's rate."""
    n, (width, length) = sizes[0] * sizes[1], sizes
    share = share_left({**SMALL, "fabric": "torus", "sizes": list(sizes)}, "all_to_all", tuple(range(n)), nodes=n)
    ahead = sum(min(k, length - k) for k in range(1, length)) / 2  # hops along it, in each direction
    assert share == pytest.approx((n - 1) / 4 / (width * ahead))


@given(factor=st.floats(0.01, 1.0))
def test_adaptive_routing_takes_a_narrow_link_for_no_less_than_a_dead_one(factor):
    def left(of):
        keys = {**LEAVES, "routing": "adaptive", "leaf_radix": 16, "degraded": [{"link": "leaf0>spine0", "factor": of}]}
        return share_left(keys, "all_to_all", tuple(range(24)), nodes=24)

    assert left(0) <= left(factor) <= left(1.0)


def test_rails_alone_slow_nobody():
    keys = {"base": "dgx-h100", "fabric": "rail_only"}
    assert share_left(keys, "all_to_all", tuple(range(128)), tuple(range(128)), nodes=16) == 1


@given(start=st.integers(0, 3), stride=st.sampled_from([1, 2, 4, 8]), size=st.sampled_from([2, 4, 8]), data=st.data())
def test_tiles_of_a_stage_cover_it_once(start, stride, size, data):
    stage = range(start * 64, start * 64 + 64)
    group = [stage[0] + i * stride for i in range(size)]
    assert sorted(rank for tile in tiles(group, stage) for rank in tile) == list(stage)


def test_a_sprayed_ring_uses_all_spines():
    machine = cluster({**LEAVES, "leaf_radix": 16}, 16)
    ring = ring_broadcast(machine, ALL)
    up = [share for link, share in zip(ring.link, ring.share, strict=True) if machine.links[link].kind == "leaf"]
    assert up == pytest.approx([1 / 8] * 16)  # to the other leaf, and back


def test_a_write_to_another_rail_moves_over_nvlink_and_leaves_by_that_rail():
    machine = cluster({"base": "dgx-h100", "fabric": "rail_only"}, 2)
    names = {machine.links[link].name for link in write_route(machine, 3, 12, from_host=False)}
    assert names >= {"n0.gpu3>nvswitch", "n0.nvswitch>gpu4", "n0.nic4>port4", "n1.port4>nic4"}


def test_a_message_to_another_rail_leaves_by_that_rail():
    machine = cluster({"base": "dgx-h100", "fabric": "rail_only"}, 2)
    beyond = Crossings(machine).message(3, 12, {}).beyond
    assert {machine.nic_tx("n0.nic4"), machine.nic_rx("n1.nic4")} <= set(beyond)
