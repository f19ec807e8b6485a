"""Fabrics between nodes: closed forms of sizes and cuts, routes of any two NICs, planes, sites and broken links."""

from collections import Counter
from itertools import product
from math import prod

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from runcast.simulator import UserError
from runcast.simulator.hardware import Cluster, cluster, cluster_inputs

SMALL = {"base": "dgx-h100", "gpus_per_node": 1, "nics": 1, "pcie_switches": 1, "sockets": 1}
PORT = 50e9
FAT_4 = {**SMALL, "fabric": "fat_tree", "leaf_radix": 4}
TWO_LEAVES = {**SMALL, "fabric": "leaf_spine", "leaf_radix": 16, "cabling": "leaf"}


def switches(machine: Cluster, of: str = "") -> set[str]:
    """The switches of a network whose names have this in them."""
    named = {name for hop in machine.network.hops for name in (hop.src, hop.dst)}
    named |= {leaf for leaves in machine.network.leaves for leaf in leaves}
    return {name for name in named if of in name}


def between(machine: Cluster, half: set[str]) -> float:
    """Bytes per second from these switches to all others."""
    return sum(hop.bytes_per_s for hop in machine.network.hops if hop.src in half and hop.dst not in half)


def hops(machine: Cluster, a: int, b: int) -> int:
    """Links between switches on the way from one node to another."""
    return len(machine.route(f"n{a}.nic0", f"n{b}.nic0")) - 2


def names(machine: Cluster, route: tuple[int, ...]) -> list[str]:
    return [machine.links[link].name for link in route]


# -- Closed forms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 4, 6, 8])
def test_a_full_fat_tree_has_5k2_over_4_switches_for_k3_over_4_hosts(k: int) -> None:
    machine = cluster({**FAT_4, "leaf_radix": k}, k**3 // 4)
    assert len(switches(machine)) == 5 * k * k // 4


def test_a_fat_tree_with_one_host_more_is_refused() -> None:
    with pytest.raises(UserError, match=r"^cluster: cluster.leaf_radix = 4: 5 pods are more .* at most 16 NICs fit$"):
        cluster(FAT_4, 17)


@pytest.mark.parametrize("k", [4, 8])
def test_half_of_a_fat_tree_sends_to_the_other_half_at_full_rate(k: int) -> None:
    machine = cluster({**FAT_4, "leaf_radix": k}, k**3 // 4)
    half = {f"leaf{i}" for i in range(k * k // 4)} | {f"agg{i}" for i in range(k * k // 4)}
    assert between(machine, half) == PORT * k**3 / 8


@pytest.mark.parametrize(("to", "links", "routes"), [(1, 0, 1), (2, 2, 2), (4, 4, 4), (15, 4, 4)])
def test_routes_of_a_fat_tree_go_no_higher_than_they_must(to: int, links: int, routes: int) -> None:
    machine = cluster(FAT_4, 16)
    assert (hops(machine, 0, to), len(machine.paths("n0.nic0", f"n{to}.nic0"))) == (links, routes)


def test_oversubscribed_levels_of_a_fat_tree_leave_a_leaf_the_narrower_one() -> None:
    """12 ports: 8 down and 4 up at leaves, 9 down and 3 up above: 8 NICs share 4 aggs x 3 cores / 9 leaves."""
    given = {**FAT_4, "leaf_radix": 12, "oversubscription": 2, "core_oversubscription": 3}
    machine = cluster(given, 144)
    assert machine.uplink_bytes_per_s("leaf0") == pytest.approx(PORT * 12 / 9)


@pytest.mark.parametrize(("o", "uplinks"), [(1, 8), (3, 4), (7, 2)])
def test_a_leaf_has_the_uplinks_that_its_oversubscription_leaves(o: int, uplinks: int) -> None:
    machine = cluster({**TWO_LEAVES, "oversubscription": o}, 16)
    assert (len(switches(machine, "spine")), machine.uplink_bytes_per_s("leaf0")) == (uplinks, uplinks * PORT)


def test_few_spines_have_several_cables_to_a_leaf() -> None:
    machine = cluster({**TWO_LEAVES, "spines": 2}, 16)
    assert {(hop.ports, hop.bytes_per_s) for hop in machine.network.hops} == {(4, 4 * PORT)}


@pytest.mark.parametrize("sizes", [[4, 4], [5, 3], [2, 2, 2], [4, 3, 2], [8, 1]])
def test_the_diameter_of_a_torus_is_the_sum_of_half_its_sizes(sizes: list[int]) -> None:
    nodes = prod(sizes)
    machine = cluster({**SMALL, "fabric": "torus", "sizes": sizes}, nodes)
    assert max(hops(machine, 0, to) for to in range(1, nodes)) == sum(size // 2 for size in sizes)


@pytest.mark.parametrize("sizes", [[4, 4], [5, 3], [4, 3, 2]])
def test_the_diameter_of_a_mesh_is_the_way_between_two_corners(sizes: list[int]) -> None:
    nodes = prod(sizes)
    machine = cluster({**SMALL, "fabric": "mesh", "sizes": sizes}, nodes)
    assert hops(machine, 0, nodes - 1) == sum(size - 1 for size in sizes)


@pytest.mark.parametrize(("fabric", "cuts"), [("torus", 2), ("mesh", 1)])
@pytest.mark.parametrize("sizes", [[4, 4], [2, 6], [4, 2, 2]])
def test_the_longest_dimension_is_cut_through_each_of_its_lines(fabric: str, cuts: int, sizes: list[int]) -> None:
    """Half of the nodes have `cuts` links of R / 2D for each line along the longest dimension."""
    nodes, longest = prod(sizes), max(sizes)
    machine = cluster({**SMALL, "fabric": fabric, "sizes": sizes}, nodes)
    places = dict(enumerate(place[::-1] for place in product(*map(range, sizes[::-1]))))
    half = {f"router{node}" for node, place in places.items() if place[sizes.index(longest)] < longest // 2}
    assert between(machine, half) == pytest.approx(cuts * nodes / longest * PORT / (2 * len(sizes)))


@pytest.mark.parametrize("fabric", ["torus", "mesh"])
def test_a_node_of_a_torus_may_send_its_part_of_the_cut(fabric: str) -> None:
    machine = cluster({**SMALL, "fabric": fabric, "sizes": [4, 8]}, 32)
    half = {f"router{node}" for node in range(16)}
    assert machine.uplink_bytes_per_s("router0") == pytest.approx(between(machine, half) / 16)


def test_routes_of_a_torus_go_along_x_first() -> None:
    machine = cluster({**SMALL, "fabric": "torus", "sizes": [4, 4]}, 16)
    route = names(machine, machine.route("n0.nic0", "n5.nic0"))
    assert route[1:-1] == ["router0>router1", "router1>router5"]


def test_both_ways_round_a_ring_are_equal_where_they_are_equally_long() -> None:
    machine = cluster({**SMALL, "fabric": "torus", "sizes": [4, 4]}, 16)
    assert [len(machine.paths("n0.nic0", f"n{to}.nic0")) for to in (1, 2, 8, 10)] == [1, 2, 2, 4]


DRAGONFLY = {**SMALL, "fabric": "dragonfly", "groups": 9, "group_routers": 4, "global_links": 2}


def test_the_largest_balanced_dragonfly_joins_every_two_groups_once() -> None:
    """a h + 1 = 9 groups, each of a (a - 1) / 2 local cables (Kim et al., ISCA 2008)."""
    cables = Counter(hop.cost == 1 for hop in cluster(DRAGONFLY, 72).network.hops)
    assert cables == {True: 2 * 9 * 6, False: 9 * 8}


def test_minimal_routes_of_a_dragonfly_take_at_most_three_links() -> None:
    machine = cluster(DRAGONFLY, 72)
    paths = [names(machine, machine.route("n0.nic0", f"n{to}.nic0"))[1:-1] for to in range(1, 72)]
    far = [sum(int(one[6:].split(">")[0]) // 4 != int(one.split(">router")[1]) // 4 for one in path) for path in paths]
    assert (max(map(len, paths)), max(far)) == (3, 1)


# -- Every pair has a route -------------------------------------------------------------------------------------------


@st.composite
def fabrics(draw: st.DrawFn) -> tuple[dict, int]:
    """A description of a small cluster and its nodes."""
    kind = draw(st.sampled_from(["rail", "leaf", "rail_only", "leaf_spine", "fat_tree", "torus", "mesh", "dragonfly"]))
    keys: dict = {"base": "dgx-h100", "nics": draw(st.sampled_from([1, 2, 8])), "fabric": kind}
    keys["routing"] = draw(st.sampled_from(["hash", "spray", "adaptive"]))
    nodes = draw(st.integers(2, 24))
    if kind in ("torus", "mesh"):
        keys["sizes"] = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
        nodes = prod(keys["sizes"])
    if kind == "dragonfly":
        keys |= {"groups": draw(st.integers(1, 5)), "group_routers": draw(st.integers(1, 4)), "global_links": 4}
    if kind in ("leaf_spine", "fat_tree"):
        keys |= {"leaf_radix": draw(st.sampled_from([8, 16, 32])), "cabling": draw(st.sampled_from(["rail", "leaf"]))}
    keys["planes"] = draw(st.sampled_from([n for n in (1, 2, 4) if n <= keys["nics"]]))
    if draw(st.booleans()) and nodes % 2 == 0 and kind not in ("torus", "mesh"):
        keys |= {"sites": 2, "site_bandwidth": "100 Gb/s", "site_latency": "2 ms"}
    return keys, nodes


def build(drawn: tuple[dict, int]) -> Cluster:
    try:
        return cluster(*drawn)
    except UserError:
        assume(False)
        raise


@given(drawn=fabrics(), data=st.data())
def test_every_pair_of_gpus_has_a_connected_route(drawn, data) -> None:
    machine = build(drawn)
    a, b = (data.draw(st.integers(0, machine.n_gpus - 1)) for _ in range(2))
    over = [name for name in names(machine, machine.route(machine.gpu(a), machine.gpu(b))) if not name.startswith("n")]
    ends = [name.split(">") for name in over]
    assert [src for src, _ in ends[1:]] == [dst for _, dst in ends[:-1]]


@given(drawn=fabrics())
def test_cables_carry_as_much_either_way(drawn) -> None:
    rates = {(hop.src, hop.dst): hop.bytes_per_s for hop in build(drawn).network.hops}
    assert rates == {(dst, src): rate for (src, dst), rate in rates.items()}


@given(drawn=fabrics(), data=st.data())
def test_shares_send_all_bytes_out_of_the_source_and_into_the_destination(drawn, data) -> None:
    machine = build(drawn)
    a, b = (data.draw(st.integers(0, machine.n_nodes - 1)) for _ in range(2))
    assume(a != b)
    flow: Counter[str] = Counter()
    for link, share in machine.spread([(f"n{a}.nic0", f"n{b}.nic0")])[0].items():
        if link >= machine.node_links:
            src, dst = machine.links[link].name.split(">")
            flow.update({src: share, dst: -share})
    leaves = machine.leaf_of(f"n{a}.nic0"), machine.leaf_of(f"n{b}.nic0")
    expected = Counter({leaves[0]: 1.0})
    expected.subtract({leaves[1]: 1.0})
    assert {v: x for v, x in flow.items() if abs(x) > 1e-9} == pytest.approx({v: x for v, x in expected.items() if x})


# -- Rails, planes, sites, links that are down -------------------------------------------------------------------------


def test_traffic_to_another_rail_moves_over_nvlink_first() -> None:
    machine = cluster({"base": "dgx-h100", "fabric": "rail_only"}, 4)
    route = names(machine, machine.route("n0.gpu3", "n2.gpu4"))
    assert route[:2] + route[-3:] == [
        "n0.gpu3>nvswitch", "n0.nvswitch>gpu4", "n2.port4>nic4", "n2.nic4>pcie4", "n2.pcie4>gpu4",
    ]  # fmt: skip


def test_without_nvlink_it_leaves_by_the_other_nic() -> None:
    machine = cluster({"base": "l40s-pcie", "fabric": "rail_only", "nics": 4}, 2)
    nics = [name for name in names(machine, machine.route("n0.gpu0", "n1.gpu7")) if "port" in name]
    assert nics == ["n0.nic3>port3", "n1.port3>nic3"]


def test_nics_on_two_planes_do_not_reach_each_other() -> None:
    with pytest.raises(UserError, match=r"^no route from n0.nic0 to n1.nic1$"):
        cluster({"base": "dgx-h100", "fabric": "leaf_spine", "planes": 2}, 2).route("n0.nic0", "n1.nic1")


def test_planes_share_no_link() -> None:
    machine = cluster({"base": "dgx-h100", "fabric": "leaf_spine", "planes": 4}, 64)
    used = [{link for path in machine.paths(f"n0.nic{k}", f"n63.nic{k}") for link in path} for k in range(4)]
    assert len(set().union(*used)) == sum(map(len, used))


def test_a_route_to_another_site_crosses_the_link_between_them_alone() -> None:
    sites = {"sites": 2, "site_bandwidth": "100 Gb/s", "site_latency": "2 ms"}
    machine = cluster({**TWO_LEAVES, **sites}, 32)
    links = [machine.links[link] for link in machine.route("n0.nic0", "n31.nic0")]
    assert [(link.name, link.bytes_per_s, link.latency_s) for link in links if link.latency_s > 1e-3] == [
        ("site0-border>site1-border", 12.5e9, 2e-3)
    ]


def test_routes_inside_a_site_do_not_pass_its_border() -> None:
    machine = cluster({**TWO_LEAVES, "sites": 2, "site_bandwidth": "100 Gb/s"}, 32)
    assert not any("border" in name for name in names(machine, machine.route("n0.nic0", "n15.nic0")))


def test_a_degraded_link_has_its_part_of_the_rate_one_way() -> None:
    degraded = [{"link": "leaf0>spine3", "factor": 0.25}]
    machine = cluster({**TWO_LEAVES, "degraded": degraded}, 16)
    slow = {hop.name: hop.bytes_per_s for hop in machine.network.hops if hop.bytes_per_s != PORT}
    assert slow == {"leaf0>spine3": PORT / 4}


@pytest.mark.parametrize("fabric", ["torus", "mesh"])
def test_routes_lead_round_a_link_that_is_down(fabric: str) -> None:
    degraded = [{"link": "router0<>router1", "factor": 0}]
    machine = cluster({**SMALL, "fabric": fabric, "sizes": [4, 4], "degraded": degraded}, 16)
    assert [hops(machine, *ends) for ends in ((0, 1), (1, 0))] == [3, 3]


def test_a_leaf_without_uplinks_says_so() -> None:
    degraded = [{"link": f"leaf0>spine{i}", "factor": 0} for i in range(8)]
    with pytest.raises(
        UserError, match=r"^cluster: degraded = \['leaf0>spine0', .*: no route from n0.nic0 to n15.nic0$"
    ):
        cluster({**TWO_LEAVES, "degraded": degraded}, 16).route("n0.nic0", "n15.nic0")


# -- Mistakes, hashes, large clusters ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "nodes", "line"),
    [
        ({"fabric": "hypercube"}, 2, "fabric = 'hypercube': expected one of rail, leaf, single, rail_only, leaf_spine"),
        ({"fabric": "torus", "sizes": [4, 3]}, 16, "sizes = [4, 3]: expected sizes whose product is the 16 nodes"),
        ({"fabric": "torus"}, 16, "sizes = []: expected sizes whose product is the 16 nodes"),
        (
            {"fabric": "torus", "sizes": [16], "oversubscription": 2},
            16,
            'oversubscription = 2.0: fabric "torus" has none',
        ),
        ({"sizes": [4, 4]}, 16, 'sizes = [4, 4]: fabric "rail" has none; torus, mesh have it'),
        ({"fabric": "dragonfly"}, 4, "groups = 0: expected at least 1"),
        (
            {"fabric": "dragonfly", "groups": 9, "group_routers": 2, "global_links": 1},
            18,
            "global_links = 1: 2 routers",
        ),
        ({"fabric": "leaf_spine", "spines": 5}, 16, "spines = 5: a leaf has 32 uplinks"),
        ({"fabric": "leaf_spine"}, 2048, "spine_radix = 64: 512 leaves need 512 ports of a spine"),
        ({"fabric": "rail_only"}, 65, "leaf_radix = 64: a rail is one switch"),
        ({"fabric": "leaf", "leaf_radix": 14}, 2, "leaf_radix = 14: a leaf has 7 of its ports"),
        ({"fabric": "leaf_spine", "cabling": "leaf", "leaf_radix": 2}, 8, "leaf_radix = 2: a leaf has 1 of its ports"),
        ({"fabric": "fat_tree", "cabling": "leaf", "leaf_radix": 8}, 8, "leaf_radix = 8: a leaf has 4 of its ports"),
        ({"planes": 9}, 2, "planes = 9: a node has 8 NICs"),
        ({"sites": 3, "site_bandwidth": "1 Tb/s"}, 4, "sites = 3: does not divide the 4 nodes"),
        ({"sites": 2}, 4, "sites = 2: needs site_bandwidth"),
        ({"site_latency": "1 ms"}, 4, "sites = 1: expected at least 2"),
        ({"degraded": [{"link": "leaf0>moon", "factor": 0}]}, 4, "degraded = 'leaf0>moon': no such link"),
        ({"degraded": [{"link": "leaf0>spine", "factor": 2}]}, 4, "degraded.0.factor = 2: expected at most 1"),
        ({"fabric": "mesh", "sizes": [4], "sharp": True}, 4, 'sharp = True: fabric "mesh" has none; rail, leaf, rail_'),
        ({"network": "roce", "sharp": True}, 4, 'sharp = True: network "roce" has none; infiniband has it'),
        ({"routing": "random"}, 4, "routing = 'random': expected 'hash', 'spray' or 'adaptive'"),
    ],
)
def test_a_mistake_is_one_line(keys: dict, nodes: int, line: str) -> None:
    with pytest.raises(UserError) as error:
        cluster({"base": "dgx-h100", **keys}, nodes, "s.toml")
    assert (len(error.value.faults), str(error.value)[: len(line) + 16]) == (1, f"s.toml: cluster.{line}")


def test_nodes_of_a_mix_are_on_one_fabric() -> None:
    mix = [{"base": "dgx-h100", "nodes": 1, "fabric": "fat_tree"}, {"base": "dgx-a100", "nodes": 1}]
    with pytest.raises(UserError, match=r"^s.toml: cluster.mix = \['fat_tree', 'rail'\]: expected one fabric"):
        cluster({"mix": mix}, 2, "s.toml")


def test_one_node_needs_no_network() -> None:
    """What asks for one node of a cluster need not know of the others."""
    whole = {
        "base": "dgx-h100",
        "fabric": "torus",
        "sizes": [4, 4],
        "degraded": [{"link": "router0>router1", "factor": 0}],
    }
    assert cluster(whole, 1).network.hops == ()


def test_keys_that_are_left_as_they_are_do_not_change_the_hash_of_a_scenario() -> None:
    assert cluster_inputs("dgx-h100", 2)["parts"][0]["fabric"].keys() == {
        "kind", "oversubscription", "leaf_radix", "switch_latency_s", "network",
    }  # fmt: skip


def test_each_key_of_a_fabric_changes_the_hash_of_a_scenario() -> None:
    spec = {"base": "dgx-h100", "fabric": "leaf_spine"}
    changes = [{}, {"routing": "spray"}, {"hash_seed": 1}, {"flows": 2}, {"planes": 2}, {"cabling": "leaf"}]
    found = [repr(cluster_inputs({**spec, **change}, 2)) for change in changes]
    assert len(set(found)) == len(changes)


@pytest.mark.parametrize(
    "keys",
    [
        {"fabric": "fat_tree"},
        {"fabric": "leaf_spine", "spine_radix": 512},
        {"fabric": "torus", "sizes": [8, 16, 16]},
        {"fabric": "dragonfly", "groups": 33, "group_routers": 16, "global_links": 8},
    ],
)
def test_the_last_of_16384_gpus_is_reached(keys: dict) -> None:
    machine = cluster({"base": "dgx-h100", **keys}, 2048)
    assert (machine.n_gpus, len(machine.route("n0.gpu0", "n2047.gpu7")) > 0) == (16_384, True)
