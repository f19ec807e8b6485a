"""The phase of an op follows from its kind and its lanes, not from the order in which a Program lists them."""

import pytest
from runcast.simulator.costs import PHASES, phase_of_op
from runcast.simulator.program import ProgramBuilder


def phase(kind, lanes, numbered):
    """The phase of one op of a kind on some lanes, in a Program that creates its lanes in a given order."""
    builder = ProgramBuilder()
    rank = builder.place("0", (0,))
    number = {name: builder.lane(rank, name) for name in numbered}
    builder.op(kind, [number[name] for name in lanes])
    return PHASES[phase_of_op(builder.build())[0]]


@pytest.mark.parametrize("lanes", [("compute", "tp", "dp", "edp"), ("edp", "dp", "tp", "compute")], ids=" ".join)
def test_an_exchange_over_tp_that_holds_other_lanes_is_tp_however_lanes_are_numbered(lanes):
    found = {phase("all_reduce", held, lanes) for held in (("tp", "dp", "edp"), ("edp", "dp", "tp"))}
    assert found == {"tp"}


def test_an_exchange_on_the_lane_of_kernels_alone_is_dp():
    assert phase("all_reduce", ("compute",), ("tp", "compute")) == "dp"


def test_a_kernel_has_the_phase_of_its_kind_wherever_it_runs():
    assert phase("gemm", ("compute", "tp"), ("tp", "compute")) == "gemm"
