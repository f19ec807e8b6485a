"""Whose a fitted parameter is, and on which others its owner rests."""

import pytest
from runcast.calibrate.fitting.owners import ARCHITECTURE, DEVICE, NETWORK, SOFTWARE, owner_of


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("time_factor.gemm", SOFTWARE),
        ("time_factor.tp.network", SOFTWARE),
        ("exchange.s", SOFTWARE),
        ("gemm.training_rate.fp8", DEVICE),
        ("attention.flash2_factor", DEVICE),
        ("network.message_s", NETWORK),
        ("architecture.factor", ARCHITECTURE),
    ],
)
def test_a_parameter_has_one_owner(name, owner):
    assert owner_of(name) is owner


def test_factors_of_a_stack_are_those_of_all_that_it_rests_on():
    assert SOFTWARE.chain("megatron-bridge-26.06", "time_factor.host")[-1] == "generic"


def test_factors_of_a_device_or_network_end_where_a_file_states_a_number():
    assert [link.of for link in NETWORK.links("efa-1")] == ["efa-1", "efa", "infiniband"]
    assert NETWORK.chain("efa-1", "network.message_s") == ["efa-1"]
    assert NETWORK.chain("efa-1", "network.peer_s") == ["efa-1", "efa"]
