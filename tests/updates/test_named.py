"""Updates whose exchanges follow algorithms that a scenario names: closed forms, links, what is refused."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator import UserError
from runcast.simulator.api import compare, explain, load, simulate, sweep
from runcast.simulator.collectives import Machines
from runcast.simulator.collectives.algorithms import algorithms
from runcast.simulator.collectives.algorithms.clock import end_s
from runcast.simulator.collectives.algorithms.hops import ClusterNet
from runcast.simulator.collectives.algorithms.messages import Pairs
from runcast.simulator.collectives.algorithms.uneven import UnevenNet
from runcast.simulator.collectives.algorithms.ways import Ways, link_bytes
from runcast.simulator.hardware import cluster
from runcast.simulator.profile import load_profile

from ..examples import examples

BUCKET, SENDER = "what-if-bucket", "what-if-sender"
BROADCASTS = ("chain", "binomial", "scatter_all_gather", "scatter_doubling")


def priced(name, **changes):
    """The resolved update, and the seconds of its broadcasts without contention."""
    resolved = simulate(name, changes).resolved
    return resolved, resolved.costs.uncontended_s[resolved.program.is_kind("broadcast")]


def machines(nodes, **keys):
    return Machines(cluster({"base": "dgx-h100", **keys}, nodes), load_profile("h100-sxm"))


@pytest.mark.parametrize("name", BROADCASTS)
def test_a_broadcast_of_whole_nodes_takes_its_closed_form(name):
    resolved, seconds = priced(BUCKET, **{"collectives.broadcast": name})
    net = ClusterNet(Machines(resolved.cluster, resolved.profile), range(16), "broadcast").crowded()
    casts = np.flatnonzero(resolved.program.is_kind("broadcast"))
    sizes, roots = resolved.program.bytes[casts].tolist(), resolved.program.root[casts].tolist()
    expected = [net.formula(algorithms("broadcast")[name], *one).seconds for one in zip(sizes, roots, strict=True)]
    assert seconds.tolist() == pytest.approx(expected, rel=1e-9)


def test_a_chain_takes_about_what_the_ring_takes_that_it_is():
    whole, chain = (
        simulate(BUCKET, changes).report.update_time_s for changes in ({}, {"collectives.broadcast": "chain"})
    )
    assert chain == pytest.approx(whole, rel=0.01)


SIZES = st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=2, max_size=4).filter(lambda sizes: len(set(sizes)) > 1)


def uneven(sizes):
    """So many ranks on each node."""
    return UnevenNet(machines(len(sizes)), [8 * node + k for node, many in enumerate(sizes) for k in range(many)],
                     "broadcast")  # fmt: skip


@given(SIZES, st.integers(0, 7), st.integers(0, 6), st.floats(1e3, 1e9))
@examples(60)
def test_a_chain_over_unequal_islands_ends_with_its_last_message(sizes, root, pieces, size):
    net, chain = uneven(sizes), algorithms("broadcast")["chain"]
    group = net.group(root % sum(sizes), 1 << pieces)
    found = net.formula(chain, size, group.root, group.pieces)
    assert found.seconds == pytest.approx(net.launch_s + end_s(chain.chunks(group), group, size, net), rel=1e-9)


def test_from_one_trainer_to_a_node_a_binomial_tree_crosses_the_network_four_times():
    """The trainer sends to its four children one after the other; their children are inside the node."""
    net, size = uneven([1, 8]), 1e9
    rail = net.kinds["rail"]
    expected = 4 * (rail.latency_s + size / rail.bytes_per_s)
    assert net.formula(algorithms("broadcast")["binomial"], size).seconds == pytest.approx(net.launch_s + expected)


@given(SIZES, st.integers(0, 31))
@examples(40)
def test_hops_of_unequal_islands_are_those_of_equal_ones_of_their_kind(sizes, seed):
    net, equal = uneven(sizes), ClusterNet(machines(2), range(16), "broadcast")
    a, b = np.random.default_rng(seed).choice(sum(sizes), 2, replace=False)
    hops = net.hops(Pairs(np.array([a]), np.array([b])))
    kind = equal.kinds["inside" if net.is_inside(a, b) else "rail"]
    assert (hops.latency_s[0], 1 / hops.s_per_byte[0]) == pytest.approx((kind.latency_s, kind.bytes_per_s))


@given(st.sampled_from(BROADCASTS), SIZES, st.integers(0, 31))
@examples(40)
def test_every_rank_but_the_root_receives_every_byte_at_least_once(name, sizes, root):
    """Bytes into GPUs, over NVLink or from NICs: a chain and a binomial tree send to each exactly once."""
    net, algorithm = uneven(sizes), algorithms("broadcast")[name]
    group = net.group(root % sum(sizes))
    if algorithm.refuses(group):
        return
    graph = net._machines.cluster
    moved = link_bytes(algorithm.chunks(group), 1.0, net, Ways(graph))
    into = sum(moved[link] for link, one in enumerate(graph.links) if re.search(r">(\S*\.)?gpu\d+$", one.name))
    assert into >= sum(sizes) - 1 - 1e-9
    if name in ("chain", "binomial"):
        assert into == pytest.approx(sum(sizes) - 1)


def test_no_link_is_asked_for_more_than_it_has():
    for name in BROADCASTS[:3]:
        for changes in ({}, {"update.method": "all_senders"}, {"cluster": {"base": "dgx-h100", "oversubscription": 4}}):
            costs = priced(SENDER, **{"collectives.broadcast": name} | changes)[0].costs
            capacity = costs.capacity_bytes_per_s[costs.demand.values]
            assert (costs.rate_bytes_per_s <= capacity * (1 + 1e-9)).all()


def test_senders_at_the_same_time_share_the_receivers_nics():
    """8 trainers send stripes to one node at once: its NICs take as long for a chain as for the library's ring."""
    ring, chain = (simulate(SENDER, {"update.method": "all_senders", **of}).report.update_time_s
                   for of in ({}, {"collectives.broadcast": "chain"}))  # fmt: skip
    alone = simulate(SENDER, {"collectives.broadcast": "chain"}).report.update_time_s
    assert alone / 8 < chain == pytest.approx(ring, rel=0.25)


@pytest.mark.parametrize("name", ["ring", "direct", "bruck", "recursive_doubling"])
def test_gathers_of_trainers_take_host_work_and_their_closed_form(name):
    sharded = {"update.trainer": {"gpus": 8, "sharded": True}}
    plain, named = (simulate(SENDER, sharded | of).resolved for of in ({}, {"collectives.all_gather": name}))
    gathers = named.program.is_kind("gather")
    net = ClusterNet(Machines(named.cluster, named.profile), range(8), "all_gather").crowded()
    form = [net.formula(algorithms("all_gather")[name], float(size)).seconds for size in named.program.bytes[gathers]]
    shape, value = named.program.shape, named.profile.value
    counts = np.array([shape[op] for op in np.flatnonzero(gathers)])
    host = value("export.s") + counts[:, 2] * value("export.tensor_s") + counts[:, 0] * value("convert.tensor_s")
    assert named.costs.uncontended_s[gathers] == pytest.approx(host + form, rel=1e-9)
    assert plain.costs.uncontended_s[gathers] == pytest.approx(host + form, rel=0.5)


def test_agreements_between_buckets_may_be_named():
    resolved = simulate(BUCKET, {"collectives.all_reduce": "tree"}).resolved
    net = ClusterNet(Machines(resolved.cluster, resolved.profile), range(16), "all_reduce")
    expected = net.formula(algorithms("all_reduce")["tree"], 8.0).seconds
    found = resolved.costs.uncontended_s[resolved.program.is_kind("agree")]
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", [BUCKET, SENDER, "tiny-stage-heads", "cpu-2ranks"])
def test_measured_is_what_it_was(name):
    plain, said = (simulate(name, of).report for of in ({}, {"collectives.broadcast": "measured"}))
    assert (plain.scenario_hash, plain.update_time_s) == (said.scenario_hash, said.update_time_s)


def test_a_named_algorithm_has_a_hash_of_its_own_and_takes_the_place_of_the_stacks_trees():
    plain, named = (simulate("cpu-2ranks", of).resolved for of in ({}, {"collectives.broadcast": "binomial"}))
    assert plain.hash != named.hash
    assert plain.program is not plain.executed
    assert named.program is named.executed


@pytest.mark.parametrize(
    ("name", "changes", "line"),
    [
        (BUCKET, {"collectives.broadcast": "nope"},
         "collectives.broadcast = 'nope': expected one of measured, chain, binomial, scatter_all_gather, scatter_doub"),
        (BUCKET, {"collectives.reduce": "chain"}, "collectives.reduce: unknown key; did you mean all_reduce?"),
        (BUCKET, {"collectives.all_gather": "ring"}, "collectives.all_gather = 'ring': update.method = 'broadcast' has "
         "no all_gather here; it has broadcast and all_reduce"),
        (BUCKET, {"update.pipeline": "three_stage", "collectives.all_reduce": "ring"},
         "collectives.all_reduce = 'ring': update.method = 'broadcast' has no all_reduce here; it has broadcast"),
        (SENDER, {"update.method": "reshard", "collectives.broadcast": "chain"},
         "collectives.broadcast = 'chain': update.method = 'reshard' has no broadcast here"),
        (SENDER, {"update.method": "colocated", "update.trainer": {"gpus": 16}, "collectives.broadcast": "chain"},
         "collectives.broadcast = 'chain': update.method = 'colocated' has no broadcast here; it has all_gather"),
        (SENDER, {"collectives.broadcast": "scatter_doubling"},
         "collectives.broadcast = 'scatter_doubling': expected a power of two of ranks (given: 9)"),
        (BUCKET, {"collectives.all_reduce": "nvls"}, "collectives.all_reduce = 'nvls': NVLS adds inside one NVSwitch "
         "domain (given: ranks of 2 such domains)"),
        ("tiny-p2p", {"collectives.all_reduce": "ring", "update.ranks": 3, "update.inference.tp": 1, "nodes": 2,
         "cluster": {"base": "h20-hgx", "gpus_per_node": 2}},
         "collectives.all_reduce = 'ring': algorithms need islands of equal size (given: 1 and 2)"),
    ],
)  # fmt: skip
def test_what_is_not_possible_there_is_one_line(name, changes, line):
    with pytest.raises(UserError) as error:
        simulate(name, changes)
    assert str(error.value).startswith(f"{name}: {line}")
    assert len(error.value.faults) == 1


def test_a_change_of_method_leaves_out_what_the_new_one_has_not():
    swept = sweep(load(SENDER, {"collectives.all_gather": "ring"}), {"update.method": ["relays", "reshard"]}).frame()
    assert swept.update_time_s.notna().all()


def test_sweeps_compare_and_explain_take_it():
    swept = sweep(SENDER, {"collectives.broadcast": ["measured", "chain", "binomial"]}).frame()
    times = swept.update_time_s.tolist()
    assert times[1] == pytest.approx(times[0], rel=0.1)
    assert times[2] > 3 * times[0]
    sides = compare(SENDER, None, {"collectives.broadcast": "binomial"})
    assert "binomial" in str(sides.to_json())
    assert "binomial" in str(explain(SENDER, {"collectives.broadcast": "binomial"}).to_json())
