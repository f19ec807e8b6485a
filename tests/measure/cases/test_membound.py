import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

import torch
from runcast.calibrate.measure.cases.exact import count_differences
from runcast.calibrate.measure.cases.membound import cases

from .families import CPU, GPU, check, each, measures_some, one, small


@each
def test_cases_are_sound(facts):
    check(cases, facts)


SIZE = 8192 * 4096


@pytest.mark.parametrize(
    ("name", "of", "per_element"),
    [
        ("copy", "torch", 4),
        ("residual_add", "torch", 6),
        ("rms_norm", "torch", 4),
        ("rms_norm_backward", "torch", 6),
        ("swiglu", "torch", 6),
        ("swiglu", "runcast", 6),
        ("swiglu_backward", "runcast", 10),
        ("add_rms_norm", "runcast", 8),
        ("cast_fp8", "torch", 3),
    ],
)
def test_bytes_by_hand(name, of, per_element):
    case = one(cases, GPU, name, rows=8192, width=4096, of=of)
    assert case.bytes == per_element * SIZE == case.features["bytes"]
    assert case.features["width"] == 4096
    assert case.cost_class == f"memory.{name}"


def test_sizes_go_from_one_megabyte_to_four_gigabytes():
    sizes = [case.bytes for case in cases(GPU) if case.name == "copy"]
    assert min(sizes) <= 1.1e6
    assert max(sizes) >= 4e9


def test_an_optimizer_moves_28_bytes_per_parameter():
    case = one(cases, GPU, "adamw", parameters=100_000_000, variant="fused")
    assert case.bytes == 2.8e9
    assert case.library == "torch fused"
    assert "width" not in case.features


def test_our_kernels_name_what_runs_them():
    assert {case.library for case in cases(CPU) if case.params.get("of") == "runcast"} == {"torch reference"}


def test_differing_counts_elements():
    assert count_differences(torch.tensor([1.0, 2.0, 100.0]), torch.tensor([1.01, 2.1, 101.0])) == 1


@pytest.mark.slow
def test_small_ones_measure():
    measures_some(cases(CPU), 2, seconds=0.004)


def test_enough_for_a_fit_on_a_cpu():
    for name in ("rms_norm", "residual_add", "swiglu", "adamw", "cross_entropy"):
        assert len([case for case in small(cases(CPU)) if case.name == name and case.quick]) >= 2
