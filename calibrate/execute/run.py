"""One rank of a Program that is executed, and what it measured, on one time for all: rank 0's monotonic clock."""

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from .backend import Backend
from .lanes import run_lanes
from .measured import Checked, Measured, RankReport
from .parts import Parts
from .watch import Watch, open_store
from .world import Store, World, process_group

CLOCK_ROUNDS = 50


@dataclass(frozen=True)
class Clock:
    """What to add to this process's `perf_counter_ns` to read rank 0's, and by how much that may be wrong."""

    offset_ns: int
    bound_ns: int


class RankActor(Protocol):
    """One rank of a Program that is executed: what it does of each op, and what came of it."""

    def meet(self) -> None:
        """What ranks tell each other before they begin, once; all call it."""

    def act(self, op: int) -> None:
        """Do this rank's part of an op, or issue it on the calling lane's stream."""

    def check(self) -> Checked:
        """Compare what is there in the end with what must be; all call it."""

    def close(self) -> None:
        """Let go of what others may use."""


def execute_program(
    parts: Parts, world: World, backend: Backend, make_actor: Callable[[Store], RankActor], about: Mapping[str, Any]
) -> Measured | None:
    """Run this rank's parts of a Program among its peers; rank 0 returns what all of them measured.

    `about` is what a summary says of it beside ranks and libraries.

    Raises:
        RunError: a peer is lost, or memory.
    """
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with process_group():
        store, clock = open_store(world), common_clock(world.rank, world.size)
        with Watch(store, world) as watch, ExitStack() as stack:
            with watch.doing("the meeting before the run"):
                actor = stack.enter_context(closing(make_actor(store)))
                actor.meet()
                dist.barrier()  # every rank has filled what it owns: others may read it
            began = time.perf_counter_ns() + clock.offset_ns
            stamps = run_lanes(
                parts.lanes(world.rank), parts.rank_parts(world.rank), watch.act(actor.act, parts.program.names),
                world.rank, store, backend.marks(clock.offset_ns), backend.lane,
            )  # fmt: skip
            with watch.doing("the check after the run"):
                report = RankReport(began, clock.bound_ns, stamps, actor.check())
                reports: list[Any] = [None] * world.size
                dist.all_gather_object(reports, report)
    on_cuda = backend.device.type == "cuda"
    machine = {
        "started": started,
        "machine": f"{os.cpu_count()} cores, {_processor()}",
        "ranks": world.size,
        "device": torch.cuda.get_device_name(backend.device) if on_cuda else backend.device.type,
        "collectives": backend.collectives,
        "torch": torch.__version__,
    }
    return Measured(parts, reports, {**about, **machine}) if world.rank == 0 else None


def _processor() -> str:
    """What this machine's processor is called."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
    return platform.processor() or platform.machine()


def common_clock(rank: int, size: int) -> Clock:
    """Agree on rank 0's clock: exact on its own machine (one monotonic clock for all), by ping-pong from others."""
    boot = Path("/proc/sys/kernel/random/boot_id")  # names the running kernel, whose monotonic clock all read
    machines: list[str] = [""] * size
    dist.all_gather_object(machines, boot.read_text() if boot.exists() else platform.node())
    away = [peer for peer in range(size) if machines[peer] != machines[0]]
    return ping_pong(rank, away) if rank == 0 or rank in away else Clock(0, 0)


def ping_pong(rank: int, peers: Sequence[int]) -> Clock:
    """Between rank 0 and its peers: the fastest round trip's middle is one time on both."""
    if rank:
        return _answer()
    for peer in peers:
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
    return Clock(0, 0)


def _answer() -> Clock:
    for _ in range(CLOCK_ROUNDS):
        dist.recv(torch.zeros(1, dtype=torch.int64), 0)
        dist.send(torch.tensor([time.perf_counter_ns()]), 0)
    found = torch.zeros(2, dtype=torch.int64)
    dist.recv(found, 0)
    return Clock(int(found[0]), int(found[1]))
