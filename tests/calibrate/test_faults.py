"""What goes wrong between processes is one line within a bounded time, and nothing of them stays behind."""

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

pytest.importorskip("torch", reason="executing needs the [calibrate] extra")

from runcast.calibrate.execute import watch
from runcast.calibrate.execute.watch import Watch
from runcast.calibrate.execute.world import RunError, World

from ..command import runcast
from .test_execute import NO_RANKS, RUNCAST, torchrun

SCENARIOS = Path(__file__).parents[2] / "data/scenarios"
ROOT = SCENARIOS.parents[1]
STEP = [SCENARIOS / "tiny-train-pp4.toml", "--timeout", "10"]
FAULTY = "tests.calibrate.faulty_rank"
TWO = ["--set", "parallel.pp=2", "--set", "cluster.gpus_per_node=2"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]


# One rank asks the others


class Messages:
    """A store of ranks of which some answer, each what it does."""

    def __init__(self, answers):
        self.there = {f"answer/{rank}": doing for rank, doing in answers.items()}
        self.timeout = World(0, 1, 0, 1).timeout

    def post(self, name, message):
        self.there[name] = message

    def read(self, name):
        while name not in self.there:
            time.sleep(0.01)
        return self.there[name]

    def has(self, name):
        return name in self.there

    def is_first(self, name):
        return self.there.setdefault(name, self) is self


@pytest.fixture
def lost(monkeypatch):
    """`lost(answers, error)`: what rank 0 of three says that had an error in an op, when others answer so."""
    monkeypatch.setattr(watch, "_ANSWER_S", 0.1)
    monkeypatch.setattr(watch, "_LAUNCHER_S", 0)
    monkeypatch.setenv("RUNCAST_SPAWNED", "1")

    def said(answers, error):
        def fail(op):
            raise error

        with pytest.raises(RunError) as raised, Watch(Messages(answers), World(0, 3, 0, 3)) as watched:
            watched.act(fail, ["embed", "reduce"])(1)
        return raised.value.line

    return said


TIMED_OUT = RuntimeError("[gloo/transport/tcp/unbound_buffer.cc:84] Timed out waiting 10000ms for recv")


def test_who_does_not_answer_is_lost(lost):
    line = lost({2: []}, TIMED_OUT)

    assert line == "rank 0 waits in vain in 'reduce': rank 1 does not answer (dead or stopped)"


def test_ranks_that_answer_say_what_they_do(lost):
    line = lost({1: [("loss", 600.2)], 2: [("reduce", 599.0)]}, TIMED_OUT)

    assert line == "rank 0 waited 600 s in 'reduce'; all ranks answer: rank 1 is in 'loss' for 600 s"


def test_memory_is_a_line_of_its_own(lost):
    line = lost({}, RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 64 bytes."))

    assert line == "rank 0 cannot allocate 64 bytes in 'reduce': this machine has too little memory"


def test_our_own_faults_are_no_lost_peers():
    with pytest.raises(RuntimeError, match="lacks a dependency") as raised, Watch(Messages({}), World(0, 1, 0, 1)):
        raise RuntimeError("the Program lacks a dependency")

    assert not isinstance(raised.value, RunError)


class SlowMessages(Messages):
    """Reading takes longer than what the caller does afterwards."""

    def read(self, name):
        found = super().read(name)
        time.sleep(0.2)
        return found


def test_no_thread_answers_when_a_run_has_ended():
    before = set(threading.enumerate())

    with Watch(SlowMessages({}), World(0, 2, 0, 2)):
        pass

    assert set(threading.enumerate()) == before


# What launchers say


@pytest.fixture
def rank_0(monkeypatch):
    """`rank_0(NAME="value")`: the verb in this process as rank 0 of 2, with these variables of a launcher; or None."""

    def started(**variables):
        for name in NO_RANKS:
            monkeypatch.delenv(name, raising=False)
        for name, value in ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"} | variables).items():
            monkeypatch.setenv(name, value)
        return runcast("execute", SCENARIOS / "tiny-2ranks.toml")

    return started


def test_a_port_in_use(rank_0):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = rank_0(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)

    assert done.returncode == 2
    assert done.stderr == f"error: MASTER_PORT = {port}: is in use on this machine; choose another port\n"


def test_a_launcher_that_names_no_port(rank_0):
    done = rank_0(MASTER_ADDR="127.0.0.1")

    assert done.returncode == 2
    assert done.stderr == "error: MASTER_PORT: must be set beside RANK and WORLD_SIZE, as torchrun does\n"


def test_a_rank_that_is_no_number(rank_0):
    done = rank_0(MASTER_ADDR="127.0.0.1", MASTER_PORT="1", RANK="first")

    assert (done.returncode, done.stderr) == (2, "error: RANK = 'first': must be a whole number\n")


# Real processes


def ranks_of(process):
    """The processes below one that are ranks, by their number."""
    found = {}
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            variables = child.environ()
        except psutil.Error:
            continue
        if "RANK" in variables and "python" in child.name() + child.exe():
            found[int(variables["RANK"])] = child
    return found


@contextmanager
def started(*command, size=4):
    """A run of so many ranks: its launcher. In the end none of them is there."""
    clean = {key: value for key, value in os.environ.items() if key not in NO_RANKS}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([str(word) for word in command], env=clean, cwd=ROOT, **pipes) as launcher:
        ranks = {}
        while launcher.poll() is None and len(ranks) < size:
            time.sleep(0.2)
            ranks = ranks_of(launcher)
        yield launcher
        launcher.wait(timeout=60)
    psutil.wait_procs(ranks.values(), timeout=10)
    assert [rank for rank in ranks.values() if rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.slow
def test_a_rank_that_is_killed_is_one_line_and_the_others_end(tmp_path):
    with started(sys.executable, "-m", FAULTY, 1, "SIGKILL", *STEP, "--out", tmp_path / "out") as launcher:
        _, said = launcher.communicate(timeout=120)

    line = "error: rank 1 was killed by SIGKILL, perhaps for lack of memory; the other ranks were ended\n"
    assert (launcher.returncode, said, list(tmp_path.iterdir())) == (2, line, [])


@pytest.mark.slow
def test_a_rank_that_stands_still_is_one_line_after_the_timeout():
    with started(sys.executable, "-m", FAULTY, 2, "SIGSTOP", *STEP) as launcher:
        _, said = launcher.communicate(timeout=120)

    assert (launcher.returncode, said.count("\n")) == (1, 1)
    assert "rank 2 does not answer (dead or stopped)" in said


@pytest.mark.slow
def test_a_rank_that_is_killed_under_torchrun():
    """Our line, unless torchrun ends the other ranks before they notice; then torchrun's own block."""
    with started(*TORCHRUN, FAULTY, 1, "SIGKILL", *STEP, *TWO, size=2) as launcher:
        _, said = launcher.communicate(timeout=120)

    ours = [line for line in said.splitlines() if line.startswith("error:")]
    assert [line for line in ours if not line.endswith("rank 1 does not answer (dead or stopped)")] == []
    assert len(ours) <= 1
    assert "SIGKILL" in said
    assert launcher.returncode != 0


@pytest.mark.slow
def test_a_rank_that_never_comes_is_named_with_what_it_does():
    script = Path(__file__).with_name("hung_rank.py"), SCENARIOS / "tiny-train-pp4.toml"
    done = torchrun(4, *script)
    ours = [line for line in done.stderr.splitlines() if line.startswith("error:")]

    assert (len(ours), done.returncode) == (1, 1)
    assert "all ranks answer: rank 2 is in 'loss s0 m0'" in ours[0]


@pytest.mark.slow
def test_ranks_end_with_a_launcher_that_is_killed():
    with started(RUNCAST, "execute", *STEP, *TWO, size=2) as launcher:
        launcher.kill()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_a_full_dev_shm_does_not_matter():
    """Memory that ranks share has no name in /dev/shm, and is not bounded by it."""
    mount = 'mount -t tmpfs -o size=4096 none /dev/shm && head -c 4096 /dev/zero > /dev/shm/full && exec "$@"'
    update = [RUNCAST, "execute", SCENARIOS / "tiny-2ranks.toml", "--set", "update.method=p2p"]
    command = ["unshare", "-m", "sh", "-c", mount, "sh", *map(str, update)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)

    assert (done.returncode, "0 wrong" in done.stdout) == (0, True), done.stderr
