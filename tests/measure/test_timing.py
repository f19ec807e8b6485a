import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure import timing
from runcast.calibrate.measure.bench import Bench
from runcast.calibrate.measure.device import CpuDevice
from runcast.calibrate.measure.facts import Facts


class Asked(CpuDevice):
    def times(self, act, repeats, inner, *_, **__):
        return [(repeats, inner)]


@pytest.mark.parametrize(("one_s", "expected"), [(1e-6, (10, 200)), (1e-4, (10, 10)), (1e-3, (10, 1)), (0.1, (5, 1))])
def test_the_budget_holds_for_samples_of_several_acts(monkeypatch, one_s, expected):
    monkeypatch.setattr(timing, "warm_up", lambda bench, act: (one_s, 0.0))
    bench = Bench(Asked(), Facts("cpu"), budget_s=0.0101)
    repeats, inner = timing.hot(lambda _bench: lambda: None)(bench).samples_s[0]
    assert (min(repeats, 10), inner) == expected
    assert repeats == 5 or repeats * inner * one_s <= bench.budget_s
