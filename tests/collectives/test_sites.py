"""What links between sites add to hops of algorithms, fitted curves, steps and updates. Latencies are huge."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from runcast.simulator.api import simulate
from runcast.simulator.collectives import Collective, Layout, Machines, Measured, ring_broadcast
from runcast.simulator.collectives.algorithms import OPS, algorithms
from runcast.simulator.collectives.algorithms.clock import end_s
from runcast.simulator.collectives.algorithms.hops import ClusterNet, Wire
from runcast.simulator.costs import cost
from runcast.simulator.hardware import cluster
from runcast.simulator.profile import load_profile, load_stack
from runcast.simulator.program import ProgramBuilder
from runcast.simulator.scenario import change, check_question

ALL = [one for op in OPS for one in algorithms(op).values()]
BY_OP = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "broadcast": 1, "reduce": 1, "all_to_all": 1}
PROFILE = load_profile("h100-sxm").join(load_stack("generic"))


def machine(nodes, latency, sites=2, **keys):
    given = {"base": "dgx-h100", "sites": sites, "site_bandwidth": "100 Tb/s", "site_latency": latency, **keys}
    return cluster(given, nodes)


@cache
def net(nodes, latency="1000 s", op="all_reduce", sites=2):
    return ClusterNet(Machines(machine(nodes, latency, sites), PROFILE), range(8 * nodes), op)


def curve_s(op, group, latency, *, nodes=4, stages=None, size=1e6):
    there = machine(nodes, latency)
    return Measured(Machines(there, PROFILE), Layout(there, stages or {})).price(Collective(op, group, size), group[0])


@pytest.mark.parametrize("op", BY_OP)
def test_a_fitted_curve_waits_for_as_many_crossings_as_data_must_make(op):
    far, near = (curve_s(op, tuple(range(32)), latency) for latency in ("1000 s", "1 ns"))
    assert far.seconds - near.seconds == pytest.approx(1000 * BY_OP[op])
    assert (far.work_s, far.demand) == (pytest.approx(near.work_s), pytest.approx(near.demand))


def test_a_message_waits_where_its_ends_are_at_two_sites():
    found = [curve_s("send_recv", pair, "1000 s").latency_s for pair in ((0, 8), (8, 16), (16, 24))]
    assert found == [0, 1000, 0]


def test_a_group_waits_for_those_of_its_stage_that_lie_on_two_sites():
    """Six nodes: of three groups of two nodes that send together, the second lies on both sites."""
    stages = dict.fromkeys(range(48), tuple(range(48)))
    found = [curve_s("all_gather", tuple(range(16)), "1000 s", nodes=6, stages=of).latency_s for of in ({}, stages)]
    assert found == [0, 1000]


@pytest.mark.parametrize("algorithm", ALL, ids=lambda one: f"{one.op}-{one.name}")
@pytest.mark.parametrize(("nodes", "sites"), [(2, 2), (4, 2), (8, 2), (6, 3)])
@pytest.mark.parametrize("root", [0, 8, 13])
def test_closed_forms_wait_as_often_as_messages_do(algorithm, nodes, sites, root):
    """In a round of a tree from the middle of a node the slowest message may be on no way to the last rank."""
    hops = net(nodes, op=algorithm.op, sites=sites)
    group = replace(hops.group(root, pieces=2), sharp=True, nvls=True)
    if algorithm.refuses(group):
        return
    formula, found = hops.seconds(algorithm.terms(group, 1024)), end_s(algorithm.chunks(group), group, 1024, hops)
    if root == 13:
        assert found * (1 - 2e-3) <= formula <= 2.01 * found
    else:
        assert formula == pytest.approx(found, rel=2e-3)


def test_a_ring_of_messages_under_way_crosses_each_border_once_in_a_round():
    """Two rounds, each over both links between two sites."""
    ring = algorithms("all_reduce")["ring"].terms(net(4).group(), 1.0)
    far, near = (net(4, latency).under(Wire(in_flight=True)).seconds(ring) for latency in ("1000 s", "1 ns"))
    assert far - near == pytest.approx(4000)


def test_a_link_that_is_down_leaves_the_way_over_a_third_site():
    there = machine(3, "1000 s", 3, degraded=[{"link": "site0-border>site2-border", "factor": 0}])
    assert there.site_latency_s.tolist() == [[0, 1000, 2000], [1000, 0, 1000], [1000, 1000, 0]]


@pytest.mark.parametrize("level", ["measured", "formula", "chunks"])
@pytest.mark.parametrize("op", OPS)
def test_no_latency_between_sites_makes_a_collective_faster(op, level):
    """Four nodes, and so the first hop stays inside a site."""
    of = {"op": op, "sizes": ["1 KiB", "16 MiB"], "level": level, "algorithm": "all"}
    given = {"kind": "collective", "nodes": 4, "collective": of}
    if level == "measured" and op not in BY_OP:
        return
    found = [seconds({**given, "cluster": keys(latency)}) for latency in ("1 ns", "10 us", "1 ms", "1 s")]
    assert (np.diff(found, axis=0) > 0).all()


def keys(latency):
    return {"base": "dgx-h100", "sites": 2, "site_bandwidth": "400 Gb/s", "site_latency": latency}


def seconds(table):
    return [row.seconds for row in simulate(check_question(table, "a")).report.rows]


STEP = {
    "kind": "train_step", "nodes": 4, "model": {"preset": "llama3.2-1b"}, "cluster": keys("1 ns"),
    "parallel": {"pp": 2}, "batch": {"global": 32, "seq_len": 2048},
}  # fmt: skip


@pytest.mark.parametrize("changes", [
    {}, {"level": "coarse"}, {"parallel.pp": 1}, {"parallel.tp": 8, "parallel.pp": 1},
    {"collectives.all_reduce": "tree"}, {"parallel.tp": 8, "parallel.pp": 4},
], ids=str)  # fmt: skip
def test_a_step_waits_for_its_sites(changes):
    """A micro-batch goes there and back, or gradients do; what is summed crosses twice."""
    steps = [change(STEP, {**changes, "cluster.site_latency": latency}, "a") for latency in ("1 ns", "1 ms", "10 s")]
    near, far, farther = (simulate(check_question(step, "a")).report.step_time_s for step in steps)
    assert near < far < farther - 19


def test_software_changes_no_latency_between_sites():
    b = ProgramBuilder()
    b.op("all_gather", [b.lane(b.place(f"rank {k}", (k,)), "dp") for k in (8, 16)], size_bytes=1, group=(8, 16))
    slower = PROFILE.apply_factors({"time_factor.dp": 3.0}, "a test")
    priced = [cost(b.build(), machine(4, "1000 s"), profile, "measured") for profile in (PROFILE, slower)]
    assert [float(costs.latency_s[0]) for costs in priced] == [1000, 1000]
    assert priced[1].work_s > priced[0].work_s


def test_a_broadcast_round_a_ring_crosses_where_its_hops_do():
    """Two nodes at each site: both crossings are on the way from the second, but from the first the last is idle."""
    ring = ring_broadcast(machine(4, "1000 s"), range(32))
    assert ring.site_latency_s.tolist() == [1000, 2000, 1000, 2000]
    assert ring.latency_s < 1


def two_sites(latency):
    return ["cluster.sites=2", "cluster.site_bandwidth=3.2 Tb/s", f"cluster.site_latency={latency}"]


@pytest.mark.parametrize(("name", "method"), [
    ("what-if-sender", "single_sender"), ("what-if-bucket", "broadcast"), ("what-if-bucket", "p2p"),
    ("what-if-bucket-from-trainers", "stage_heads"), ("what-if-bucket-from-trainers", "relays"),
])  # fmt: skip
def test_an_update_waits_for_its_sites(name, method):
    changes = [[*two_sites(latency), f"update.method={method}"] for latency in ("1 us", "1 ms", "10 s")]
    near, far, farther = (simulate(name, these).report.makespan_s for these in changes)
    assert near < far < farther - 10


def test_each_bucket_crosses_and_is_answered():
    """Buckets follow each other from the heads of stages, which hear of each; a barrier ends the update."""
    near, far = (simulate("what-if-sender", [*two_sites(of), "update.method=stage_heads"]) for of in ("1 us", "10 s"))
    buckets = len(far.resolved.plan.buckets)

    assert far.report.makespan_s - near.report.makespan_s == pytest.approx(10 * (2 * buckets + 2), rel=0.05)


def test_a_worker_of_a_run_waits_for_the_link_between_sites():
    asked = [["sync.bandwidth=10 Gb/s", *two_sites(latency)] for latency in ("1 ns", "2 s")]
    near, far = (simulate("run-parameter-server-async", changes).resolved.latency_s for changes in asked)
    assert far - near == pytest.approx(2)
