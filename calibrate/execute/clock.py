"""One time for all ranks: rank 0's monotonic clock."""

import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

CLOCK_ROUNDS = 50


@dataclass(frozen=True)
class Clock:
    """What to add to this process's `perf_counter_ns` to read rank 0's, and by how much that may be wrong."""

    offset_ns: int
    bound_ns: int


def common_clock(rank: int, size: int) -> Clock:
    """Agree on rank 0's clock: exact on its own machine (one monotonic clock for all), by ping-pong from others."""
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
