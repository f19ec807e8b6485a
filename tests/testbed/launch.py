"""Processes on the hosts of a testbed: one rank on each, with the variables that torchrun gives its ranks."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .hosts import Bed

ROOT = Path(__file__).parents[2]
PORT = 29511  # hosts are ours alone: every port is free


_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "8000000000", "MALLOC_ARENA_MAX": "1"}
"""Ranks keep the memory that they free, as allocators on GPUs do: that of a page's first use would be measured, too."""

_START_S, _RUN_S = 240.0, 20.0
"""Seconds until ranks have met, and of a run on average: what takes longer is ended."""

Took = tuple[list[float], int, dict[str, float]]
"""What `ranks` tells of a scenario."""


class RankFailedError(RuntimeError):
    """A rank ended with an error, or not in time; it says what the rank printed."""


def run_ranks(bed: Bed, command: Sequence[str], folder: Path, limit_s: float = 120.0) -> str:
    """Run a command on every host, and wait for all; what rank 0 printed. Output goes to files in a folder.

    `setpriv` ends a rank when this process ends, however it does.

    Raises:
        RankFailedError: of the first rank that failed, or that all together took too long.
    """
    hosts = range(bed.topology.hosts)
    return _run(bed, [command] * len(hosts), [_environment(bed, rank) for rank in hosts], folder, limit_s)


def run_alone(bed: Bed, commands: Sequence[Sequence[str]], folder: Path, limit_s: float = 120.0) -> str:
    """Run a command on each host, all at once, each a world of its own; what host 0 printed.

    Raises:
        RankFailedError: as `run_ranks`.
    """
    alone = {"RANK": "0", "WORLD_SIZE": "1", "GROUP_RANK": "0"}
    own = [_environment(bed, host) | alone | {"MASTER_ADDR": bed.address(host)} for host in range(len(commands))]
    return _run(bed, commands, own, folder, limit_s)


def _run(
    bed: Bed, commands: Sequence[Sequence[str]], environments: Sequence[dict[str, str]], folder: Path, limit_s: float
) -> str:
    outputs = [folder / f"rank{rank}.txt" for rank in range(len(commands))]
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank, (command, own, output) in enumerate(zip(commands, environments, outputs, strict=True)):
            with output.open("wb") as file:
                ranks.append(subprocess.Popen(_start(bed, rank, command), cwd=ROOT, env=own, stdout=file,
                                              stderr=subprocess.STDOUT))  # fmt: skip
        _wait(ranks, outputs, limit_s)
        return outputs[0].read_text()
    finally:
        for process in ranks:
            process.kill()
            process.wait()


def execute(bed: Bed, scenarios: Sequence[Path], folder: Path, runs: int) -> list[Took]:
    """Run scenarios in turn on a testbed, each so often; what each took."""
    listed, out = folder / "cases.json", folder / "took.json"
    listed.write_text(json.dumps([str(path) for path in scenarios]))
    command = ["-m", "tests.testbed.ranks", str(listed), str(runs), str(out)]
    run_ranks(bed, command, folder, _START_S + _RUN_S * runs * len(scenarios))
    found: list[Took] = json.loads(out.read_text())
    return found


def _start(bed: Bed, rank: int, command: Sequence[str]) -> list[str]:
    return ["setpriv", "--pdeathsig", "KILL", *bed.enter(rank), sys.executable, *command]


def _environment(bed: Bed, rank: int) -> dict[str, str]:
    own = {
        "RANK": str(rank), "WORLD_SIZE": str(bed.topology.hosts), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(rank), "MASTER_ADDR": bed.address(0), "MASTER_PORT": str(PORT),
        "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR",
        **_KEEP_MEMORY,
    }  # fmt: skip
    return os.environ | own


def _wait(ranks: Sequence[subprocess.Popen[bytes]], outputs: Sequence[Path], limit_s: float) -> None:
    end = time.monotonic() + limit_s
    while None in (codes := [rank.poll() for rank in ranks]) and not any(codes):
        if time.monotonic() > end:
            raise RankFailedError(f"ranks took longer than {limit_s:g} s: {_tail(outputs[codes.index(None)])}")
        time.sleep(0.05)
    if failed := [rank for rank, code in enumerate(codes) if code]:
        raise RankFailedError(f"rank {failed[0]} failed: {_tail(outputs[failed[0]])}")


def _tail(output: Path) -> str:
    return output.read_text(errors="replace")[-2000:]
