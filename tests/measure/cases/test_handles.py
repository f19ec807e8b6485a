import json
import os

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

import torch
from runcast.calibrate.measure.cases.handles import CudaHandles, FileHandles, gather_results
from runcast.calibrate.measure.device import CpuDevice
from runcast.calibrate.measure.timing import Bench

FIELDS = (0, b"\x00\xff memory", 1 << 25, 512, b"/torch_1_2_3", 7, bytes(range(64)), True)
"""As `_share_cuda_` gives them: device, handle, size, offset, counter, its offset, event, whether to wait for it."""


def test_a_file_is_shared_opened_and_gone():
    ways = FileHandles()
    name, size = ways.share(1 << 25, 7)
    memory = ways.open([name, size])
    assert (len(memory), memory[0], memory[-1]) == (1 << 25, 0, 7)
    ways.forget()
    assert not os.path.exists(name)


def test_the_fields_of_a_cuda_handle_arrive_as_they_were_sent(monkeypatch):
    """A stand-in for CUDA: what passes through JSON reaches torch's own function unchanged."""
    opened = []

    def open_shared(*fields):
        opened.append(fields)
        return torch.zeros(4, dtype=torch.uint8).untyped_storage()

    collected = []
    monkeypatch.setattr(torch.UntypedStorage, "_share_cuda_", lambda _storage: FIELDS)
    monkeypatch.setattr(torch.UntypedStorage, "_new_shared_cuda", staticmethod(open_shared))
    monkeypatch.setattr(torch.cuda, "ipc_collect", lambda: collected.append("ipc"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: collected.append("cache"))
    ways = CudaHandles(Bench(CpuDevice(), 0.001))
    memory = ways.open(json.loads(json.dumps(ways.share(1 << 10, 7))))
    ways.forget()
    assert opened == [FIELDS]
    assert memory.tolist() == [0] * 4
    assert collected == ["ipc", "cache"]


def test_what_fails_on_one_rank_fails_on_the_other():
    other = {"failed": "RuntimeError: no peer access"}
    bench = Bench(CpuDevice(), 0.001, exchange=lambda value: [value, other])
    with pytest.raises(RuntimeError, match="no peer access"):
        gather_results(bench, lambda: 3)


def test_all_hear_what_all_return():
    bench = Bench(CpuDevice(), 0.001, exchange=lambda value: [value, {"returned": [1, 2]}])
    assert gather_results(bench, lambda: None) == [None, [1, 2]]
