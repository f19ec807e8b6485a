"""Trainer state to the host and back: bytes over what the way sustains, alone and beside others."""

import pytest
from runcast.simulator.collectives import STREAMS
from runcast.simulator.costs import cost
from runcast.simulator.hardware import Cluster, cluster
from runcast.simulator.profile import Profile, load_profile, load_stack
from runcast.simulator.systems.rl_cycle.switch import move_s, state_move

GB = 10**9


def machine(name: str) -> tuple[Cluster, Profile]:
    return cluster(name, 1), load_profile("h100-sxm").join(load_stack("checkpoint-engine"))


@pytest.mark.parametrize("kind", ["offload", "onload"])
def test_one_gpu_alone_takes_its_bytes_over_the_pcie_link(kind):
    machines, profile = machine("h100-hgx")
    link = machines.links[machines.h2d_route(0)[-1]]

    rate = link.bytes_per_s * profile.value("link_fraction.pcie")

    assert link.kind == "pcie"
    assert move_s(kind, 1, 48 * GB, machines, profile) == pytest.approx(48 * GB / rate + profile.value("h2d.latency_s"))


def test_gpus_that_share_a_way_wait_for_each_other():
    machines, profile = machine({"base": "h100-hgx", "gpus_per_node": 8, "pcie_switches": 2})
    alone, together = (move_s("onload", gpus, 8 * GB, machines, profile) for gpus in (1, 8))

    assert together > 1.5 * alone


def test_each_direction_takes_its_own_way_and_the_devices_memory():
    machines, profile = machine("h100-hgx")

    for kind, way in (("offload", machines.d2h_route(3)), ("onload", machines.h2d_route(3))):
        costs = cost(state_move(kind, 4, GB), machines, profile, STREAMS)
        assert set(costs.demand_of(3)[0].tolist()) == {*way, machines.hbm(3)}


def test_nothing_to_move_takes_no_time():
    assert move_s("offload", 8, 0, *machine("h100-hgx")) == 0.0
