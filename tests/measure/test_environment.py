"""What a file says of the machine: enough to tell it apart from others, and nothing about who uses it."""

import json
import os
import platform
import socket
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

import torch
from runcast.calibrate.measure import environment as module
from runcast.calibrate.measure.case import Facts
from runcast.calibrate.measure.device import CudaDevice
from runcast.calibrate.measure.environment import environment, gpu_hash, machine_facts

from . import fake_cuda

SECRET = "of-somebody"


@pytest.fixture
def secretive(monkeypatch):
    """A machine whose name, user and variables all give something away, and its GPU's serial number."""
    monkeypatch.setattr(platform, "_uname_cache", None)
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", f"node-{SECRET}", "6.1", "#1", "x86_64")))
    monkeypatch.setattr(socket, "gethostname", lambda: f"node-{SECRET}")
    for name in ("HOSTNAME", "USER", "LOGNAME", "HOME", "SLURM_STEP_NODELIST", "MASTER_ADDR"):
        monkeypatch.setenv(name, f"node-{SECRET}")
    fake_cuda.install(monkeypatch)
    torch.cuda.get_device_properties().uuid = f"GPU-{SECRET}"


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_neither_names_of_hosts_and_users_nor_serial_numbers(secretive, kind):
    assert platform.node() == f"node-{SECRET}"
    found = environment(Facts(kind))
    assert found["group"] == "environment"
    assert SECRET not in json.dumps(found)


def test_gpus_are_told_apart_all_the_same(secretive):
    one = gpu_hash(CudaDevice(0))
    assert one == gpu_hash(CudaDevice(0))
    torch.cuda.get_device_properties().uuid = "GPU-another"
    assert one != gpu_hash(CudaDevice(0)) != ""


def test_ranks_share_the_memory_of_their_node(monkeypatch):
    monkeypatch.setattr(module, "_free_host_bytes", lambda: 64e9)
    assert machine_facts("cpu", ((0, 1, 2, 3), (4, 5, 6, 7)), 4).memory_bytes == 8e9


def test_a_gpu_has_its_memory_for_itself(monkeypatch):
    fake_cuda.install(monkeypatch)
    assert machine_facts("cuda", ((0, 1, 2, 3),), 4).memory_bytes == 0.5 * torch.cuda.mem_get_info()[0]


def test_the_driver_is_named(monkeypatch):
    told = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build\nGCC version: 12.3.0\n"
    monkeypatch.setattr(module, "Path", lambda _path: SimpleNamespace(read_text=lambda: told))
    assert module._driver() == "550.54.15"
