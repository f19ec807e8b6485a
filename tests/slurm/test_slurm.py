"""What the other tests here stand on: jobs run, their tasks reach each other, and how they end is told."""

import importlib.util
import socket
from pathlib import Path
from shlex import quote

import pytest

from .conftest import free_ports

pytestmark = pytest.mark.slow


def test_tasks_are_ranks_that_reach_each_other(slurm):
    if not importlib.util.find_spec("torch"):
        pytest.skip("the tasks need the [calibrate] extra")
    export = f"--export=ALL,PORT={free_ports(1)[0]}"
    program = str(Path(__file__).with_name("all_reduce.py"))
    job = slurm.sbatch(export, "--nodes=1", "--ntasks-per-node=4", "--wrap", f"srun -n4 python {quote(program)}")
    assert (job.state, job.exit) == ("COMPLETED", "0:0"), job
    assert sorted(job.stdout.splitlines()) == [f"{local} 0 10" for local in range(4)]


def test_the_node_has_a_name_that_resolves(slurm):
    job = slurm.sbatch("--wrap", "srun printenv SLURM_JOB_NODELIST SLURM_STEP_NODELIST SLURM_LAUNCH_NODE_IPADDR")
    assert job.stdout.split() == ["localhost", "localhost", "127.0.0.1"], job
    assert socket.gethostbyname("localhost") == "127.0.0.1"


def test_exit_code_of_a_script(slurm, tmp_path):
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\necho wrong >&2\nexit $1\n")
    assert slurm.sbatch(script, "3") == ("FAILED", "3:0", "", "wrong\n")


def test_a_killed_task_ends_the_others(slurm, tmp_path):
    (tmp_path / "task.sh").write_text("""
        echo $$ >$SLURM_PROCID
        [ $SLURM_PROCID = 2 ] || exec sleep 300
        until [ -s 0 ] && [ -s 1 ] && [ -s 3 ]; do sleep 0.1; done
        kill -KILL $$
    """)
    job = slurm.sbatch("--ntasks=4", "--wrap", "srun --kill-on-bad-exit=1 sh task.sh", timeout_s=30, cwd=tmp_path)
    assert job.state == "FAILED", job
    assert job.exit in {"137:0", "143:0"}, job  # srun's is the highest of its tasks: of SIGKILL, or of SIGTERM
    pids = [(tmp_path / str(rank)).read_text().strip() for rank in range(4)]
    assert not [pid for pid in pids if Path("/proc", pid).exists()]


def test_a_job_that_takes_too_long_leaves_nothing(slurm):
    with pytest.raises(AssertionError, match="after 2 s: Job"):
        slurm.sbatch("--wrap", "srun sleep 300", timeout_s=2)
    assert slurm.processes() > slurm.idle
    slurm.cancel()
    assert slurm.processes() == slurm.idle
