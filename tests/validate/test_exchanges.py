"""Exchanges of samples: between nodes no faster than inside one, and corrected for the network that they ran on."""

import numpy as np
import pytest
from runcast.simulator import UserError
from runcast.simulator.answers.validate.exchanges import estimate_sample
from runcast.simulator.collectives import Networks
from runcast.simulator.profile import load_network, load_profile

PROFILE = load_profile("h100-sxm")
SIZES = np.array([2.0**10, 2.0**24, 2.0**33])


def features(nodes, nics=8):
    """All-reduces of some sizes between nodes of 8 GPUs."""
    ones = np.ones_like(SIZES)
    return {
        "bytes": SIZES, "gpus": 8.0 * nodes * ones, "nodes": nodes * ones, "network_bytes_per_s": nics * 50e9 * ones,
    }  # fmt: skip


def seconds(kind, given, network=""):
    return estimate_sample(PROFILE, kind, given, None, network).seconds


def test_between_nodes_the_curve_holds_where_it_is_slower_than_one_node():
    assert seconds("all_reduce.network", features(4)) == pytest.approx(
        PROFILE.estimate("all_reduce.network", features(4)).seconds
    )


def test_nothing_is_faster_between_nodes_than_inside_one():
    """With NICs a hundred times as fast, the part inside a node is what a large all-reduce takes."""
    inside = PROFILE.estimate("all_reduce", {"bytes": SIZES, "gpus": np.full(3, 8.0)})

    found = seconds("all_reduce.network", features(4, nics=800))

    assert found[-1] == inside.seconds[-1]
    assert (found >= inside.seconds).all()


def test_of_an_all_to_all_only_what_stays_in_a_node_is_inside_it():
    """A quarter of the bytes of four nodes."""
    inside = PROFILE.estimate("all_to_all", {"bytes": SIZES / 4, "gpus": np.full(3, 8.0)})

    assert (seconds("all_to_all.network", features(4, nics=800)) >= inside.seconds * (1 - 1e-9)).all()


def test_one_gpu_in_each_node_has_no_part_inside():
    given = features(4) | {"gpus": np.full(3, 4.0)}

    assert seconds("all_reduce.network", given) == pytest.approx(PROFILE.estimate("all_reduce.network", given).seconds)


def test_a_network_corrects_each_sample_as_exchanges_of_steps_are():
    there = Networks(PROFILE.join(load_network("efa")), PROFILE.limits)
    expected = [
        there.estimate("all_reduce", {name: float(column[i]) for name, column in features(4).items()}).seconds[0]
        for i in range(len(SIZES))
    ]

    assert seconds("all_reduce.network", features(4), "efa") == pytest.approx(expected)


def test_a_message_between_nodes_is_corrected_too():
    given = {"bytes": SIZES, "link_bytes_per_s": np.full(3, 50e9)}

    assert seconds("send_recv.network", given, "efa")[0] > seconds("send_recv.network", given)[0]


def test_a_network_that_nobody_knows_is_refused():
    with pytest.raises(UserError, match="token-ring"):
        seconds("all_reduce.network", features(4), "token-ring")
