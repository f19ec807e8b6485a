"""Latencies of hops: of the model that prices an op, on the slowest kind of node."""

from dataclasses import replace

import pytest
from runcast.simulator.collectives import Machines
from runcast.simulator.collectives.algorithms.hops import ClusterNet
from runcast.simulator.hardware import cluster
from runcast.simulator.profile import choose_profiles, devices_of, load_numbers, load_profile
from runcast.simulator.profile.model import Ratio

H100, A100 = {"base": "dgx-h100", "nodes": 1}, {"base": "dgx-a100", "nodes": 1}


def test_latencies_are_of_the_model_that_prices_the_op():
    """The default of all_reduce is twice an all_gather; another library has curves of its own."""
    profile = load_profile("h100-sxm")
    twice = {"mine": Ratio("all_gather", 2.0, 0.1, "a test"), **profile.models["all_reduce"]}
    given = replace(profile, models={**profile.models, "all_reduce": twice})
    hops = ClusterNet(Machines(cluster("dgx-h100", 1), given), range(8), "all_reduce")
    fitted = profile.model("all_gather").coefficients
    assert (hops.launch_s, hops.kinds["inside"].latency_s) == (2 * fitted["a_s"], 2 * fitted["h_s"])


@pytest.mark.parametrize("order", [[H100, A100], [A100, H100]], ids=["H100 first", "A100 first"])
def test_of_unequal_nodes_the_slower_one_sets_each_latency(order):
    """Steps of an H100 inside its node take 1 s, and those between nodes 2 s; a call takes 3 s."""
    machine = cluster({"mix": order}, 2)
    profile = load_numbers(choose_profiles(devices_of(machine), None, "a test"), "infiniband", "", "generic", "a test")
    others = {name: slow(one) if "H100" in name else one for name, one in profile.others.items()}
    hops = ClusterNet(Machines(machine, replace(profile, others=others)), range(16), "all_reduce")
    latencies = {kind: hop.latency_s for kind, hop in hops.kinds.items()}
    assert (hops.launch_s, latencies) == (3.0, {"inside": 1.0, "rail": 2.0, "striped": 2.0})


def slow(profile):
    """A profile with models of all_reduce whose calls and steps take seconds."""
    inside, between = (profile.model(kind) for kind in ("all_reduce", "all_reduce.network"))
    models = {
        "all_reduce": {"slow": replace(inside, coefficients={**inside.coefficients, "h_s": 1.0})},
        "all_reduce.network": {"slow": replace(between, coefficients={**between.coefficients, "a_s": 3.0, "h_s": 2.0})},
    }
    return replace(profile, models={**profile.models, **models})
