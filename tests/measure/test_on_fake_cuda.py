"""What only runs on CUDA, on a stand-in: that it runs at all. Times mean nothing here, nor do kernels."""

import contextlib
import os

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

import torch
from runcast.calibrate.measure.case import Facts
from runcast.calibrate.measure.cases import (
    attention,
    compress,
    gemm,
    interference,
    membound,
    moe,
    overheads,
    sustained,
)
from runcast.calibrate.measure.device import CudaDevice, pick_device
from runcast.calibrate.measure.environment import machine_facts
from runcast.calibrate.measure.timing import Bench

from . import fake_cuda

GPU = Facts("cuda", sms=132, memory_bytes=8e10)


@pytest.fixture
def bench(monkeypatch):
    fake_cuda.install(monkeypatch, real_work=True)
    torch.set_num_threads(1)
    return Bench(CudaDevice(0), budget_s=0.001)


def test_the_device_times_work_by_its_own_clock(monkeypatch):
    gpu = fake_cuda.install(monkeypatch)
    device = pick_device("cuda", 0)
    assert device.times(lambda: gpu.work(1e-3), 3, 2, cold=True, issue_s=1e-5) == pytest.approx([1e-3] * 3)
    both = device.concurrent_act([lambda: gpu.work(1e-3), lambda: gpu.work(3e-3)])
    assert device.times(both, 2, 1, cold=False, issue_s=1e-5) == pytest.approx([4e-3] * 2)
    assert device.host_memory(16).sum() == 16


def test_nothing_in_the_environment_makes_calls_wait_or_streams_share_a_queue(monkeypatch):
    fake_cuda.install(monkeypatch)
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")  # as Megatron wants it
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    CudaDevice(0)
    assert os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] == "32"
    assert "CUDA_LAUNCH_BLOCKING" not in os.environ


def test_facts_need_no_nccl(monkeypatch):
    fake_cuda.install(monkeypatch)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: torch._C._no_such_function)
    assert machine_facts("cuda", ((0,),), 1).collectives == "nccl"


def cheapest(module, seconds=0.05):
    """The cheapest case of each name, library and kind of noise that a CPU can run in time."""
    found = {}
    for case in sorted(module.cases(GPU), key=lambda case: case.flop / 3e10 + case.bytes / 2e9):
        if case.flop / 3e10 + case.bytes / 2e9 < seconds and case.footprint_bytes < 2e8:
            kind = case.name, case.library, *(case.params.get(name) for name in ("beside", "dtype", "variant"))
            found.setdefault(kind, case)
    return list(found.values())


SLOW = [pytest.param(module, marks=pytest.mark.slow) for module in (compress, membound, overheads)]


@pytest.mark.parametrize("module", [gemm, moe, *SLOW])
def test_cases_run(bench, module):
    cases = cheapest(module)
    assert len(cases) >= 4
    for case in cases:
        found = case.measure(bench)
        assert len(found.samples_s) >= 5, case.key
        assert not found.wrong, case.key


def test_attention_runs_by_a_backend_of_its_own(bench):
    """Flash attention is on CPUs too; that cuDNN is chosen shows in that it is not."""
    flash, cudnn = (
        next(case for case in attention.cases(GPU) if case.params["backend"] == name and case.params["seq"] == 128)
        for name in ("flash", "cudnn")
    )
    assert len(flash.measure(bench).samples_s) >= 5
    with pytest.raises(RuntimeError, match=r"No (available kernel|viable backend)"):
        cudnn.measure(bench)


@pytest.mark.slow
def test_victims_run_beside_everything(bench, monkeypatch):
    monkeypatch.setattr(interference, "_VICTIMS", interference._SMALL_VICTIMS[:1])
    cases = list(interference.cases(GPU))
    assert {case.params["beside"] for case in cases} == {"none", "h2d", "d2h", "d2d", "occupy"}
    for case in cases:
        if case.params.get("programs", 4) == 4:
            assert case.measure(bench).more["alone_s"] > 0, case.key


def test_sustained_runs(bench):
    found = sustained._gemms(bench, 64, 0.2)
    assert found.more["ended_s"][-1] >= 0.2
    assert found.more["telemetry"] == []


def test_a_graph_is_captured_once_and_replayed(bench):
    (case,) = [case for case in overheads.cases(GPU) if case.name == "graph_node" and case.params["nodes"] == 20]
    case.measure(bench)
    assert fake_cuda.FAKE.called.count("capture") == 1
    assert fake_cuda.FAKE.called.count("replay") > 5


def test_a_capture_that_fails_leaves_the_stream_as_it_was(bench, monkeypatch):
    """As torch.cuda.graph does it: where the end of the capture raises, its stream stays the current one."""

    @contextlib.contextmanager
    def failing(graph, **_):
        fake_cuda.FAKE.current = fake_cuda.FakeStream()
        yield
        raise RuntimeError("capture failed")

    monkeypatch.setattr(torch.cuda, "graph", failing)
    before = torch.cuda.current_stream()
    (case,) = [case for case in overheads.cases(GPU) if case.name == "graph_node" and case.params["nodes"] == 20]
    with pytest.raises(RuntimeError, match="capture failed"):
        case.measure(bench)
    assert torch.cuda.current_stream() is before
