"""The suite's cases of what hosts compute run: ops of `runcast execute` are called by their names there."""

import pytest

pytest.importorskip("torch", reason="executing needs the [calibrate] extra")

from runcast.calibrate.measure.device import CpuDevice
from runcast.calibrate.measure.timing import Bench

from . import kernels


@pytest.mark.parametrize("kernel", kernels._KERNELS, ids=lambda kernel: kernel.name)
def test_a_kernel_runs(kernel):
    kernel.prepare(Bench(CpuDevice(), budget_s=0.0), *kernel.shapes[0])()


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_attention_runs(direction):
    kernels._attend(Bench(CpuDevice(), budget_s=0.0), direction, *kernels._ATTENTION[0])()
