"""Measure, fit, check: what docs/measuring.md promises, on four ranks of CPUs and Gloo."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure.records import read_records

from .launching import environment

pytestmark = [pytest.mark.slow, pytest.mark.alone]

BIN = Path(sys.executable).parent
LIMIT_S = 180


def run(*command, cwd, until):
    line, left = [BIN / command[0], *command[1:]], until - time.monotonic()
    done = subprocess.run(line, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=left)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_four_ranks_measure_fit_and_check_within_three_minutes(tmp_path):
    until = time.monotonic() + LIMIT_S
    torchrun = ("torchrun", "--standalone", "--nproc-per-node", "4", "-m")
    measure = ("runcast.calibrate", "run", "--quick", "--rounds", "1", "--limit-min", "2", "--out", "mine.jsonl")
    run(*torchrun, *measure, cwd=tmp_path, until=until)
    run("runcast", "calibrate", "fit", "mine.jsonl", "--out", "mine.json", cwd=tmp_path, until=until)
    table = run("runcast", "calibrate", "check", "mine.json", "mine.jsonl", cwd=tmp_path, until=until)

    records = read_records(tmp_path / "mine.jsonl")
    families = {
        "collectives",
        "send_recv",
        "copies",
        "gemm",
        "attention",
        "membound",
        "moe",
        "compress",
        "overheads",
        "interference",
    }
    assert {record["group"] for record in records} >= families
    failed = [record for record in records if "error" in record or record.get("wrong")]
    assert {record["group"] for record in failed} <= {"interference"}  # four ranks on two cores may not run at once

    profile = json.loads((tmp_path / "mine.json").read_text())
    measured = {record.get("cost_class") for record in records[1:]} - {"", None}
    assert set(profile["models"]) == measured
    assert profile["environment"]["gpu"] == "CPU"
    assert all(kind in table for kind in measured)
    assert [name for name in profile["parameters"] if name.startswith("interference.gemm.")]
