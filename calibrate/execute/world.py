"""The processes of a run: start them, join them, put their clocks on one time, carry signals between them."""

import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from uuid import uuid4

TIMEOUT = timedelta(minutes=10)  # of a collective or a signal: longer means that a rank is lost
CLOCK_ROUNDS = 50


@dataclass(frozen=True)
class World:
    """Where this process stands, as torchrun says it in the environment."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    @classmethod
    def from_environment(cls) -> "World | None":
        """None outside torchrun and its like."""
        keys = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
            return None
        return cls(*(int(os.environ.get(key, "0" if "RANK" in key else "1")) for key in keys))


def spawn(size: int, module: str, arguments: Sequence[str]) -> int:
    """Run `python -m module arguments` as `size` ranks on this machine; returns the exit code of the first to fail."""
    shared = os.environ | {
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    command = [sys.executable, "-m", module, *arguments]
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(size):
            ranks.append(subprocess.Popen(command, env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}))
        return _first_failure(ranks)
    finally:
        _end(ranks)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _first_failure(ranks: Sequence[subprocess.Popen[bytes]]) -> int:
    while None in (codes := [rank.poll() for rank in ranks]) and not any(codes):
        time.sleep(0.02)
    return next((code for code in codes if code), 0)


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    """Whoever still runs has lost its peers: ask it to leave, then make it."""
    for rank in ranks:
        rank.terminate()
    for rank in ranks:
        try:
            rank.wait(timeout=5)
        except subprocess.TimeoutExpired:
            rank.kill()


@contextmanager
def joined() -> Iterator[None]:
    """Inside it the default process group exists: Gloo over all ranks, for what the run itself has to tell.

    One that exists already is used, and stays.
    """
    import torch.distributed as dist

    if dist.is_initialized():
        yield
        return
    dist.init_process_group("gloo", timeout=TIMEOUT)
    try:
        yield
    finally:
        dist.destroy_process_group()


def run_name() -> str:
    """A name for this run that no other run of these processes has, the same on all ranks."""
    import torch.distributed as dist

    name = [uuid4().hex]
    dist.broadcast_object_list(name, src=0)
    return name[0]


class StoreSignals:
    """Signals through the key-value store of the rendezvous; a client of its own for each thread that uses any."""

    def __init__(self, run: str, rank: int):
        self.run, self.rank = run, rank

    def send(self, op: int, end_ns: int) -> None:
        """Tell the others that this rank's part of the op ended then."""
        self._store.set(self._key(op, self.rank), str(end_ns))

    def wait(self, op: int, rank: int) -> int:
        """Wait until that rank's part of the op has ended, and return when it did."""
        return int(self._store.get(self._key(op, rank)))

    @cached_property
    def _store(self):  # type: ignore[no-untyped-def]
        from torch.distributed import TCPStore

        return TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=TIMEOUT)

    def _key(self, op: int, rank: int) -> str:
        return f"{self.run}/{op}/{rank}"


@dataclass(frozen=True)
class Clock:
    """What to add to this process's `perf_counter_ns` to read rank 0's, and by how much that may be wrong."""

    offset_ns: int
    bound_ns: int


def common_clock(rank: int, size: int) -> Clock:
    """Agree on rank 0's clock: exact on its own machine (one monotonic clock for all), by ping-pong from others."""
    import torch.distributed as dist

    machines: list[str] = [""] * size
    dist.all_gather_object(machines, _machine())
    away = [peer for peer in range(size) if machines[peer] != machines[0]]
    return ping_pong(rank, away) if rank == 0 or rank in away else Clock(0, 0)


def ping_pong(rank: int, peers: Sequence[int]) -> Clock:
    """Between rank 0 and its peers: the fastest round trip's middle is one time on both."""
    if rank:
        return _answer()
    for peer in peers:
        _ask(peer)
    return Clock(0, 0)


def _ask(peer: int) -> None:
    import torch
    import torch.distributed as dist

    rounds = []
    for _ in range(CLOCK_ROUNDS):
        there = torch.zeros(1, dtype=torch.int64)
        sent = time.perf_counter_ns()
        dist.send(there, peer)
        dist.recv(there, peer)
        back = time.perf_counter_ns()
        rounds.append((back - sent, (sent + back) // 2 - int(there)))
    trip, offset = min(rounds)
    dist.send(torch.tensor([offset, trip // 2]), peer)


def _answer() -> Clock:
    import torch
    import torch.distributed as dist

    for _ in range(CLOCK_ROUNDS):
        asked = torch.zeros(1, dtype=torch.int64)
        dist.recv(asked, 0)
        dist.send(torch.tensor([time.perf_counter_ns()]), 0)
    found = torch.zeros(2, dtype=torch.int64)
    dist.recv(found, 0)
    return Clock(int(found[0]), int(found[1]))


def _machine() -> str:
    """Names the running kernel, on which all processes share one monotonic clock."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text() if boot.exists() else platform.node()
