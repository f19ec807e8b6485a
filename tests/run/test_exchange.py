"""Exchanges between workers: rings over stated links, and collectives of the cluster as a training step has them."""

from dataclasses import replace

import pytest
from hypothesis import given as whatever
from hypothesis import strategies as st
from runcast.simulator import UserError, simulate
from runcast.simulator.collectives import Machines
from runcast.simulator.collectives.algorithms.hops import ClusterNet
from runcast.simulator.hardware import cluster
from runcast.simulator.profile import choose_profiles, devices_of, load_numbers
from runcast.simulator.scenario import load_question
from runcast.simulator.systems.run.exchange import OnCluster, over_links
from runcast.simulator.systems.run.sync.compression import dense
from runcast.simulator.systems.train_step.resolve import ResolvedTrain

from .make import FOUR_WORKERS

STEP = """
kind = "train_step"
cluster = "dgx-h100"
nodes = 4

[model]
preset = "llama3-8b"

[parallel]
tp = 8
zero = 0

[batch]
global = 64
seq_len = 4096
"""
WORKERS = range(4)


@pytest.fixture
def step(tmp_path):
    path = tmp_path / "step.toml"
    path.write_text(STEP)
    return ResolvedTrain(load_question(path))


@pytest.fixture
def given(tmp_path):
    """Four workers, a node each, without a word about their links."""
    path = tmp_path / "given.toml"
    path.write_text(FOUR_WORKERS.partition("[sync]")[0])
    return path


def on_dgx(nodes, gpus):
    nodes_of_h100 = cluster("dgx-h100", nodes, "test")
    names = choose_profiles(devices_of(nodes_of_h100), None, "test")
    profile = load_numbers(names, nodes_of_h100.fabric.network, "", "generic", "test")
    return OnCluster(Machines(nodes_of_h100, profile), gpus, ())


def exchange_s(path, *changes):
    return simulate(path, ["sync.mode=local", "sync.inner=1", *changes]).report.history.breakdown_s["exchange"] / 1000


def test_workers_of_a_node_each_exchange_at_the_price_of_data_parallelism(step):
    """Llama-3-8B on 4 nodes with tp 8: the sum of gradients over dp 4, by 8 groups at once."""
    program = step.program
    [op] = [
        op for op in range(len(program))
        if program.kind_of(op) == "all_reduce" and program.groups[program.group[op]] == (0, 8, 16, 24)
    ][:1]  # fmt: skip
    exchanges = OnCluster(Machines(step.cluster, step.profile), 8, ()).among(WORKERS, WORKERS)

    assert exchanges(dense(8 * float(program.bytes[op])), 1) == pytest.approx(step.costs.uncontended_s[op])


def test_large_messages_of_whole_nodes_take_about_as_long_as_a_ring_over_their_nics(given):
    """2 (N - 1)/N S/B, with what a collective reaches of it; eight NICs of 50 GB/s."""
    ring_s = exchange_s(given, "step.gradient=100 GB", "sync.bandwidth=400 GB/s", "sync.latency=0")

    assert ring_s < exchange_s(given, "step.gradient=100 GB") < 1.6 * ring_s


def test_workers_that_share_a_node_send_their_sum_through_its_nics_once(given):
    """Eight workers in each of four nodes: their gradients meet on NVLink."""
    alone_s = exchange_s(given, "step.gradient=1 GB", "step.gpus=8")
    shared_s = exchange_s(given, "step.gradient=1 GB", "step.gpus=1")
    eight_rings_s = 2 * 31 / 32 * 1e9 / 50e9  # over one NIC each

    assert alone_s < shared_s < eight_rings_s / 2


@pytest.mark.parametrize("stated", ["sync.bandwidth=10 GB/s", "sync.latency=1 ms"])
def test_stated_links_have_rings_and_no_note(given, stated):
    notes = {changes: simulate(given, changes).report.notes for changes in [(), (stated,)]}

    assert [any("priced as in a training step" in note for note in lines) for lines in notes.values()] == [True, False]


def test_a_ring_over_stated_links_is_that_of_its_workers():
    assert over_links(4, 10e9, 0.25)(dense(1e9), 2) == pytest.approx(2 * 3 * 2 * 0.25 + 2 * 3 / 4 * 0.1)


@whatever(st.floats(1e3, 1e11), st.floats(1, 10), st.sampled_from([1, 2, 8, 16]))
def test_more_bytes_never_travel_faster(size, more, gpus):
    workers = range(32 // gpus)
    exchanges = DGX[gpus].among(workers, workers)

    assert exchanges(dense(size), 1) <= exchanges(dense(more * size), 1) * (1 + 1e-9)


@whatever(st.floats(1e6, 1e11), st.integers(2, 40))
def test_many_messages_take_longer_than_one(size, parts):
    exchanges = DGX[8].among(WORKERS, WORKERS)

    assert exchanges(dense(size), parts) >= exchanges(dense(size), 1) * (1 - 1e-9)


@whatever(st.floats(1e3, 1e11))
def test_those_who_are_alone_on_their_nics_are_not_slower(size):
    assert DGX[2].among((0, 4), (0, 4))(dense(size), 1) <= DGX[2].among((0, 4), range(8))(dense(size), 1) * (1 + 1e-9)


def test_without_a_network_the_message_says_what_helps(given):
    with pytest.raises(
        UserError, match=r"exchanges between workers: cluster.nics = 0: no NIC is .*; state sync.bandwidth$"
    ):
        simulate(given, ["cluster={base='dgx-h100', nics=0}"])


def test_gathered_messages_are_those_of_all_workers():
    """An all-gather of nccl-tests has the bytes of all; half of an all-reduce's traffic for each byte of it."""
    gathered = replace(dense(1e10), exchange="all_gather", wire_bytes=1e10 / 4)
    reduce_s, gather_s = (DGX[8].among(WORKERS, WORKERS)(one, 1) for one in (dense(1e10), gathered))

    assert gather_s == pytest.approx(reduce_s / 2, rel=0.15)


def test_named_rings_take_their_closed_form_whatever_a_stack_takes_over_the_curve():
    """Two workers of a node each: 2 steps of S / 2, shared by eight rings of two ranks."""
    profile = DGX[8]._machines.profile.set_values({"time_factor.dp": 0.01}, "a test")
    machines = Machines(cluster("dgx-h100", 4), profile)
    net = ClusterNet(machines, (0, 8), "all_reduce")
    step_s = net.kinds["rail"].latency_s + 1e9 / 8 / 2 / net.kinds["rail"].bytes_per_s

    found = OnCluster(machines, 8, (("all_reduce", "ring"),)).among((0, 1), (0, 1))(dense(1e9), 1)

    assert found == pytest.approx(net.launch_s + 2 * step_s)


def test_groups_exchange_inside_and_then_a_half_of_it_from_each_node(given):
    """Two groups of two nodes, all of which have NICs of their own."""
    pair_s, half_s = exchange_s(given, "nodes=2"), exchange_s(given, "nodes=2", "step.gradient=500 MB")

    wall_s = simulate(given, ["sync.inside.workers=2", "sync.overlap.order=none"]).report.history.wall_s

    assert wall_s == pytest.approx(1000 * (2 + pair_s + half_s))


DGX = {gpus: on_dgx(4, gpus) for gpus in (1, 2, 8, 16)}
"""Four nodes, with workers of so many GPUs."""
