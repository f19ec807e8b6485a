"""A real Slurm of one node while the tests of a file run: munged, slurmctld and slurmd, as whoever runs the tests."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from ..conftest import NEEDS

PACKAGES = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client"}
SBIN = "/usr/sbin"  # not on an ordinary user's PATH
UNDER_WAY = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"}

# One node, which has more CPUs than it may have; no cgroups; nothing but loopback. Ports that a program derives from
# the job's number shall not be those of another such Slurm on this machine.
CONF = """\
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
FirstJobId={first_job}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0
MpiDefault=none
KillWait=2
ReturnToService=2
NodeName=localhost NodeAddr=127.0.0.1 CPUs=8
PartitionName=all Nodes=localhost Default=YES MaxTime=10
"""


class Job(NamedTuple):
    """How a batch job ended: `state` is COMPLETED, FAILED, ...; `exit` is its script's code:signal."""

    state: str
    exit: str
    stdout: str
    stderr: str


class Slurm:
    """In `env`, Slurm's commands find this cluster, and `python` is the one that runs the tests."""

    def __init__(self, folder: Path):
        self.folder, self.jobs = folder, folder / "jobs"
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.idle: set[int] = set()  # the processes when there is no job
        foreign = ("SLURM", "SBATCH", "SRUN", "SCANCEL", "SQUEUE", "SINFO")  # pytest itself may run in a job
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        self.env["PATH"] = f"{Path(sys.executable).parent}:{self.env['PATH']}:{SBIN}"
        self.env["SLURM_CONF"] = f"{folder}/slurm.conf"

    def sbatch(self, *args: str | Path, timeout_s: float = 60, cwd: Path | None = None) -> Job:
        """Submits in `cwd` what `sbatch` makes of the arguments, and waits for its end."""
        options = ("--parsable", f"--output={self.jobs}/%j.out", f"--error={self.jobs}/%j.err")
        number = self.run("sbatch", *options, *args, cwd=cwd)
        ended = until(lambda: self.state(number)[0] not in UNDER_WAY, timeout_s)
        paths = (self.jobs / f"{number}.{kind}" for kind in ("out", "err"))
        job = Job(*self.state(number), *(path.read_text() if path.exists() else "" for path in paths))
        assert ended, f"after {timeout_s} s: {job}"
        return job

    def state(self, number: str) -> tuple[str, str]:
        """The state of a job, and its exit code and signal."""
        shown = dict(re.findall(r"(\w+)=(\S+)", self.run("scontrol", "--oneliner", "show", "job", number)))
        return shown["JobState"], shown["ExitCode"]

    def run(self, *command: str | Path, cwd: Path | None = None) -> str:
        """What a command prints."""
        done = subprocess.run(command, env=self.env, cwd=cwd or self.jobs, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def start(self) -> None:
        ports = free_ports(2)
        values = {"folder": self.folder, "ports": ports, "user": os.getuid(), "first_job": 1 + ports[0] % 10_000}
        (self.folder / "slurm.conf").write_text(CONF.format(**values))
        for name in ("jobs", "state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        places = {"key-file": "key", "socket": "socket", "pid-file": "pid", "seed-file": "seed"}
        options = (f"--{option}={self.folder}/munge.{end}" for option, end in places.items())
        self.daemon("munged", "--foreground", "--force", *options)  # force: the folder is closed to others
        assert until((self.folder / "munge.socket").exists, 10)
        self.daemon("slurmctld", "-D")
        self.daemon("slurmd", "-D", "-N", "localhost")
        assert until(lambda: self.run("sinfo", "--noheader", "--format=%T") == "idle", 20)
        self.idle = self.processes()

    def daemon(self, name: str, *args: str) -> None:
        """Should pytest be killed, the daemons end too; a job that runs then may not."""
        command = ("setpriv", "--pdeathsig", "TERM", name, *args)
        with (self.folder / f"{name}.log").open("wb") as log:
            self.daemons.append(subprocess.Popen(command, env=self.env, cwd=self.folder, stdout=log, stderr=log))

    def cancel(self) -> None:
        """Ends all jobs, and waits until nothing of them runs."""
        self.run("scancel", "--partition=all")
        assert until(lambda: not self.run("squeue", "--noheader") and self.processes() <= self.idle, 20)

    def stop(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        if not until(lambda: not self.processes(), 5):
            for process in self.processes():
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

    def processes(self) -> set[int]:
        """All of this cluster: daemons and their helpers are in its folder, tasks of jobs know its slurm.conf."""
        conf, found = f"SLURM_CONF={self.env['SLURM_CONF']}\0".encode(), set()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if (process / "cwd").readlink() == self.folder or conf in (process / "environ").read_bytes():
                    found.add(int(process.name))
            except OSError:  # ended meanwhile, or somebody else's
                continue
        return found

    def logs(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text()}" for log in sorted(self.folder.glob("*.log")))


def until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether the condition came true in time."""
    deadline = time.monotonic() + timeout_s
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return met


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture(scope="module")
def slurm_cluster() -> Iterator[Slurm]:
    for program, package in PACKAGES.items():
        if not shutil.which(program, path=f"{os.environ['PATH']}:{SBIN}"):
            pytest.skip(f"{NEEDS} {package}")
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:  # a short name: a socket's path has 108 bytes
        cluster = Slurm(Path(folder).resolve())
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
            print(cluster.logs())  # shown where it did not start


@pytest.fixture
def slurm(slurm_cluster: Slurm) -> Iterator[Slurm]:
    """The cluster of the file's tests, without jobs. Its logs are shown where the test fails."""
    yield slurm_cluster
    print(slurm_cluster.logs())
    slurm_cluster.cancel()
