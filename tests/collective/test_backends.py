"""Libraries as sets of choices: what Gloo, MPI and NCCL take for an op and a size, in reports and tables."""

import json

import pytest
from runcast.simulator.collectives.algorithms import OPS, algorithms
from runcast.simulator.predict import predict

from ..command import runcast
from .make import changed, collective, predicted

KI = 1 << 10
MPI = [
    ("all_reduce", 2, 2 * KI, "recursive_doubling"), ("all_reduce", 2, 4 * KI, "halving_doubling"),
    ("all_gather", 2, 256 * KI, "recursive_doubling"), ("all_gather", 3, 64 * KI, "bruck"),
    ("all_gather", 3, 256 * KI, "ring"), ("all_gather", 2, 1024 * KI, "ring"),
    ("broadcast", 2, 8 * KI, "binomial"), ("broadcast", 2, 64 * KI, "scatter_doubling"),
    ("broadcast", 3, 64 * KI, "scatter_all_gather"), ("broadcast", 2, 1024 * KI, "scatter_all_gather"),
    ("all_to_all", 2, 4 * KI, "bruck"), ("all_to_all", 2, 64 * KI, "direct"), ("all_to_all", 2, 1024 * KI, "pairwise"),
    ("reduce", 2, KI, "binomial"), ("reduce", 2, 64 * KI, "halving_gather"),
    ("reduce_scatter", 2, 64 * KI, "recursive_halving"), ("reduce_scatter", 3, 1024 * KI, "direct"),
    ("all_to_all", 3, 1024 * KI, "direct"), ("gather", 2, 1024 * KI, "binomial"), ("scatter", 2, KI, "binomial"),
]  # fmt: skip
GLOO = {
    "all_reduce": "ring", "all_gather": "ring", "broadcast": "binomial", "all_to_all": "direct",
    "all_to_all_v": "direct", "gather": "direct", "scatter": "direct", "reduce": "ring_gather",
}  # fmt: skip


@pytest.mark.parametrize(("op", "nodes", "size", "expected"), MPI)
def test_mpi_chooses_by_size_and_ranks(op, nodes, size, expected):
    """Nodes of 8: 16 ranks, or 24, which are no power of two. Thresholds are MPICH's."""
    best = predicted(op, size, nodes=nodes, backend="mpi").best
    assert (best.algorithm, best.chosen) == (expected, True)


@pytest.mark.parametrize("op", GLOO)
def test_gloo_has_one_algorithm_of_each_op(op):
    rows = predicted(op, "1 KiB:1 GiB", backend="gloo").rows
    assert {row.algorithm for row in rows if row.chosen} == {GLOO[op]}


@pytest.mark.parametrize("backend", ["gloo", "mpi"])
@pytest.mark.parametrize("op", [op for op in GLOO if op != "reduce"])
@pytest.mark.parametrize("nodes", [1, 3])
def test_what_a_library_chooses_can_be_done_and_takes_what_its_algorithm_takes(backend, op, nodes):
    for size in (KI, 64 * KI, 1024 * KI):
        for level in ("formula", "chunks"):
            best = predicted(op, size, nodes=nodes, backend=backend, level=level).best
            alone = predicted(op, size, nodes=nodes, algorithm=best.algorithm, level=level).best
            assert not algorithms(op)[best.algorithm].refuses(collective(op, size, nodes=nodes).net.group())
            assert best.seconds == alone.seconds


@pytest.mark.parametrize("op", [op for op in OPS if op not in ("gather", "scatter", "all_to_all", "all_to_all_v")])
def test_nccl_prices_every_protocol_and_marks_one_of_each_size(op):
    found = predicted(op, "1 KiB:1 GiB", backend="nccl", nodes=4)
    for size in found.winners:
        rows = [row for row in found.rows if row.bytes == size and row.algorithm != "measured"]
        assert {row.protocol for row in rows} == {"LL", "LL128", "Simple"}
        assert sum(row.chosen for row in rows) == 1
        assert found.winners[size].chosen


def test_the_headline_is_what_the_library_chooses_even_if_another_way_is_faster():
    found = predicted("all_reduce", "16 MiB", backend="mpi", nodes=2)
    assert found.best.algorithm == "halving_doubling"
    assert found.best.seconds > predicted("all_reduce", "16 MiB", nodes=2).best.seconds


def test_a_protocol_and_an_algorithm_may_be_asked_for():
    found = predicted("all_reduce", "1 GiB", backend="nccl", algorithm="ring", protocol="LL")
    assert [(row.algorithm, row.protocol, row.chosen) for row in found.rows] == [("ring", "LL", True)]


def test_the_timeline_ends_with_the_best_way_of_a_library():
    for size in ("1 KiB", "1 GiB"):
        found = predict(collective("all_reduce", size, backend="nccl", nodes=4))
        assert found.timeline.makespan_s == pytest.approx(found.report.best.seconds, rel=1e-12)


@pytest.mark.parametrize("keys", [{"gpus": 6}, {"cluster": "gh200", "nodes": 3}])
def test_sizes_for_which_a_library_has_no_algorithm_are_told_and_never_measured(keys):
    """MPICH's reduce of more than 2 KiB between ranks that are no power of two."""
    found = predicted("reduce", "1 KiB:8 KiB", backend="mpi", **keys)

    assert {size: row.algorithm for size, row in found.winners.items()} == {KI: "binomial", 2 * KI: "binomial"}
    assert found.best == found.winners[2 * KI]
    assert any(note.startswith("left out: 2 of 4 sizes, 4 KiB to 8 KiB: mpi takes no") for note in found.notes)


KEYS = {"collective.backend": "mpi", "collective.protocol": "LL", "collective.channels": 4}


@pytest.mark.parametrize("key", KEYS)
def test_keys_of_libraries_are_in_the_hash(key):
    assert changed({key: KEYS[key]}, backend="nccl").hash != changed({}, backend="nccl").hash


def test_the_table_names_protocols_and_channels():
    asked = ("collective", "all_reduce", "--cluster", "dgx-h100", "--nodes", "4", "--sizes", "1 KiB")
    done = runcast(*asked, "--backend", "nccl")
    assert done.returncode == 0, done.stderr
    assert "ring LL128" in done.stdout
    assert "each of which holds an SM" in done.stdout
    rows = json.loads(runcast(*asked, "--backend", "nccl", "--json", "-").stdout)["rows"]
    assert [row["protocol"] for row in rows if row["chosen"]] == ["LL"]


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_a_block_round_ranks_at_sites_of_their_own_leaves_all_but_one(nodes):
    sites = {"base": "dgx-h100", "sites": nodes, "site_bandwidth": "400 Gb/s", "site_latency": "100 ms"}
    found = predicted("all_gather", "1 KiB", cluster=sites, nodes=nodes, backend="nccl", groups=8, placement="rails")

    assert found.best.seconds == pytest.approx((nodes - 1) * 0.1, rel=0.01)
