"""What a scenario of kind collective may say, what is wrong with it in one line, and what its hash rests on."""

import pytest
from runcast.simulator.base.errors import UserError

from .make import changed, collective, predicted, seconds

MISTAKES = [
    ({"op": "all_reduc"}, "collective: op = 'all_reduc': expected one of all_reduce, all_gather, reduce_scatter, "
     "broadcast, reduce, all_to_all, all_to_all_v, gather, scatter"),
    ({"algorithm": "rin"}, "collective: algorithm = 'rin': expected one of ring, bidirectional_ring, tree, "
     "two_level, halving_doubling, recursive_doubling, nvls, sharp, measured, all for all_reduce"),
    ({"op": "broadcast", "algorithm": "ring"}, "collective: algorithm = 'ring': expected one of chain, binomial, "
     "scatter_all_gather, scatter_doubling, measured, all for broadcast"),
    ({"algorithm": "nvls"}, "collective.algorithm = 'nvls': nvls: NVLS adds inside one NVSwitch domain (given: ranks "
     "of 2 such domains)"),
    ({"op": "all_gather", "algorithm": "recursive_doubling", "nodes": 3}, "collective.algorithm = "
     "'recursive_doubling': recursive_doubling: expected a power of two of ranks (given: 24)"),
    ({"op": "all_to_all", "algorithm": "pairwise", "nodes": 1, "gpus": 6}, "collective.algorithm = 'pairwise': "
     "pairwise: expected a power of two of ranks (given: 6)"),
    ({"op": "gather", "level": "measured"}, "collective.algorithm = 'all': measured: profiles have no curves of "
     "gather"),
    ({"sizes": "2 MiB:1 MiB"}, "collective.sizes = '2 MiB:1 MiB': expected the smaller size first, such as "
     "'1 KiB:16 GiB'"),
    ({"sizes": 0}, "collective.sizes = 0: expected sizes above zero and at most 1024 TiB, such as '1 GiB' or "
     "'1 KiB:16 GiB'"),
    ({"sizes": "1025 TiB"}, "collective.sizes = '1025 TiB': expected sizes above zero and at most 1024 TiB, such as "
     "'1 GiB' or '1 KiB:16 GiB'"),
    ({"sizes": []}, "collective.sizes = []: expected one size or more"),
    ({"sizes": "many"}, "collective.sizes = 'many': expected a quantity such as \"8 GiB\" or \"6.3 GB\""),
    ({"gpus": 17}, "collective.gpus = 17: 2 nodes have 16 GPUs"),
    ({"gpus": 0}, "collective.gpus = 0: expected more than 0"),
    ({"gpus": 1}, "collective.gpus = 1: expected 2 GPUs or more in a group (all groups have 1)"),
    ({"gpus": 9}, "collective.gpus = 9: algorithms need islands of equal size (given: 1 and 8); level measured does "
     "not"),
    ({"cluster": "gb200-nvl72", "nodes": 32}, "nodes = 32: algorithms need islands of equal size (given: 56 and 72); "
     "level measured does not"),
    ({"groups": 3}, "collective.groups = 3: expected a divisor of 16 GPUs"),
    ({"groups": 3, "level": "measured"}, "collective.groups = 3: expected a divisor of 16 GPUs"),
    ({"groups": 16}, "collective.groups = 16: expected 2 GPUs or more in a group (all groups have 16)"),
    ({"groups": 4, "placement": "scattered"}, "collective.placement = 'scattered': groups of 8 and 8 and 0 and 0 GPUs "
     "are not equal"),
    ({"placement": "rails"}, "collective.placement = 'rails': is for groups of 2 or more"),
    ({"op": "broadcast", "root": 16}, "collective.root = 16: there are 16 ranks in a group, numbered from 0"),
    ({"op": "broadcast", "root": 8, "groups": 2}, "collective.root = 8: there are 8 ranks in a group, numbered from 0"),
    ({"root": 1}, "collective.root = 1: is for broadcast, reduce, gather, scatter (op = 'all_reduce')"),
    ({"every_rank": True}, "collective.every_rank = True: goes with collective.level = 'chunks', not 'formula'"),
    ({"loads": 2}, "collective.loads = 2: is for all_to_all_v (op = 'all_reduce')"),
    ({"op": "all_to_all_v", "loads": [1, 2]}, "collective.loads = [1.0, 2.0]: expected a number, or one for each of 16 "
     "ranks"),
    ({"op": "all_to_all_v", "loads": 0}, "collective.loads = 0: expected a number above zero, or a list of numbers "
     "above zero, one for each rank"),
    ({"op": "all_to_all_v", "nodes": 1, "gpus": 2, "loads": [0, 1]}, "collective.loads = [0, 1]: expected a number "
     "above zero, or a list of numbers above zero, one for each rank"),
    ({"op": "all_to_all_v", "level": "measured"}, "collective.algorithm = 'all': measured: fitted curves are of ranks "
     "that all receive as much"),
    ({"backend": "nccl", "level": "chunks"}, "collective.backend = 'nccl': libraries are priced by level formula; gloo "
     "and mpi also by chunks (level = 'chunks')"),
    ({"protocol": "LL"}, "collective.protocol = 'LL': is for backend nccl"),
    ({"backend": "gloo", "channels": 8}, "collective.channels = 8: is for backend nccl"),
    ({"backend": "gloo", "op": "reduce_scatter"}, "collective.backend = 'gloo': its reduce_scatter of these ranks and "
     "sizes has no algorithm that is known here"),
    ({"backend": "mpi", "algorithm": "ring"}, "collective.backend = 'mpi': its all_reduce of these ranks and sizes has "
     "halving_doubling"),
    ({"backend": "nccl", "cluster": "l40s-pcie", "protocol": "LL128"}, "collective.backend = 'nccl': its all_reduce of "
     "these ranks and sizes has ring LL, ring Simple, tree LL, tree Simple"),
    ({"level": "exact"}, "collective.level = 'exact': expected 'measured', 'formula' or 'chunks'"),
    ({"cluster": {"base": "dgx-h100", "nics": 0}}, "cluster.nics = 0: no NIC is attached to n0.gpu0"),
    ({"pieces": 0}, "collective.pieces = 0: expected more than 0"),
]  # fmt: skip


def test_sizes_are_read_as_nccl_tests_writes_them():
    assert collective(sizes="1K:4K").keys.sizes == collective(sizes=["1 KiB", 2048, "4 KiB"]).keys.sizes


@pytest.mark.parametrize(("keys", "line"), MISTAKES, ids=[str(keys) for keys, _ in MISTAKES])
def test_a_mistake_is_one_line(keys, line):
    with pytest.raises(UserError) as error:
        predicted(**keys)
    assert error.value.faults == (f"a.toml: {line}",)


def test_a_profile_that_is_not_there_is_no_fault_of_the_nodes():
    with pytest.raises(UserError, match=r"^a.toml: profile = 'typo.json': no such file: /.*typo.json$"):
        changed({"profile": "typo.json"}).nets  # noqa: B018


@pytest.mark.parametrize(
    ("nic", "nodes", "notes"),
    [
        ("400 GB/s", 2, ["NIC 400 GB/s is bound by its PCIe slot, 63 GB/s (cluster.pcie_gen)"]),
        ("400 GB/s", 1, []),
        ("400 Gb/s", 2, []),
    ],
)
def test_a_nic_that_is_faster_than_its_slot_is_noted(nic, nodes, notes):
    report = predicted(cluster={"base": "dgx-h100", "nic": nic}, nodes=nodes)

    assert [note for note in report.notes if "slot" in note] == notes


@pytest.mark.parametrize("network", ["infiniband", "ethernet"])
def test_a_curve_has_the_rate_of_a_nic_behind_its_slot(network):
    """PCIe 4 carries 31.5 GB/s; hosts that copy every byte of TCP bound a NIC whatever its line rate."""
    slot = {"base": "dgx-h100", "pcie_gen": 4, "network": network, "sharp": False}
    wide, slim = (
        seconds("all_gather", cluster={**slot, "nic": rate}, level="measured")["measured"]
        for rate in ("800 Gb/s", "31.508 GB/s")
    )

    assert wide == pytest.approx(slim, rel=1e-3)


def test_sizes_double_from_the_first_to_the_last():
    assert collective(sizes="1 KiB:5 KiB").keys.sizes == (1024, 2048, 4096)
    assert collective(sizes=["3 KiB", 7]).keys.sizes == (3072, 7)
    assert collective(sizes="3 KiB, 1M").keys.sizes == (3072, 2**20)


def test_all_algorithms_that_these_ranks_can_do_and_the_fitted_curve_are_priced():
    found = predicted()
    assert [row.algorithm for row in found.rows] == [
        "measured", "ring", "bidirectional_ring", "tree", "two_level", "halving_doubling", "recursive_doubling",
        "sharp",
    ]  # fmt: skip
    assert found.notes == ("left out: nvls: NVLS adds inside one NVSwitch domain (given: ranks of 2 such domains)",)


NO_SUMS = {"network": "roce"}, {"fabric": "torus", "sizes": [2, 1]}
WHY = "sharp: needs a fabric of InfiniBand switches that add (sharp = true in the cluster)"


@pytest.mark.parametrize("keys", NO_SUMS)
def test_a_base_lends_no_switches_that_add_to_a_network_without_them(keys):
    found = predicted(cluster={"base": "dgx-h100", **keys})
    assert ([row for row in found.rows if row.algorithm == "sharp"], found.notes[1]) == ([], f"left out: {WHY}")


@pytest.mark.parametrize("keys", NO_SUMS)
def test_switches_that_add_are_refused_by_name_where_a_network_has_none(keys):
    with pytest.raises(UserError) as error:
        predicted(cluster={"base": "dgx-h100", **keys}, algorithm="sharp")
    assert error.value.faults == (f"a.toml: collective.algorithm = 'sharp': {WHY}",)


def test_a_change_of_the_network_leaves_a_clusters_file_its_base(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "dgx-h100"\nnics = 4\n')
    found = changed({"cluster.network": "roce"}, cluster=str(path))
    assert not found.cluster.fabric.sharp


@pytest.mark.parametrize("op", ["gather", "scatter"])
def test_an_op_without_curves_has_algorithms_only(op):
    found = predicted(op)
    assert [row.algorithm for row in found.rows] == ["direct", "binomial"]
    assert found.notes == (f"left out: measured: profiles have no curves of {op}",)


def test_ranks_beyond_a_power_of_two_are_told():
    note = "4 of 12 ranks are beyond a power of two: they give all data to a neighbour first"
    assert predicted(algorithm="halving_doubling", nodes=3, cluster={"base": "dgx-h100", "gpus_per_node": 4}).notes == (
        f"halving_doubling: {note}",
    )


def test_the_best_one_is_the_fastest_algorithm_at_the_largest_size():
    found = predicted(sizes="1 KiB:1 GiB")
    last = [row for row in found.rows if row.bytes == 1 << 30 and row.algorithm != "measured"]
    assert found.best == min(last, key=lambda row: row.seconds)
    assert found.winners[1 << 30] == found.best
    assert found.best.algorithm != found.winners[1 << 10].algorithm


@pytest.mark.parametrize("level", ["formula", "chunks"])
def test_data_is_cut_into_no_more_pieces_than_bytes(level):
    few, many = (
        predicted("broadcast", [1000, "1 MiB"], algorithm="chain", level=level, pieces=n).rows for n in (1000, 4096)
    )
    assert ([row.pieces for row in many], many[0]) == ([1000, 4096], few[0])


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "broadcast", "all_to_all"])
def test_the_curve_of_unequal_nodes_is_that_of_the_slowest_in_either_order(op):
    h100, a100 = ({"base": base, "nodes": 2} for base in ("dgx-h100", "dgx-a100"))
    mixes = [{"mix": mix} for mix in ([h100, a100], [a100, h100])]
    mixed = [seconds(op, cluster=mix, nodes=4, level="measured")["measured"] for mix in mixes]
    alone = [seconds(op, cluster=base, nodes=4, level="measured")["measured"] for base in ("dgx-h100", "dgx-a100")]
    assert mixed == [max(alone)] * 2


@pytest.mark.parametrize("keys", [{"level": "measured"}, {"algorithm": "measured"}])
def test_a_curve_needs_no_islands_of_equal_size(keys):
    """Seven of eight GPUs of the second node: 7 NICs bound it where two whole nodes have 8."""
    found = [seconds(sizes="1 GiB", gpus=gpus, **keys)["measured"] for gpus in (16, 15, 9)]
    assert sorted(found) == found


def test_a_curve_of_unequal_islands_is_seen_from_the_smallest():
    """Slow NICs bound it: those of 56 GPUs take 72/56 as long as those of 72 do for the bytes of as many ranks."""
    slow = {"base": "gb200-nvl72", "nic": "1 Gb/s"}
    uneven, even = (
        seconds("reduce_scatter", "1 GiB", cluster=slow, nodes=nodes, level="measured")["measured"]
        for nodes in (32, 36)
    )
    assert uneven / even == pytest.approx(72 / 56, rel=0.01)


def test_messages_one_by_one_and_folded_take_the_same_time():
    folded, whole = (seconds(level="chunks", algorithm="ring", every_rank=every) for every in (False, True))
    assert folded == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("algorithm", ["ring", "two_level"])
def test_messages_on_links_with_room_take_what_the_closed_form_says(algorithm):
    formula, chunks = (seconds(level=level, algorithm=algorithm) for level in ("formula", "chunks"))
    assert chunks == pytest.approx(formula, rel=1e-9)


BASE = {"op": "broadcast", "level": "chunks"}
CHANGES = {
    "collective.op": "reduce", "collective.sizes": "32 MiB", "collective.algorithm": "chain",
    "collective.level": "formula", "collective.gpus": 8, "collective.groups": 2, "collective.root": 3,
    "collective.pieces": 7, "collective.every_rank": True, "nodes": 3, "cluster": "dgx-a100", "profile": "generic",
    "stack": "execute-gloo",
}  # fmt: skip


@pytest.mark.parametrize("key", CHANGES)
def test_every_key_is_in_the_hash(key):
    assert changed({key: CHANGES[key]}, **BASE).hash != changed({}, **BASE).hash


def test_words_are_not_in_the_hash():
    said = {"name": "mine", "notes": ["a line"]}
    assert changed(said, **BASE).hash == changed({}, **BASE).hash == changed({"collective.root": 0}, **BASE).hash


def test_loads_are_in_the_hash():
    even, hot, hotter = (collective("all_to_all_v", loads=loads) for loads in (1, 2, [3, *[1] * 15]))
    assert len({one.hash for one in (even, hot, hotter)}) == 3


def test_a_hot_rank_slows_an_all_to_all_v_as_much_as_its_load_is_above_the_mean():
    """The first of 16 ranks receives 4 times what each other one does, 64/19 of the mean."""
    even, hot = (predicted("all_to_all_v", "1 GiB", loads=loads, algorithm="direct").best for loads in (1, 4))
    assert hot.seconds - hot.latency_s == pytest.approx(64 / 19 * (even.seconds - even.latency_s))


def test_placement_is_in_the_hash():
    packed, rails = (collective(groups=2, placement=placement) for placement in ("packed", "rails"))
    assert packed.hash != rails.hash
