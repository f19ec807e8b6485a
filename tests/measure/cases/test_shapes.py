import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure.cases.shapes import cases
from runcast.simulator.costs import alignment_penalty

from .families import CPU, GPU, check, each, measures, one, small

DIRECTIONS = ("forward", "dgrad", "wgrad")
STEPS = ("gemm.align16_factor", "gemm.align4_factor", "gemm.align2_factor")


@each
def test_cases_are_sound(facts):
    check(cases, facts)


@pytest.mark.parametrize("facts", [CPU, GPU])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_alignment_is_measured_in_all_directions_and_none_is_a_sample(facts, direction):
    found = [case for case in cases(facts) if case.name == direction]
    steps = {alignment_penalty((case.params["n"], case.params["k"]), "bf16") for case in found}
    assert steps == set(STEPS)
    assert not [case for case in found if case.cost_class]


def test_twins_are_padded_to_whole_32_bytes():
    for case in cases(GPU):
        names = [name.removeprefix("padded_") for name in case.params if name.startswith("padded_")]
        twin = [case.params[f"padded_{name}"] for name in names]
        assert alignment_penalty(twin, "bf16") is None
        assert twin != [case.params[name] for name in names]


def test_heads_of_odd_sizes_are_measured_fused_and_as_products():
    fused = {case.params["head_dim"] for case in cases(GPU) if case.name == "attention_forward"}
    products = {case.params["head_dim"] for case in cases(GPU) if case.name == "scores"}
    assert {80, 104, 112, 180} <= fused
    assert {65, 73, 100, 180} <= products


def test_cudnn_is_asked_for_heads_of_whole_vectors_alone():
    """It has no kernels for others, and torch pads them for flash only."""
    of = {case.params["head_dim"] for case in cases(GPU) if case.params.get("backend") == "cudnn"}
    assert not [size for size in of if size % 8]


def test_unpadded_vocabularies_are_among_them():
    assert one(cases, GPU, "forward", n=50257, m=4096).params["padded_n"] == 50272


def test_a_visit_times_the_twin_too():
    cheapest = {}
    for case in sorted(small(cases(CPU)), key=lambda case: case.flop):
        cheapest.setdefault(case.name, case)
    assert set(cheapest) == {*DIRECTIONS, "scores", "context", "attention_forward", "attention_backward"}
    for case in cheapest.values():
        assert measures(case).more["padded_s"] > 0
