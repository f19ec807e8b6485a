import os
import subprocess
import sys

import pytest
import torch
from runcast.kernels.dispatch import check_dense, launch, library_of

USE_ALL = """
import sys, torch
from importlib import import_module
from pkgutil import iter_modules
from runcast import kernels

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "triton" and BLOCK:
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
names = [module.name for module in iter_modules(kernels.__path__) if module.name != "compiled"]
modules = {name: import_module("runcast.kernels." + name) for name in names}
assert "runcast.kernels.compiled" not in sys.modules
x = torch.randn(3, 4)
result = modules["permute"].permute(x, torch.tensor([2, 0]))
assert torch.equal(result, x[[2, 0]])
print(modules["dispatch"].library_of(x), "triton" in sys.modules)
"""


def test_the_device_fixture_names_its_library(device):
    assert library_of(torch.empty(1, device=device)) in ("triton", "torch")


def test_host_memory_is_for_torch(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert library_of(torch.empty(1)) == "torch"


def test_the_interpreter_takes_host_memory_only(monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert library_of(torch.empty(1)) == "triton"
    assert library_of(torch.empty(1, device="meta")) == "torch"


@pytest.mark.gpu
def test_cuda_is_for_triton(cuda):
    assert library_of(torch.empty(1, device=cuda)) == "triton"


@pytest.mark.parametrize("interpret", ["0", pytest.param("1", marks=pytest.mark.slow)])
def test_all_runs_without_triton(interpret):
    assert run_alone(blocked=True, interpret=interpret) == "torch False"


@pytest.mark.slow
def test_triton_is_not_imported_before_a_kernel_runs():
    assert run_alone(blocked=False, interpret="0") == "torch False"


def run_alone(blocked: bool, interpret: str) -> str:
    """What a Python of its own prints after `USE_ALL`."""
    script = f"BLOCK = {blocked}\n{USE_ALL}"
    env = {**os.environ, "TRITON_INTERPRET": interpret}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_empty_grid_launches_nothing():
    launch(None, (0, 3), torch.empty(0))


def test_views_are_refused_by_name():
    with pytest.raises(ValueError, match=r"^x: strides \(1, 3\) of shape \(3, 2\)"):
        check_dense(x=torch.empty(2, 3).T)


def test_two_devices_are_refused_by_name():
    with pytest.raises(ValueError, match=r"^b: on meta, the others on cpu"):
        check_dense(a=torch.empty(1), b=torch.empty(1, device="meta"))
