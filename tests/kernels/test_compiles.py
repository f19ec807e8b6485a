"""Kernels compiled for devices that are not here: what Triton's interpreter accepts, its compiler need not."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from runcast.kernels import reload

SCRIPT = Path(__file__).with_name("compiling.py")
FP8 = ("quantize_tiles", "quantize_by")  # not before sm_89
HELPERS = {"copy_elements", "to_e4m3"}


OTHERS = [pytest.param(device, marks=pytest.mark.slow) for device in (80, 100)]


@pytest.fixture(scope="module", params=[90, *OTHERS])
def kernels(request, tmp_path_factory):
    triton = pytest.importorskip("triton")
    if tuple(int(part) for part in triton.__version__.split(".")[:2]) < (3, 3):
        pytest.skip("needs triton 3.3: compiling without a device differs in earlier ones")
    env = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton"))}
    command = [sys.executable, SCRIPT, str(request.param), *(FP8 if request.param == 80 else ())]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_no_kernel_is_forgotten(kernels):
    source = Path(reload.__file__).with_name("compiled.py").read_text()
    assert set(kernels) >= set(re.findall(r"^def (\w+)", source, re.MULTILINE)) - HELPERS - set(FP8)


def test_no_kernel_spills_registers(kernels):
    assert {name for name, facts in kernels.items() if facts["spilled"]} == set()


def test_every_kernel_moves_16_bytes_at_once(kernels):
    assert {name for name, facts in kernels.items() if not facts["wide"]} == set()


def test_a_program_of_occupy_keeps_compute_off_its_sm(kernels):
    assert kernels["occupy"]["registers"] * 512 > 0.8 * 65536
