"""Messages as flows over links: with room they end when the clock says; without it groups share them, as in SimGrid.

Pods are those of tests/collectives/test_uplinks.py: 8 nodes of one GPU and one NIC, four under a leaf.
"""

import random
from collections import Counter
from itertools import product
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from runcast.simulator.collectives import Machines
from runcast.simulator.collectives.algorithms import OPS, algorithms
from runcast.simulator.collectives.algorithms.clock import end_s
from runcast.simulator.collectives.algorithms.hops import ClusterNet
from runcast.simulator.collectives.algorithms.messages import Chunks, Pairs, Round, fixed
from runcast.simulator.engine import simulate
from runcast.simulator.hardware import cluster
from runcast.simulator.profile import load_profile
from runcast.simulator.systems.collective.lower import Exchange, lower

from ..examples import examples
from .make import changed, collective, predicted, seconds

ALL = [one for op in OPS for one in algorithms(op).values()]
COLLECTIVES = Path(__file__).parents[1] / "oracles/simgrid_collectives.py"
FABRICS = 40
MIXED = ("scatter_all_gather", "ring_gather")
"""Some messages go through a rank's own NICs while others go through all NICs of its node, so that they share some."""


def pods(oversubscription):
    base = {"base": "dgx-h100", "gpus_per_node": 1, "nics": 1, "pcie_switches": 1, "sockets": 1}
    return {**base, "oversubscription": oversubscription, "leaf_radix": 4 + 4 // oversubscription}


def machines(given, nodes):
    return Machines(cluster(given, nodes), load_profile("h100-sxm"))


def ends_s(exchanges, on):
    return simulate(*lower(on.cluster, on.capacity, exchanges)).makespan_s


@given(
    st.sampled_from(ALL), st.integers(1, 4), st.sampled_from([1, 2, 4, 8]), st.integers(0, 31), st.integers(1, 6),
    st.floats(1e3, 1e9), st.integers(1, 2),
)  # fmt: skip
@examples(150)
def test_flows_with_room_end_when_the_clock_says(algorithm, islands, near, root, pieces, size, nics):
    """Nodes of up to 8 GPUs, with one or two NICs each."""
    assume(islands * near > 1)
    on = machines({"base": "dgx-h100", "gpus_per_node": near, "nics": nics * near, "pcie_switches": near}, islands)
    net = ClusterNet(on, range(islands * near), algorithm.op)
    group = net.group(root % (islands * near), pieces)
    chunks = algorithm.chunks(group)
    assume(not algorithm.refuses(group) and not chunks.switches)
    flows_s, clock_s = ends_s([Exchange(chunks, group, size, net)], on), end_s(chunks, group, size, net)
    if algorithm.name in MIXED and islands > 1:
        assert clock_s * (1 - 1e-9) <= flows_s <= clock_s * 1.5
    else:
        assert flows_s == pytest.approx(clock_s, rel=1e-9)


@pytest.mark.parametrize("algorithm", ["direct", "pairwise", "hierarchical"])
@pytest.mark.parametrize("fabric", [{"fabric": "rail_only"}, {"planes": 2}], ids=str)
def test_messages_to_other_rails_that_do_not_meet_go_over_nvlink(fabric, algorithm):
    """Not through sockets, whose lanes they would share: a direct all-to-all was a third too slow."""
    on, found = machines({"base": "dgx-h100", **fabric}, 2), algorithms("all_to_all")[algorithm]
    net, size = ClusterNet(on, range(16), "all_to_all"), 2**28
    chunks = found.chunks(net.group())

    took_s = ends_s([Exchange(chunks, net.group(), size, net)], on)

    assert took_s == pytest.approx(end_s(chunks, net.group(), size, net))


NIC, CABLE = 0.9303 * 50e9, 50e9
"""What a NIC of 400 Gb/s sustains (profile h100-sxm), and what an uplink of a leaf carries."""


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "all_to_all"])
def test_flows_of_gpus_whose_wires_form_rings_use_all_of_them(op):
    """Each V100 of a DGX-1 has six wires, and none to three of the others."""
    on = Machines(cluster("dgx-v100", 1), load_profile("v100"))
    algorithm = next(iter(algorithms(op).values()))
    net, size = ClusterNet(on, range(8), op), 2**28
    chunks = algorithm.chunks(net.group())

    took_s = ends_s([Exchange(chunks, net.group(), size, net)], on)

    assert took_s == pytest.approx(end_s(chunks, net.group(), size, net))


@pytest.mark.parametrize("oversubscription", [1, 2, 4])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_groups_that_lie_in_both_pods_share_their_uplinks(oversubscription, groups):
    """A ring of each group crosses the uplinks of a pod once: each step waits for 1/groups of four cables or fewer."""
    size, ranks = 1 << 30, 8 // groups
    keys = {"nodes": 8, "cluster": pods(oversubscription), "algorithm": "ring", "level": "chunks", "groups": groups}
    placement = {"placement": "scattered"} if groups > 1 else {}
    resolved = collective(sizes=size, **keys, **placement)
    net, uplink = resolved.net, 4 / oversubscription * CABLE
    step_s = net.kinds["rail"].latency_s + size / ranks / min(NIC, uplink / groups)
    assert net.kinds["rail"].bytes_per_s == pytest.approx(NIC, rel=1e-4)
    assert resolved.rows[0].seconds == pytest.approx(net.launch_s + 2 * (ranks - 1) * step_s, rel=1e-4)


def test_the_curve_has_the_rate_that_uplinks_leave_all_ranks():
    """4 of a rank's 7 peers are in the other pod: 4 NICs x 4/7 on one uplink leave 7/16, as NICs that use 175 Gb/s."""
    keys = {"op": "all_to_all", "sizes": "1 GiB", "nodes": 8, "level": "measured"}
    used = load_profile("h100-sxm").model("all_to_all.network").coefficients["e"]
    slow = {**pods(1), "nic": f"{175 / used} Gb/s"}
    crowded, slower = (seconds(cluster=given, **keys) for given in (pods(4), slow))
    assert crowded == pytest.approx(slower)


SPINES = {**pods(1), "gpus_per_node": 2, "nics": 2, "fabric": "leaf_spine", "cabling": "leaf", "leaf_radix": 4}
"""Two NICs of a node under a leaf with two uplinks."""


def ring_step_s(resolved, share):
    """Of a ring over two such nodes, if the fullest cable has this share of what a node sends to the other."""
    size, rate = resolved.keys.sizes[0] / 4, min(2 * NIC, CABLE / share)
    return resolved.net.kinds["striped"].latency_s + size / rate


@pytest.mark.parametrize(
    "routing", [{"routing": "adaptive"}, {"routing": "adaptive", "flows": 16}, {"routing": "spray"}]
)
def test_flows_that_are_spread_evenly_leave_room(routing):
    resolved = collective(sizes="1 GiB", cluster={**SPINES, **routing}, algorithm="ring", level="chunks")
    expected = resolved.net.launch_s + 6 * ring_step_s(resolved, 1 / 2)
    assert resolved.rows[0].seconds == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("flows", [1, 4, 16])
def test_of_hashed_flows_the_fullest_cable_decides(flows):
    resolved = collective(sizes="1 GiB", cluster={**SPINES, "flows": flows}, algorithm="ring", level="chunks")
    network, crossed = resolved.cluster.network, Counter()
    for a, b, k, flow in product(range(2), range(2), range(2), range(flows)):
        if a != b:
            crossed.update(network.route(f"leaf{a}", f"leaf{b}", f"n{a}.nic{k}", f"n{b}.nic{k}", flow))
    expected = resolved.net.launch_s + 6 * ring_step_s(resolved, max(crossed.values()) / (2 * flows))
    assert resolved.rows[0].seconds == pytest.approx(expected, rel=1e-4)


def test_groups_in_pods_of_their_own_share_nothing():
    keys = {"sizes": "1 GiB", "nodes": 8, "cluster": pods(4), "algorithm": "ring"}
    together, alone = seconds(level="chunks", groups=2, **keys), seconds(**keys, groups=2)
    assert together == pytest.approx(alone, rel=1e-9)


def test_groups_whose_sums_switches_add_are_left_out():
    """As of jobs: nothing is known of what such groups leave each other; those inside a node share nothing."""
    rails = collective(nodes=4, groups=8, placement="rails", level="chunks")
    inside = collective(nodes=4, groups=4, level="chunks")

    assert "sharp: its switches have no links of their own, which groups could share" in rails.refused
    assert "measured: the curve is of the first group alone" in rails.notes
    assert "nvls" in [one.name for one in inside.chosen]


def test_groups_along_rails_share_the_nodes_and_no_cable():
    """Eight groups, one GPU of each of two nodes: as long as one of them alone."""
    keys = {"sizes": "1 GiB", "algorithm": "ring"}
    together = seconds(groups=8, placement="rails", level="chunks", **keys)
    assert together == pytest.approx(seconds(groups=8, placement="rails", **keys), rel=1e-9)


# Random messages on random fabrics, as SimGrid has them


def messages(seed):
    """Exchanges of one round between random GPUs, in up to three groups of a GPU of each of some nodes."""
    rng = random.Random(seed)
    nodes, near = rng.randint(3, 8), rng.choice([1, 2, 4])
    given = {**pods(rng.choice([2, 4, 8])), "gpus_per_node": near, "nics": rng.choice([1, near])}
    on, exchanges = machines(given, nodes), []
    for place in range(rng.randint(1, near)):
        net = ClusterNet(on, [node * near + place for node in range(nodes)], "all_reduce")
        to = np.array(rng.sample(range(nodes), nodes))
        src = np.flatnonzero(to != np.arange(nodes))
        pairs = Pairs(src, to[src])
        chunks = Chunks(1, lambda pairs=pairs: iter([Round(pairs, fixed(np.zeros_like(pairs.src)))]))
        exchanges.append(Exchange(chunks, net.group(), float(rng.randint(1, 60) * 10_000_000), net))
    return on, exchanges


def as_ops(costs, sizes):
    """Flows as ops of SimGrid: what each puts on the links that it crosses, and a link of its own with its rate."""
    capacity, ops = list(map(float, costs.capacity_bytes_per_s)), []
    for op, row in enumerate(costs.row.tolist()):
        first, end = costs.demand.start[row], costs.demand.start[row + 1]
        links, rates = costs.demand.values[first:end].tolist(), costs.rate_bytes_per_s[first:end]
        amounts = dict(zip(links, (rates * costs.work_s[op]).tolist(), strict=True))
        amounts[len(capacity)] = float(sizes[op])
        capacity.append(float(sizes[op] / costs.work_s[op]))
        ops.append({"start": float(costs.latency_s[op]), "amounts": amounts})
    return {"capacity": [rate if rate < inf else 1e18 for rate in capacity], "ops": ops}


@pytest.mark.slow
def test_messages_that_share_links_end_as_in_simgrid(simgrid):
    cases, ours, shared = [], [], 0
    for seed in range(FABRICS):
        on, exchanges = messages(seed)
        program, costs = lower(on.cluster, on.capacity, exchanges)
        if not len(program):
            continue
        cases.append(as_ops(costs, program.bytes))
        ours.append(simulate(program, costs).end_s.tolist())
        shared += any(end > a + b + 1e-9 for end, a, b in zip(ours[-1], costs.latency_s, costs.work_s, strict=True))
    assert shared > FABRICS / 4
    assert ours == [pytest.approx(ends, rel=1e-6) for ends in simgrid(COLLECTIVES, cases)]


TORUS = {"base": "dgx-h100", "gpus_per_node": 1, "nics": 1, "pcie_switches": 1, "sockets": 1, "fabric": "torus"}
CROWDED = {
    "a torus": ({**TORUS, "sizes": [4, 4]}, 16),
    "pods that share uplinks": (pods(4), 8),
}


@pytest.mark.parametrize("fabric", CROWDED)
@pytest.mark.parametrize(("op", "algorithm"), [
    ("all_reduce", "halving_doubling"), ("all_reduce", "recursive_doubling"), ("all_gather", "recursive_doubling"),
    ("broadcast", "binomial"), ("scatter", "binomial"), ("all_reduce", "ring"),
    ("gather", "direct"), ("scatter", "direct"), ("reduce", "ring_gather"),
])  # fmt: skip
def test_closed_forms_take_the_share_that_their_own_messages_leave(fabric, op, algorithm):
    """Not that of a ring: on a torus a ring leaves all, and partners far away share links."""
    given, nodes = CROWDED[fabric]
    formula_s, chunks_s = (
        seconds(op, "256 MiB", cluster=given, nodes=nodes, algorithm=algorithm, level=level)[algorithm]
        for level in ("formula", "chunks")
    )
    assert formula_s == pytest.approx(chunks_s, rel=0.01)


@pytest.mark.parametrize(("nodes", "sites"), [(6, 2), (8, 4), (12, 4), (15, 5)])
def test_what_a_rank_receives_through_both_ports_in_a_round_is_waited_for(nodes, sites):
    """In a tree the head of an island hears its own chain and, from another site, another head."""
    given = {"base": "dgx-h100", "sites": sites, "site_bandwidth": "1 PB/s", "site_latency": "10 ms"}
    formula_s, chunks_s = (
        seconds("all_reduce", "16 MiB", cluster=given, nodes=nodes, algorithm="tree", level=level)["tree"]
        for level in ("formula", "chunks")
    )
    assert formula_s == pytest.approx(chunks_s, rel=2e-3)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize(("sizes", "gain"), [([8], 2), ([4, 4], 2), (None, 1)])
def test_both_directions_of_a_ring_gain_where_each_has_links_of_its_own(op, sizes, gain):
    """A port of a torus has a link for each direction, of which a ring uses one; one to a switch is full anyway."""
    given, nodes = ({**TORUS, "sizes": sizes}, int(np.prod(sizes))) if sizes else (pods(1), 8)
    for level in ("formula", "chunks"):
        ring, both = (
            predicted(op, "1 GiB", cluster=given, nodes=nodes, algorithm=name, level=level).best
            for name in ("ring", "bidirectional_ring")
        )
        assert both.latency_s == ring.latency_s
        assert ring.seconds - ring.latency_s == pytest.approx(gain * (both.seconds - both.latency_s), rel=0.08)


def test_partners_in_two_pods_share_the_uplinks_of_one():
    """By hand: 8 ranks in two pods halve at distances 4, 2, 1; at 4 all NICs of a leaf share one NIC's uplink."""
    on = machines(pods(4), 8)
    net, size = ClusterNet(on, range(8), "reduce_scatter").crowded(), 8e9
    rail, line_bytes_per_s = net.kinds["rail"], 50e9

    found = net.seconds(algorithms("reduce_scatter")["recursive_halving"].terms(net.group(), size))

    near = (size / 4 + size / 8) / rail.bytes_per_s
    assert found == pytest.approx(3 * rail.latency_s + size / 2 / (line_bytes_per_s / 4) + near)


@pytest.mark.parametrize("algorithm", ["direct", "pairwise", "hierarchical"])
@pytest.mark.parametrize("rails", [{"oversubscription": 4}, {"oversubscription": 2}, {}])
def test_messages_between_rails_cross_spines_unless_they_are_passed_on(algorithm, rails):
    """By their own NICs seven eighths of all messages go to another rail, and so to a spine."""
    given = {"base": "dgx-h100", "fabric": "rail", **rails}
    formula_s, chunks_s = (
        seconds("all_to_all", "1 GiB", cluster=given, nodes=8, algorithm=algorithm, level=level)[algorithm]
        for level in ("formula", "chunks")
    )
    assert formula_s == pytest.approx(chunks_s, rel=0.08)


@pytest.mark.parametrize("nodes", [4, 6])
@pytest.mark.parametrize(("op", "algorithm", "root"), [
    ("reduce", "binomial", 6), ("reduce", "ring_gather", 0), ("broadcast", "binomial", 6), ("gather", "direct", 0),
    ("gather", "binomial", 6), ("all_to_all", "bruck", 0), ("all_gather", "bruck", 0),
])  # fmt: skip
def test_closed_forms_know_messages_from_one_rail_to_another(op, algorithm, root, nodes):
    """Through the sender's own NIC and a spine, as level chunks has them; nothing is passed on over NVLink."""
    given = {"base": "dgx-h100", "fabric": "rail", "oversubscription": 8, "leaf_radix": 4}
    keys = {"cluster": given, "nodes": nodes, "algorithm": algorithm, **({"root": root} if root else {})}
    formula_s, chunks_s = (seconds(op, "256 MiB", level=level, **keys)[algorithm] for level in ("formula", "chunks"))
    assert formula_s == pytest.approx(chunks_s, rel=0.005)


def test_a_note_says_where_a_formula_knows_links_on_average():
    (note,) = (note for note in collective(cluster=pods(4), nodes=8).notes if "level chunks" in note)
    assert note.startswith("links between switches carry less than all NICs")


def test_a_ring_whose_ranks_interleave_leaves_puts_every_message_on_an_uplink():
    """In the order of leaves one flow of two hosts crosses the uplink, which has its rate; interleaved both do."""
    hosts = {"base": "cpu-host", "gpus_per_node": 1, "nic": "100 Mb/s", "fabric": "leaf", "leaf_radix": 3,
             "oversubscription": 2}  # fmt: skip
    keys = {
        "cluster": hosts,
        "nodes": 4,
        "op": "all_reduce",
        "algorithm": "ring",
        "level": "chunks",
    }
    packed, interleaved = (
        changed({"profile": "generic"}, sizes="64 MiB", **keys, **more) for more in ({}, {"placement": "interleaved"})
    )
    assert interleaved.ranks == (0, 2, 1, 3)
    assert interleaved.rows[0].seconds == pytest.approx(2 * 1.5 * (64 << 20) / 12.5e6, rel=0.01)
    assert packed.rows[0].seconds < interleaved.rows[0].seconds


OF_TWO_NODES = {"leaf_radix": 32}
UNDER_A_LEAF = [
    ({"fabric": "leaf", **OF_TWO_NODES}, [0, 2, 1, 3]),
    ({"fabric": "leaf_spine", "cabling": "leaf", **OF_TWO_NODES}, [0, 2, 1, 3]),
    ({"fabric": "rail", "leaf_radix": 4}, [0, 2, 1, 3]),
    ({"fabric": "torus", "sizes": [4]}, [0, 1, 2, 3]),
    ({"fabric": "dragonfly", "groups": 2, "group_routers": 1, "global_links": 1}, [0, 2, 1, 3]),
]


@pytest.mark.parametrize(("keys", "order"), UNDER_A_LEAF, ids=[str(keys) for keys, _ in UNDER_A_LEAF])
def test_interleaved_ranks_take_the_nodes_of_all_leaves_in_turn(keys, order):
    """Two nodes of 8 NICs are at a leaf or router, or one at each router of a torus."""
    found = collective(cluster={"base": "dgx-h100", **keys}, nodes=4, placement="interleaved")
    assert [rank // 8 for rank in found.ranks[::8]] == order
