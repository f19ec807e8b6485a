import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

import torch
from runcast.calibrate.measure.device import CpuDevice, CudaDevice, Lane
from runcast.calibrate.measure.overlap import measure_overlap
from runcast.calibrate.measure.timing import Bench

from . import fake_cuda


@pytest.fixture
def gpu(monkeypatch):
    return fake_cuda.install(monkeypatch)


def bench_of(gpu):
    return Bench(CudaDevice(0), budget_s=0.05)


def test_alone_is_alone(gpu):
    found = measure_overlap(bench_of(gpu), lambda: gpu.work(1e-3), None)
    assert found.samples_s == pytest.approx([1e-3] * len(found.samples_s))
    assert len(found.samples_s) >= 20
    assert found.more["alone_s"] == pytest.approx(1e-3)


@pytest.mark.parametrize("noise_s", [1e-5, 4e-4, 1e-3, 2.5e-2])
def test_two_that_share_evenly_take_twice_as_long(gpu, noise_s):
    found = measure_overlap(bench_of(gpu), lambda: gpu.work(1e-3), lambda: gpu.work(noise_s))
    assert found.samples_s == pytest.approx([2e-3] * len(found.samples_s))
    assert len(found.samples_s) >= 10
    assert found.more["alone_s"] == pytest.approx(1e-3)
    assert found.more["noise_alone_s"] == pytest.approx(noise_s)
    assert found.more["noise_beside_s"] == pytest.approx(2 * noise_s)


def test_noise_that_takes_nothing_slows_nothing(gpu):
    found = measure_overlap(bench_of(gpu), lambda: gpu.work(1e-3), lambda: fake_cuda.sleep(1_000_000))
    assert found.samples_s == pytest.approx([1e-3] * len(found.samples_s))
    assert found.more["noise_beside_s"] == pytest.approx(5e-4)


def test_short_work_is_done_several_times_in_a_step(gpu):
    found = measure_overlap(bench_of(gpu), lambda: gpu.work(1e-5), lambda: gpu.work(1e-4))
    assert found.more["acts_per_sample"] == 20
    assert found.samples_s == pytest.approx([2e-5] * len(found.samples_s))


def test_the_short_lane_is_issued_before_one_that_may_fill_a_queue(gpu):
    issued = []
    long, short = (Lane(lambda name=name: issued.append(name), count, 1e-6) for name, count in (("l", 9), ("s", 3)))
    marks = CudaDevice(0).run_lanes([long, short])
    assert "".join(issued) == "sss" + 9 * "l"
    assert [len(of) for of in marks] == [10, 4]


def test_one_after_the_other_is_no_measurement(gpu, monkeypatch):
    """A device that runs streams in turn, as some debugging settings make it."""
    monkeypatch.setattr(fake_cuda.FakeCuda, "_pass_time", in_turn)
    with pytest.raises(RuntimeError, match="did one after the other"):
        measure_overlap(bench_of(gpu), lambda: gpu.work(1e-3), lambda: gpu.work(1e-3))


def in_turn(gpu):
    kind, seconds = next((stream.queue.pop(0) for stream in gpu.streams if stream.queue), ("", 0.0))
    assert kind in ("", "work", "spin")
    gpu.now_s += seconds


@pytest.mark.slow
@pytest.mark.alone  # busy cores may run one after the other
def test_on_a_cpu_both_sides_have_samples():
    device = CpuDevice()
    bench = Bench(device, budget_s=0.002)
    x, y = (torch.randn(1 << 16) for _ in range(2))
    found = measure_overlap(bench, lambda: torch.add(x, y), lambda: device.host_memory(1 << 20))
    assert min(found.samples_s) > 0
    assert found.more["alone_s"] > 0
    assert found.more["noise_alone_s"] > 0


def test_a_noise_that_fails_fails_the_measurement():
    bench = Bench(CpuDevice(), budget_s=0.002)
    with pytest.raises(ZeroDivisionError):
        measure_overlap(bench, lambda: None, lambda: 1 / 0)


@pytest.mark.slow
@pytest.mark.alone
def test_two_ranks_beside_their_own_all_reduces(tmp_path):
    script = Path(__file__).parent / "two_ranks.py"
    commands = [[sys.executable, str(script), str(rank), str(tmp_path / "store")] for rank in (0, 1)]
    ranks = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    found = [json.loads(rank.communicate(timeout=300)[0].splitlines()[-1]) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert all(one["samples"] > 0 and one["calls"] == 50 for one in found)
    for name in ("noise_acts", "alone_s", "noise_alone_s"):
        assert found[0]["more"][name] == found[1]["more"][name] > 0
