"""A scenario of kind collective, run by real processes on Gloo: each size by each algorithm, checked and timed.

All processes start at one time of the common clock; a collective ends with its last process.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from ...simulator.answers.compare.spans import SUMMARY
from ...simulator.base.errors import UserError, fault
from ...simulator.base.files import write_atomic
from ...simulator.base.tables import align
from ...simulator.base.units import format_bytes
from ...simulator.collectives import MEASURED
from ...simulator.collectives.algorithms import algorithms
from ...simulator.collectives.algorithms.messages import Chunks, Group
from ...simulator.systems.collective.resolve import ResolvedCollective
from ...simulator.systems.collective.rows import Row
from .backend import Backend
from .blocks import Call, first_blocks, library, wrong_rows
from .content import available_bytes
from .exchanging import Messenger, Ways, make_ways
from .measured import make_folder
from .run import Clock, common_clock
from .watch import Watch, open_store
from .world import World, process_group

RUNS = 5
_LEAD_NS = 5_000_000
"""From telling the time of a start to the start."""

_COPIES = 4
"""Buffers of a process beside those of the algorithm: what the library reads and writes."""


@dataclass(frozen=True)
class Executed:
    """What one size by one algorithm took in each run, in seconds, and how many blocks of all ranks were wrong."""

    row: Row
    seconds: tuple[float, ...]
    wrong: int

    @property
    def median_s(self) -> float:
        """The median of all runs."""
        return median(self.seconds)


@dataclass(frozen=True)
class Start:
    """Starts of all processes at one time."""

    clock: Clock

    def time(self, act: Callable[[], object]) -> float:
        """Seconds from when the last process starts to act until the last one has ended."""
        start = torch.tensor([self._now_ns() + _LEAD_NS])
        dist.broadcast(start, 0)
        while (left_ns := int(start) - self._now_ns()) > 0:
            time.sleep(left_ns / 1e9)
        began_ns = self._now_ns()
        act()
        both = torch.tensor([began_ns, self._now_ns()])
        dist.all_reduce(both, dist.ReduceOp.MAX)
        return float(both[1] - both[0]) / 1e9

    def _now_ns(self) -> int:
        return time.perf_counter_ns() + self.clock.offset_ns


def processes(resolved: ResolvedCollective) -> int:
    """The processes that a scenario takes: the ranks of all groups, and one for each switch."""
    return resolved.gpus + _switches(resolved)


def _switches(resolved: ResolvedCollective) -> int:
    return max((one.chunks(resolved.net.group()).switches for one in resolved.chosen), default=0)


def check(resolved: ResolvedCollective, here: int) -> None:
    """Return if a scenario can be executed, with so many of its processes on this machine.

    Raises:
        UserError: several groups with switches, ranks in an order that the library does not know, jobs, or too little
            memory.
    """
    if jobs := resolved.keys.jobs:
        raise UserError(fault(resolved.where, "collective.jobs", len(jobs), "jobs are simulated, not executed"))
    if (groups := resolved.keys.groups) > 1 and _switches(resolved):
        raise UserError(fault(resolved.where, "collective.groups", groups, "with switches one group is executed"))
    if (op := resolved.keys.op) != "all_reduce" and resolved.keys.placement == "interleaved":
        raise UserError(
            fault(resolved.where, "collective.op", op, "ranks that interleave leaves execute all_reduce only")
        )
    needed = here * max(row.bytes * _copies(_chunks(resolved, row)[1]) for row in resolved.rows)
    available = available_bytes()
    if available is not None and needed > available:
        allowed = f"{here} processes here need {format_bytes(needed)}, but {format_bytes(available)} are available"
        raise UserError(fault(resolved.where, "collective.sizes", max(resolved.keys.sizes), allowed))


def _copies(chunks: Chunks) -> float:
    """The memory of a process over the bytes of its collective; a block has the memory of the longest one."""
    return (chunks.buffers + _COPIES) * (1.0 if chunks.weights is None else float(chunks.weights.max()))


def _chunks(resolved: ResolvedCollective, row: Row) -> tuple[Group, Chunks]:
    """The group of a row, and its messages; for the library those of any algorithm, which say what blocks there are."""
    known = algorithms(resolved.keys.op)
    group = resolved.net.group(resolved.keys.root, row.pieces)
    return group, known.get(row.algorithm, next(iter(known.values()))).chunks(group)


@dataclass(frozen=True)
class _Here:
    """What this process is: its place in its group, the processes of that group, and their own process group."""

    place: int
    members: Sequence[int]
    group: dist.ProcessGroup
    ways: Ways
    start: Start

    @property
    def is_rank(self) -> bool:
        """Whether it is no switch."""
        return self.place < self.group.size()


def _join(resolved: ResolvedCollective, world: World) -> _Here:
    """Make the process groups of all groups, as all processes must; switches belong to the only group."""
    start = Start(common_clock(world.rank, world.size))
    groups = [dist.new_group(list(members), world.timeout) for members in resolved.members]
    number = next((i for i, members in enumerate(resolved.members) if world.rank in members), 0)
    members = (*resolved.members[number], *range(resolved.gpus, world.size))
    return _Here(members.index(world.rank), members, groups[number], make_ways(world.timeout), start)


def execute_rows(resolved: ResolvedCollective, world: World, runs: int = RUNS) -> list[Executed]:
    """Run every size by every algorithm among peers, all groups at once; all processes return what it took.

    Process r is on GPU r. The fitted curve of a profile, `measured`, is run as the library's own collective.

    Raises:
        RunError: a peer is lost, or memory.
    """
    with process_group(), Watch(open_store(world), world) as watch:
        with watch.doing("the meeting before the run"):
            here = _join(resolved, world)
        found = []
        for row in resolved.rows:
            with watch.doing(f"{resolved.keys.op} of {format_bytes(row.bytes)} by {row.algorithm}"):
                found.append(_execute(resolved, row, here, runs))
        return found


def _execute(resolved: ResolvedCollective, row: Row, here: _Here, runs: int) -> Executed:
    op, (group, chunks), place, time_s = resolved.keys.op, _chunks(resolved, row), here.place, here.start.time
    data = first_blocks(op, group, chunks, place, row.bytes)
    none = Call(lambda: None, [])
    call = library(op, group, chunks, data, place, here.group, here.members[group.root]) if here.is_rank else none
    if row.algorithm == MEASURED:
        return Executed(row, tuple(time_s(call.start) for _ in range(runs)), 0)
    messenger = Messenger(chunks, place, here.ways, here.members)
    messenger.run(data)
    call.start()
    wrong = torch.tensor([wrong_rows(op, group, data, place, call.result) if here.is_rank else 0])
    dist.all_reduce(wrong)
    return Executed(row, tuple(time_s(lambda: messenger.run(data)) for _ in range(runs)), int(wrong))


COLUMNS = ("size (B)", "algorithm", "predicted (us)", "executed (us)", "fastest", "slowest", "ratio", "wrong blocks")


def lines(rows: Sequence[Executed]) -> Iterator[str]:
    """A table: predicted and executed seconds of each size by each algorithm, and their ratio."""
    yield from align([COLUMNS, *map(_cells, rows)], (0, 2, 3, 4, 5, 6, 7))


def _cells(one: Executed) -> tuple[str, ...]:
    times = (one.row.seconds, one.median_s, min(one.seconds), max(one.seconds))
    ratio = one.median_s / one.row.seconds if one.row.seconds else float("inf")
    micros = [f"{1e6 * each:.1f}" for each in times]
    return (str(one.row.bytes), one.row.algorithm, *micros, f"{ratio:.2f}", str(one.wrong))


@dataclass(frozen=True)
class ExecutedRows:
    """All rows of a scenario, executed."""

    resolved: ResolvedCollective
    rows: Sequence[Executed]

    def lines(self) -> Iterator[str]:
        """The table of sizes and algorithms."""
        return lines(self.rows)

    @property
    def fault(self) -> str | None:
        """What is wrong, in words."""
        wrong = sum(one.wrong for one in self.rows)
        return f"{wrong} blocks hold wrong numbers" if wrong else None

    def write(self, folder: Path) -> None:
        """Save all runs of all rows, in SI units, and what they are of, in a folder, which is made if need be.

        Raises:
            UserError: it cannot be written there.
        """
        make_folder(folder)
        write_atomic(folder / SUMMARY, json.dumps(_summary(self.rows, self.resolved), indent=2).encode() + b"\n")


@dataclass(frozen=True)
class CollectiveExecution:
    """A resolved collective: a process for each rank, and one for each switch."""

    resolved: ResolvedCollective

    @property
    def processes(self) -> int:
        """How many processes run it."""
        return processes(self.resolved)

    def check(self, here: Sequence[int], device: str) -> None:
        """Raise a UserError if it cannot be executed by these processes of this machine."""
        if device != "cpu":
            raise UserError(f"--device {device}: collectives are executed on Gloo only")
        check(self.resolved, len(here))

    def run(self, world: World, backend: Backend) -> ExecutedRows | None:
        """Run every row among peers; rank 0 returns what it took.

        Raises:
            UserError: another number of processes was started.
        """
        if world.size != self.processes:
            parts = f"{self.resolved.gpus} ranks and {_switches(self.resolved)} switches"
            raise UserError(f"{self.resolved.where}: takes {parts}, but {world.size} processes were started")
        rows = execute_rows(self.resolved, world)
        return None if world.rank else ExecutedRows(self.resolved, rows)


def _summary(rows: Sequence[Executed], resolved: ResolvedCollective) -> dict[str, Any]:
    return {
        "name": resolved.scenario.name,
        "scenario_hash": resolved.hash,
        "op": resolved.keys.op,
        "ranks": len(resolved.ranks),
        "collectives": "gloo",
        "torch": torch.__version__,
        "measured_s": sum(one.median_s for one in rows),
        "predicted_s": sum(one.row.seconds for one in rows),
        "checked_bytes": sum(one.row.bytes for one in rows if one.row.algorithm != MEASURED) * len(resolved.ranks),
        "wrong": sum(one.wrong for one in rows),
        "rows": [
            {
                "bytes": one.row.bytes, "algorithm": one.row.algorithm, "pieces": one.row.pieces,
                "predicted_s": one.row.seconds, "executed_s": one.median_s, "runs_s": one.seconds, "wrong": one.wrong,
            }
            for one in rows
        ],
    }  # fmt: skip
