"""What overlap costs on the critical path, by hand: one GPU, a GEMM of 4 s and an all-reduce of 2 s beside it."""

import pytest
from runcast.simulator.costs import kind_costs
from runcast.simulator.engine import simulate
from runcast.simulator.insight import critical_path, slowed_lines, slowed_s
from runcast.simulator.predict import simulate as predict
from runcast.simulator.program import ProgramBuilder

from ..lowering.steps import resolved


def slowed(overlap: bool, **costs):
    """Makespan of both, and how much longer ops of the critical path take."""
    b = ProgramBuilder()
    place = b.place("r0", [0])
    gemm = b.op("gemm", [b.lane(place, "compute")])
    b.op("all_reduce", [b.lane(place, "dp")], [] if overlap else [gemm])
    program = b.build()
    priced = kind_costs(program, {"gemm": 4.0, "all_reduce": 2.0}, **costs)
    timeline = simulate(program, priced)
    return timeline.makespan_s, slowed_s(critical_path(timeline), program, priced)


def test_kernels_at_half_speed_beside_an_exchange():
    """The GEMM does half of its work in the 2 s of the all-reduce, and ends at 5 s."""
    half = {("gemm", "all_reduce"): 0.5}
    assert slowed(True, interference=half) == (5.0, {"kernels": 1.0, "exchanges": 0.0, "copies": 0.0})


def test_an_exchange_that_is_slowed_beside_a_kernel():
    """At a quarter of its speed it has done half of its 2 s when the GEMM ends at 4 s, and ends at 5 s."""
    quarter = {("all_reduce", "gemm"): 0.25}
    assert slowed(True, interference=quarter) == (5.0, {"kernels": 0.0, "exchanges": 3.0, "copies": 0.0})


def test_an_exchange_and_another_on_the_same_link():
    demand = {0: {0: 1.0}, 1: {0: 1.0}}
    seconds, found = slowed(True, demand=demand, capacity_bytes_per_s=(1.0,))
    assert (seconds, found["kernels"]) == (6.0, 2.0)


def test_without_overlap_nothing_is_slowed():
    both = {("gemm", "all_reduce"): 0.5, ("all_reduce", "gemm"): 0.25}
    assert slowed(False, interference=both) == (6.0, {"kernels": 0.0, "exchanges": 0.0, "copies": 0.0})


def test_the_line_names_what_takes_longer_from_one_per_cent_on():
    (line,) = slowed_lines({"kernels": 3.0, "exchanges": 1.0, "copies": 0.01}, 100.0)
    assert line == (
        "ops on the critical path take 4.0% of the step longer because of what runs beside them: "
        "kernels beside exchanges and copies (3.0%), exchanges beside kernels, or beside others on the same link (1.0%)"
    )
    assert list(slowed_lines({"kernels": 0.5, "exchanges": 0.4, "copies": 0.0}, 100.0)) == []


@pytest.mark.parametrize(("overlap", "said"), [({}, True), ({"dp": False, "params": False}, False)])
def test_an_overlapped_step_says_so_and_one_without_overlap_does_not(overlap, said):
    more = {"num_hidden_layers": 8}
    scenario = resolved(16, 1, parallel={"zero": 1}, overlap=overlap, batch={"seq_len": 1024}, overrides=more).scenario
    report = predict(scenario).report
    assert (sum(report.slowed_s.values()) > 1e-9 * report.step_time_s) == said
    assert any("because of what runs beside them" in note for note in report.notes) == said
