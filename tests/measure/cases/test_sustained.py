import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure.cases.sustained import cases

from .families import BENCH, CPU, GPU, check, each


@each
def test_cases_are_sound(facts):
    check(cases, facts)


def test_ten_seconds_on_a_gpu():
    (case,) = cases(GPU)
    assert case.lasts_s == 10
    assert case.flop == 2 * 8192**3


@pytest.mark.slow
def test_samples_over_all_its_time():
    (case,) = cases(CPU)
    found = case.measure(BENCH)
    ended = found.more["ended_s"]
    assert len(found.samples_s) == len(ended) >= 2
    assert ended == sorted(ended)
    assert ended[-1] >= case.lasts_s > ended[-2]
    products = sum(found.samples_s) * found.more["acts_per_sample"]
    assert products == pytest.approx(ended[-1], rel=0.25)
    assert found.more["telemetry"] == []
