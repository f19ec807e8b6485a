import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure.case import Facts
from runcast.calibrate.measure.cases.gemm import cases

from .families import CPU, GPU, check, each, measures_some, one, small


@each
def test_cases_are_sound(facts):
    check(cases, facts)


@pytest.mark.parametrize(
    ("name", "cost_class", "rows", "columns", "summed"),
    [
        ("forward", "gemm.bf16", 2048, 28672, 4096),
        ("dgrad", "gemm.bf16.dgrad", 2048, 4096, 28672),
        ("wgrad", "gemm.bf16.wgrad", 28672, 4096, 2048),
    ],
)
def test_features_are_of_the_very_product(name, cost_class, rows, columns, summed):
    case = one(cases, GPU, name, m=2048, n=28672, k=4096, dtype="bf16")
    assert case.cost_class == cost_class
    assert case.features == {"m": rows, "n": columns, "k": summed}
    assert case.flop == 2 * 2048 * 28672 * 4096
    assert case.bytes == 2 * (2048 * 4096 + 28672 * 4096 + 2048 * 28672)


def test_an_fp8_product_reads_bytes_and_writes_bf16():
    case = one(cases, GPU, "forward", m=64, n=1024, k=1024, dtype="fp8", scale="row")
    assert case.bytes == 64 * 1024 + 1024 * 1024 + 2 * 64 * 1024
    assert case.library == "torch scaled_mm_rowwise fast"


def test_waves_are_those_of_the_device():
    waves = [case.params["m"] for case in cases(GPU) if case.params.get("wave")]
    assert waves == [4223, 4224, 4225, 8447, 8448, 8449]


def test_without_fp8_there_is_none():
    assert not [case for case in cases(Facts("cuda", fp8=False)) if case.params["dtype"] == "fp8"]


def test_small_ones_measure():
    measures_some(cases(CPU), 2, seconds=0.01)


def test_enough_for_a_fit_on_a_cpu():
    for name in ("forward", "dgrad", "wgrad"):
        quick = [case for case in small(cases(CPU)) if case.name == name and case.quick]
        assert len({case.params["m"] for case in quick}) >= 3
        assert len({case.together for case in quick}) >= 3
