import time

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure.bench import Bench
from runcast.calibrate.measure.device import CpuDevice
from runcast.calibrate.measure.facts import Facts
from runcast.calibrate.measure.timing import hot


class Counting(CpuDevice):
    def times(self, act, repeats, inner, *_, **__):
        self.asked = repeats, inner
        return [1e-4] * repeats


def test_the_budget_holds_for_samples_of_several_acts():
    device = Counting()
    hot(lambda _bench: lambda: time.sleep(1e-4))(Bench(device, Facts("cpu"), budget_s=0.01))
    repeats, inner = device.asked
    assert inner > 2
    assert repeats <= 0.01 / (inner * 1e-4)
