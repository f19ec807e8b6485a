"""What NICs carry for a group: all that serve its ranks, however a machine has them."""

import pytest
from runcast.simulator.costs import cost
from runcast.simulator.hardware import cluster
from runcast.simulator.profile import load_profile, load_stack
from runcast.simulator.program import ProgramBuilder

SIZE = 10_000_000_000


def seconds(kind, group, machines):
    """Of one exchange between these ranks."""
    b = ProgramBuilder()
    places = [b.place(f"rank {rank}", (rank,)) for rank in group]
    b.op(kind, [b.lane(place, "dp") for place in places], size_bytes=SIZE, group=tuple(group))
    profile = load_profile("h100-sxm").join(load_stack("generic"))
    return float(cost(b.build(), machines, profile, "measured").work_s[0])


def expected(machines, nodes, nics, kind="reduce_scatter", gpus=None):
    profile = load_profile("h100-sxm")
    nic = machines.capacity[machines.nic_tx(machines.nics_of(0)[0])]
    features = {"bytes": SIZE, "gpus": gpus or nodes, "nodes": nodes, "network_bytes_per_s": nic * nics}
    return float(profile.estimate(kind, features).seconds[0])


def test_a_rank_per_node_has_its_own_nic():
    machines = cluster("dgx-h100", 4)

    assert seconds("reduce_scatter", [0, 8, 16, 24], machines) == pytest.approx(expected(machines, 4, 1))


def test_all_ranks_of_nodes_have_all_nics():
    machines = cluster("dgx-h100", 4)
    whole = expected(machines, 4, 8, gpus=32)

    assert seconds("reduce_scatter", list(range(32)), machines) == pytest.approx(whole)


def test_several_nics_per_gpu_all_serve_it():
    machines = cluster({"base": "dgx-h100", "nics": 32, "nic": "100 Gb/s"}, 4)

    assert seconds("reduce_scatter", [0, 8, 16, 24], machines) == pytest.approx(expected(machines, 4, 4))


def test_a_send_uses_all_nics_of_its_gpu():
    one, four = (cluster({"base": "dgx-h100", "nics": n, "nic": "100 Gb/s"}, 2) for n in (8, 32))

    assert 3.5 < seconds("send_recv", [0, 8], one) / seconds("send_recv", [0, 8], four) <= 4


def test_trays_of_a_rack_bring_their_nics():
    machines = cluster({"base": "gb200-nvl72", "nvlink_bytes_per_s": "90 TB/s"}, 36)  # the NICs bound it
    rack = list(range(72))
    half, trays = [*rack[:64], *(72 + rank for rank in rack[:64])], 16

    whole = expected(machines, 2, 4 * trays, gpus=128)
    assert seconds("reduce_scatter", half, machines) == pytest.approx(whole, rel=0.02)


@pytest.mark.parametrize("machine", ["dgx-v100", "l40s-pcie"])
def test_a_node_without_a_switch_is_one_island(machine):
    machines = cluster(machine, 2)
    b = ProgramBuilder()
    b.op("all_reduce", [b.lane(b.place("rank 0", (0,)), "tp")], size_bytes=SIZE, group=tuple(range(8)))
    profile = load_profile("v100" if machine == "dgx-v100" else "l40s").join(load_stack("generic"))
    inside = profile.estimate("all_reduce", {"bytes": SIZE, "gpus": 8}).seconds[0]

    assert cost(b.build(), machines, profile, "measured").work_s[0] == pytest.approx(inside)


def test_groups_of_one_stage_share_the_nics_of_their_node():
    """Eight groups of a rank per node go through one NIC at once: each has an eighth of it."""
    machines = cluster({"base": "dgx-h100", "nics": 1}, 4)
    b = ProgramBuilder()
    b.op("reduce_scatter", [b.lane(b.place("stage", range(32)), "dp")], size_bytes=SIZE, group=(0, 8, 16, 24))
    profile = load_profile("h100-sxm").join(load_stack("generic"))

    assert cost(b.build(), machines, profile, "measured").work_s[0] == pytest.approx(expected(machines, 4, 1 / 8))
