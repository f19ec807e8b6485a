"""A sweep whose workers are jobs of Slurm, one of which is cancelled while the sweep runs."""

import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from .conftest import until

pytestmark = pytest.mark.slow

RUNCAST = Path(sys.executable).with_name("runcast")
TINY = Path(__file__).parents[2] / "data/scenarios/tiny-2ranks.toml"
SWEEP = f"""
base = "{TINY}"

[[axes]]
key = "update.bucket"
from = {2**20}
to = {2**21}
steps = 300

[engine.slurm]
walltime = "00:05:00"
interface = "lo"
job_directives_skip = ["--mem"]  # this Slurm knows of no memory
"""


def done(folder: Path) -> int:
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{folder}/state.sqlite?mode=ro", uri=True)) as state:
        return int(state.execute("SELECT count(*) FROM points").fetchone()[0])
    return 0


def test_a_sweep_outlives_one_of_its_jobs(slurm, tmp_path):
    (tmp_path / "sweep.toml").write_text(SWEEP)
    command = [str(RUNCAST), "sweep", "sweep.toml", "--out"]
    jobs = [*command, "jobs", "--engine", "dask", "--scheduler", "slurm", "--workers", "2"]
    sweep = subprocess.Popen(
        jobs, env=slurm.env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    running = ["squeue", "--noheader", "--format=%i", "--states=RUNNING"]
    assert until(lambda: done(tmp_path / "jobs") >= 10 and len(slurm.run(*running).split()) == 2, 120)
    slurm.run("scancel", "--signal=KILL", "--full", slurm.run(*running).split()[0])
    printed, _ = sweep.communicate(timeout=240)
    subprocess.run([*command, "here"], cwd=tmp_path, check=True, capture_output=True, timeout=300)

    assert (sweep.returncode, done(tmp_path / "jobs")) == (0, 300), printed
    assert (tmp_path / "jobs/report.csv").read_bytes() == (tmp_path / "here/report.csv").read_bytes()
