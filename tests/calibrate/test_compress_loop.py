"""Gradients encoded on this machine: measure the methods, fit a profile, predict a run, and time the kernels directly.

Small machines drift, so a try measures, then times, and measures again: see `test_loop.py`.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runcast.simulator import simulate

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

import torch
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
LIMIT = 2.5758  # of normal values a hundredth is larger
VALUES = 16 * 2**20 // 4
TRIES, RUNS, CLOSE, BROKEN = 3, 9, 0.2, 0.5


def measure(folder):
    """A profile of what this machine takes now."""
    only = ",".join(f"compress/{method}_encode" for method in SETTINGS)
    (folder / "mine.jsonl").unlink(missing_ok=True)  # else the suite has nothing left to measure
    run(
        folder,
        sys.executable,
        "-m",
        "runcast.calibrate",
        "run",
        "--device",
        "cpu",
        "--only",
        only,
        "--out",
        "mine.jsonl",
    )
    run(folder, BIN / "runcast", "calibrate", "fit", "mine.jsonl", "--out", "mine.json")


def run(folder, *command):
    line = [str(word) for word in command]
    done = subprocess.run(line, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def predicted_s(folder, method):
    """Seconds that a run counts for encoding one gradient."""
    keys = ", ".join([f"method='{method}'", *(f"{key}={value}" for key, value in SETTINGS[method].items())])
    return simulate(folder / "run.toml", [f"compress={{{keys}}}"]).resolved.message.encode_s


def timed_s(method):
    """Seconds of one call of the kernel on the same gradient, by one thread, caches emptied before."""
    torch.set_num_threads(1)
    gradient, flush = torch.randn(VALUES), torch.zeros(2**27, dtype=torch.uint8)
    settings = {"limit": LIMIT} if method == "threshold" else SETTINGS[method]
    took = []
    for _ in range(RUNS):
        flush.add_(1)
        began = time.perf_counter()
        METHODS[method].encode(gradient, **settings)
        took.append(time.perf_counter() - began)
    return statistics.median(took[1:])


def test_encoding_takes_what_a_run_predicts_from_measurements_of_this_machine(tmp_path):
    (tmp_path / "run.toml").write_text(SCENARIO)
    off = {method: [] for method in SETTINGS}
    for _ in range(TRIES):
        measure(tmp_path)
        for method in SETTINGS:
            off[method].append(abs(predicted_s(tmp_path, method) / timed_s(method) - 1))
        if all(min(errors) <= CLOSE for errors in off.values()):
            return
    if any(min(errors) > BROKEN for errors in off.values()):
        pytest.fail(f"predicted and timed encoders differ: {off}")
    pytest.skip(f"this machine does not hold still: {off}")
