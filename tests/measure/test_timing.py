from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

import torch
from runcast.calibrate.measure import device, timing
from runcast.calibrate.measure.device import CpuDevice, CudaDevice
from runcast.calibrate.measure.timing import Bench

from . import fake_cuda


class Clock:
    """Time that passes only where an act takes it."""

    def __init__(self, monkeypatch):
        self.now_s, self.acts = 0.0, 0
        for module in (device, timing):
            monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: self.now_s))

    def act(self, seconds):
        def act():
            self.acts += 1
            self.now_s += seconds

        return act


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


class Asked(CpuDevice):
    """Says how it was asked, in place of times."""

    def times(self, act, repeats, inner, cold, *_, **__):
        return [(repeats, inner, cold)]


@pytest.mark.parametrize(("one_s", "expected"), [(1e-6, (10, 200)), (1e-4, (10, 10)), (1e-3, (10, 1)), (0.1, (5, 1))])
def test_the_budget_holds_for_samples_of_several_acts(monkeypatch, one_s, expected):
    monkeypatch.setattr(timing, "warm_up", lambda bench, act: (one_s, 0.0))
    bench = Bench(Asked(), budget_s=0.0101)
    repeats, inner, _ = timing.hot(lambda _bench: lambda: None)(bench).samples_s[0]
    assert (min(repeats, 10), inner) == expected
    assert repeats == 5 or repeats * inner * one_s <= bench.budget_s


@pytest.mark.parametrize("way", [timing.cold, timing.hot])
def test_hot_is_many_acts_in_a_row_and_cold_a_single_one(clock, way):
    asked = way(lambda _bench: clock.act(1e-4))(Bench(Asked(), budget_s=0.01)).samples_s
    assert asked == ((100, 1, True) if way is timing.cold else (10, 10, False),)


@pytest.mark.parametrize(("act_s", "acts"), [(1e-6, 27), (0.001, 12), (1.0, 2)])
def test_a_warm_up_of_a_quarter_of_the_budget_is_not_timed(clock, act_s, acts):
    timing.hot(lambda _bench: clock.act(act_s))(Bench(Asked(), budget_s=0.0401))
    assert clock.acts == acts  # the first one, one to see how long it takes, and at most 25 more


def test_the_first_act_does_not_say_how_long_one_takes(clock):
    """It loads kernels, and makes plans for shapes that it sees for the first time."""
    first = iter([1.0])

    def act():
        clock.now_s += next(first, 1e-3)

    assert timing.hot(lambda _bench: act)(Bench(Asked(), budget_s=0.0101)).samples_s == ((10, 1, False),)


def test_the_slowest_rank_says_how_often(clock):
    """Or they would wait for each other in collectives that some of them do not call."""
    bench = Bench(Asked(), budget_s=0.0101)
    bench.slowest = lambda seconds: 10 * seconds
    assert timing.hot(lambda _bench: clock.act(1e-4))(bench).samples_s == ((10, 1, False),)


def test_results_are_looked_at_once_they_have_been_timed(clock):
    left = []
    act = timing.Checked(lambda: (clock.act(1e-3)(), left.append(0)), lambda: len(left))
    bench = Bench(CpuDevice(), budget_s=0.0101)
    assert timing.cold(lambda _bench: act)(bench).wrong == len(left) == 4 + 10
    assert timing.time_host(lambda _bench: act)(bench).wrong == len(left) == 2 * (4 + 10)


def test_of_a_call_on_the_host_the_device_is_no_part(clock):
    class Busy(CpuDevice):
        def synchronize(self):
            clock.now_s += 1e-3

    found = timing.time_host(lambda _bench: clock.act(1e-4))(Bench(Busy(), budget_s=0.01))
    assert found.samples_s == pytest.approx([1e-4] * 9)


def test_a_cpu_times_an_act_and_not_what_brings_ranks_together(clock):
    times = CpuDevice().times(clock.act(1e-3), 3, 4, cold=False, issue_s=0.0, align=clock.act(5e-3))
    assert times == pytest.approx([1e-3] * 3)
    assert clock.acts == 3 * (4 + 1)


def test_so_does_a_gpu(monkeypatch):
    gpu = fake_cuda.install(monkeypatch)
    work = lambda seconds: lambda: gpu.work(seconds)  # noqa: E731
    times = CudaDevice(0).times(work(1e-3), 3, 4, cold=False, issue_s=0.0, align=work(5e-3))
    assert times == pytest.approx([1e-3] * 3)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_before_each_cold_act_caches_are_overwritten(monkeypatch, kind):
    fake_cuda.install(monkeypatch)
    cold_device = device.pick_device(kind, 0)
    overwritten = cold_device._flush = torch.ones(8, dtype=torch.uint8)
    seen = []

    def act():
        seen.append((overwritten != 1).all())
        overwritten.fill_(1)

    cold_device.times(act, 3, 1, cold=True, issue_s=0.0)
    cold_device.times(act, 2, 1, cold=False, issue_s=0.0)
    assert seen == [True, True, True, False, False]


def test_twice_the_l2_cache_is_overwritten(monkeypatch):
    fake_cuda.install(monkeypatch)
    torch.cuda.get_device_properties().L2_cache_size = 100_000_000
    assert CudaDevice(0)._flush.nbytes == 200_000_000


def test_the_stream_is_held_until_the_host_has_issued_all_acts(monkeypatch):
    fake_cuda.install(monkeypatch)
    held = []
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: held.append(cycles / fake_cuda.CYCLES_PER_S))
    CudaDevice(0).times(lambda: None, 3, 10, cold=False, issue_s=1e-4)
    assert len(held) == 3
    assert 10 * 1e-4 <= min(held) <= max(held) <= 2 * 10 * 1e-4
