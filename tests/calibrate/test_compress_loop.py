"""Gradients encoded on this machine: measure the methods, fit a profile, predict a run, and time the kernels directly.

Small machines drift (see `test_loop.py`). So kernels are timed before and after the suite measures them, and only a try
where both agree can pass. A prediction that is far from all timings in all tries fails.
"""

import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from runcast.simulator import simulate

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

import torch
from runcast.calibrate.measure.device import CpuDevice
from runcast.kernels.compress import METHODS

pytestmark = [pytest.mark.slow, pytest.mark.alone]

SCENARIO = """
kind = "run"
cluster = { base = "cpu-host", gpus_per_node = 1 }
nodes = 2
profile = "mine.json"
step = { time = "1 s", gradient = "16 MiB", gpus = 1 }
run = { steps = 10 }
sync = { bandwidth = "1 GB/s", latency = 0 }
compress = { method = "int8" }
"""
BIN = Path(sys.executable).parent
SETTINGS = {"int8": {}, "top_k": {"density": 0.01}, "threshold": {"density": 0.01}}
LIMIT = 2.5758  # the magnitude that a hundredth of normal values exceed
VALUES = 16 * 2**20 // 4
CASES = [f"compress/{method}_encode bytes={size} *" for method in SETTINGS for size in (1 << 22, 1 << 24)]
TRIES, RUNS = 5, 9
STEADY, CLOSE, BROKEN = 0.15, 0.2, 0.5


@dataclass(frozen=True)
class Try:
    """Seconds to encode a gradient: timed, predicted by what the suite measured then, and timed again."""

    method: str
    before_s: float
    predicted_s: float
    after_s: float

    @property
    def passes(self):
        steady = abs(self.after_s / self.before_s - 1) <= STEADY
        return steady and abs(self.predicted_s / (self.before_s + self.after_s) * 2 - 1) <= CLOSE

    @property
    def least_error(self):
        return min(abs(self.predicted_s / timed - 1) for timed in (self.before_s, self.after_s))


def run(folder, *command):
    line = [str(word) for word in command]
    done = subprocess.run(line, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def measure(folder):
    """A profile of what this machine takes now."""
    (folder / "mine.jsonl").unlink(missing_ok=True)  # else the suite has nothing left to measure
    suite = (sys.executable, "-m", "runcast.calibrate", "run", "--device", "cpu", "--rounds", 1)
    run(folder, *suite, "--only", ",".join(CASES), "--out", "mine.jsonl")
    run(folder, BIN / "runcast", "calibrate", "fit", "mine.jsonl", "--out", "mine.json")


def predicted_s(folder, method):
    """Seconds that a run counts for encoding one gradient."""
    keys = ", ".join([f"method='{method}'", *(f"{key}={value}" for key, value in SETTINGS[method].items())])
    return simulate(folder / "run.toml", [f"compress={{{keys}}}"]).resolved.message.encode_s


def timed_s(method):
    """Seconds of one call of the kernel on the same gradient, by one thread, caches emptied before.

    Memory is kept between calls, as on a GPU: new pages may cost more than encoding.
    """
    torch.set_num_threads(1)
    CpuDevice()  # which makes malloc keep memory
    gradient, flush = torch.randn(VALUES), torch.zeros(2**27, dtype=torch.uint8)
    settings = {"limit": LIMIT} if method == "threshold" else SETTINGS[method]
    took = []
    for _ in range(RUNS):
        flush.add_(1)
        began = time.perf_counter()
        METHODS[method].encode(gradient, **settings)
        took.append(time.perf_counter() - began)
    return statistics.median(took[2:])


def test_encoding_takes_what_a_run_predicts_from_measurements_of_this_machine(tmp_path):
    (tmp_path / "run.toml").write_text(SCENARIO)
    tries = {method: [] for method in SETTINGS}
    for _ in range(TRIES):
        before = {method: timed_s(method) for method in SETTINGS}
        measure(tmp_path)
        for method, made in tries.items():
            made.append(Try(method, before[method], predicted_s(tmp_path, method), timed_s(method)))
        if all(any(one.passes for one in made) for made in tries.values()):
            return
    if any(min(one.least_error for one in made) > BROKEN for made in tries.values()):
        pytest.fail(f"predicted and timed encoders differ: {tries}")
    pytest.skip(f"this machine does not hold still: {tries}")
