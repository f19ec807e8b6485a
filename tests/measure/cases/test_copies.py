import os
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

import torch
from runcast.calibrate.measure.case import Facts
from runcast.calibrate.measure.cases import copies, reload
from runcast.calibrate.measure.device import CpuDevice, CudaDevice
from runcast.calibrate.measure.timing import Bench

from .. import fake_cuda

ALONE = Facts("cpu")


def first(family, name):
    return next(case for case in family.cases(ALONE) if case.name == name)


def wrong(case):
    return case.measure(Bench(CpuDevice(), 1e-5)).wrong


@pytest.mark.parametrize("name", ["h2d", "d2h", "d2d", "h2d_and_d2h"])
def test_a_copy_that_copies_nothing_is_wrong_everywhere(name, monkeypatch):
    case = first(copies, name)
    assert wrong(case) == 0
    monkeypatch.setattr(copies, "_copy", lambda _source, _target: lambda: None)
    assert wrong(case) == case.bytes


@pytest.mark.parametrize("name", ["h2d", pytest.param("d2h", marks=pytest.mark.slow)])
def test_a_copy_beside_others_the_other_way_is_one_of_its_class(name):
    """As nvbandwidth has it: the one copy that is measured, not both."""
    (case,) = [
        case for case in copies.cases(ALONE) if case.name == name and "beside" in case.params and case.bytes == 1 << 24
    ]
    assert (case.cost_class, case.features) == (f"copy.{name}.bidirectional", {"bytes": 1 << 24})
    found = case.measure(Bench(CpuDevice(), 1e-3))
    assert (len(found.samples_s) > 0, found.wrong) == (True, 0)


def test_copies_of_all_gpus_of_a_node_at_once_are_concurrent_ones():
    node = Facts("cuda", ((0, 1, 2, 3),))
    classes = {
        (case.name, case.params["at_once"], case.cost_class) for case in copies.cases(node) if "at_once" in case.params
    }
    assert classes == {("h2d", 2, ""), ("h2d", 4, "copy.h2d.concurrent"), ("d2h", 4, "copy.d2h.concurrent")}


def test_what_tells_the_slower_of_both_ways_is_no_sample():
    assert {case.cost_class for case in copies.cases(ALONE) if case.name == "h2d_and_d2h"} == {""}


def test_a_copy_from_gpu_to_gpu_where_a_node_has_several():
    assert not [case for facts in (ALONE, Facts("cuda")) for case in copies.cases(facts) if case.name == "p2p"]
    cases = [case for case in copies.cases(Facts("cuda", ((0, 1),))) if case.name == "p2p"]
    assert {(case.cost_class, case.team, case.over) for case in cases} == {("copy.p2p", (0,), "wire")}
    with pytest.raises(RuntimeError, match="this process sees one GPU only"):
        cases[0].measure(Bench(CpuDevice(), 1e-5))


def test_only_issuing_is_a_sample_and_on_a_cpu_only_that_of_small_tensors():
    for facts, sizes in ((Facts("cuda"), {1 << 14, 1 << 18, 1 << 20, 7168 * 2048, 7168 * 4096}), (ALONE, {1 << 14})):
        sampled = [case for case in reload.cases(facts) if case.cost_class]
        assert {case.cost_class for case in sampled} == {f"host.reload_{name}_issue" for name in reload._WAYS}
        assert {case.params["bytes"] for case in sampled} == sizes


def test_a_launch_for_all_tensors_counts_once():
    counts = {case.name: case.features["count"] for case in reload.cases(ALONE) if case.cost_class}
    assert (counts["scatter_issue"], counts["scatter_with_table_issue"], counts["foreach_copy_issue"]) == (
        1,
        2000,
        2000,
    )


def test_tensors_of_8_bits_are_of_8_bits():
    (case,) = [case for case in reload.cases(ALONE) if case.name == "foreach_copy" and case.params["dtype"] == "uint8"]
    assert case.params["bytes"] == 7168 * 2048
    seen = []

    def way(bucket, slices, targets):
        seen.extend([bucket, *slices, *targets])

    reload._reload(Bench(CpuDevice(), 1e-5), way, 3, 10, torch.uint8)
    assert {(part.dtype, len(part)) for part in seen} == {(torch.uint8, 30), (torch.uint8, 10)}


def test_a_launch_that_forgets_the_last_tensor_is_wrong_there(monkeypatch):
    case = first(reload, "scatter")
    honest = reload.Scatter
    monkeypatch.setattr(reload, "Scatter", lambda flat, targets: honest(flat, targets[:-1]))
    assert wrong(case) == case.params["bytes"] // 2


@pytest.mark.parametrize("family", [copies, reload])
def test_cases_run_with_streams_and_events(family, monkeypatch):
    """A stand-in for CUDA: that they run, and that results are right. Its times mean nothing."""
    fake_cuda.install(monkeypatch, real_work=True)
    bench = Bench(CudaDevice(0), 1e-5)
    cheap = {case.name: case for case in sorted(family.cases(Facts("cuda")), key=lambda case: -case.footprint_bytes)}
    assert {case.measure(bench).wrong for case in cheap.values()} == {0}


@pytest.mark.parametrize(("text", "cpus"), [("0-3,8\n", {0, 1, 2, 3, 8}), ("5", {5}), ("\n", set())])
def test_cpus_of_a_node_come_from_sysfs(monkeypatch, tmp_path, text, cpus):
    (tmp_path / "node1").mkdir()
    (tmp_path / "node1" / "cpulist").write_text(text)
    monkeypatch.setattr(copies, "_NODES", tmp_path)
    assert copies.cpus_of(1) == cpus
    with pytest.raises(OSError, match="node0"):
        copies.cpus_of(0)


def test_a_thread_runs_on_a_node_and_then_where_it_did(monkeypatch):
    before = os.sched_getaffinity(0)
    one = {min(before)}
    monkeypatch.setattr(copies, "cpus_of", lambda _node: one)
    with copies.numa_memory(CpuDevice(), 0, 16) as memory:
        assert os.sched_getaffinity(0) == one
        assert memory.tolist() == [1] * 16
    assert os.sched_getaffinity(0) == before


def test_memory_is_pinned_while_it_is_used_and_no_longer(monkeypatch):
    """A stand-in for the CUDA runtime: nothing but calls, addresses and sizes is seen here."""
    calls = []
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime(calls))
    monkeypatch.setattr(torch.cuda, "check_error", lambda code: calls.append(("check", code)))
    device = object.__new__(CudaDevice)
    monkeypatch.setattr(device, "synchronize", lambda: calls.append(("synchronize",)), raising=False)
    monkeypatch.setattr(copies, "cpus_of", lambda _node: os.sched_getaffinity(0))
    with copies.numa_memory(device, 0, 8192) as memory:
        assert memory.tolist() == [1] * 8192
        address = memory.data_ptr()
    assert calls == [
        ("register", address, 8192, 0),
        ("check", 0),
        ("synchronize",),
        ("unregister", address),
        ("check", 0),
    ]


def runtime(calls):
    def register(address, size, flags):
        calls.append(("register", address, size, flags))
        return 0

    def unregister(address):
        calls.append(("unregister", address))
        return 0

    return SimpleNamespace(cudaHostRegister=register, cudaHostUnregister=unregister)
