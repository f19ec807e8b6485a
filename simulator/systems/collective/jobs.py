"""Jobs that exchange on one fabric at the same time: what each takes alone, beside the others, and who slows it down.

A job has an op, a size, an algorithm, ranks and a start of its own. Messages of all jobs are flows that share links, as
those of `groups` do. What one job takes from another is a difference: how much sooner it would end without that one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from ...base.errors import UserError
from ...collectives import Machines
from ...collectives.algorithms import algorithms
from ...collectives.algorithms.hops import ClusterNet
from ...collectives.algorithms.messages import Algorithm, Term
from ...engine import simulate
from .lower import EXCHANGE, Exchange, has_more_messages, lower
from .resolve import MOST_FLOWS, ResolvedCollective
from .rows import Row, make_row
from .scenario import CollectiveKeys, Job

_ROUNDING = 1e-9


@dataclass(frozen=True)
class JobRow(Row):
    """One job: `seconds` from its start on beside the others, `alone_s` without them.

    `slowed_by`: seconds by which each other job makes it longer, which is by how much sooner it ends without that one.
    """

    job: str = ""
    op: str = ""
    gpus: int = 0
    start_s: float = 0.0
    alone_s: float = 0.0
    slowed_by: Mapping[str, float] = field(default_factory=dict)

    @property
    def end_s(self) -> float:
        """When it ends."""
        return self.start_s + self.seconds


@dataclass(frozen=True)
class ResolvedJob(ResolvedCollective):
    """One job as a collective of its own groups, on the machines of `whole`."""

    number: int = 0
    whole: "ResolvedJobs | None" = field(default=None, compare=False)
    groups: tuple[tuple[int, ...], ...] = ()

    @property
    def table(self) -> Job:
        """Its table."""
        assert self.whole is not None
        return self.whole.keys.jobs[self.number]

    @property
    def title(self) -> str:
        """Its name in the report."""
        return self.table.name or f"job {self.number}"

    @cached_property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """The GPUs of each of its groups."""
        return self.groups

    @cached_property
    def hardware(self) -> Machines:
        """The machines of the cluster."""
        assert self.whole is not None
        return self.whole.hardware

    @cached_property
    def algorithm(self) -> Algorithm:
        """Its algorithm, which its ranks can do."""
        found = algorithms(self.keys.op)[self.keys.algorithm]
        why = found.refuses(self.net.group())
        if not why and found.in_switches:
            why = "its switches have no links of their own, which jobs could share"
        if why:
            raise self._fault(f"collective.jobs.{self.number}.algorithm", found.name, why)
        return found

    @cached_property
    def nets(self) -> tuple[ClusterNet, ...]:
        """The hops between the ranks of each group."""
        try:
            nets = tuple(ClusterNet(self.hardware, ranks, self.keys.op) for ranks in self.members)
        except UserError as error:
            ranks = self.table.ranks or self.table.gpus or len(self.ranks)
            raise self._fault(f"collective.jobs.{self.number}.ranks", ranks, str(error)) from None
        if nets[0].islands > 1:
            self._check_nics()
        return nets

    @cached_property
    def launch_s(self) -> float:
        """When its first message may begin."""
        return self.table.start + self.net.launch_s

    def exchanges(self, begin_s: float) -> list[Exchange]:
        """Its messages, if time begins at `begin_s`."""
        size, group = self.table.bytes, self._cut(self.algorithm, self.table.bytes)
        chunks, start_s = self.algorithm.chunks(group), self.launch_s - begin_s
        return [Exchange(chunks, group, size, net.run_by(self.algorithm), start_s) for net in self.nets]

    def row(self, seconds: float, alone_s: float, slowed_by: Mapping[str, float]) -> JobRow:
        """Its row of the table."""
        size, algorithm = self.table.bytes, self.algorithm
        group, _, _, latency_s = self.net.formula(algorithm, size, self.table.root, self.table.pieces)
        basis = self.net.run_by(algorithm).basis(seconds, latency_s, None if self._no_curve else self._curve(size))
        plain = make_row(size, algorithm.name, "chunks", seconds, basis, self.bus_factor, group.pieces, latency_s)
        return JobRow(
            **vars(plain), job=self.title, op=self.keys.op, gpus=sum(map(len, self.members)),
            start_s=self.table.start, alone_s=alone_s, slowed_by=slowed_by,
        )  # fmt: skip


@dataclass(frozen=True)
class ResolvedJobs(ResolvedCollective):
    """Several jobs on one cluster."""

    @cached_property
    def jobs(self) -> tuple[ResolvedJob, ...]:
        """Each of them, with its groups of ranks."""
        return tuple(self._job(number, ranks) for number, ranks in enumerate(self._ranks_of_jobs))

    def _job(self, number: int, ranks: Sequence[int]) -> ResolvedJob:
        said = self.keys.jobs[number]
        if len(ranks) % said.groups or len(ranks) < 2 * said.groups:
            allowed = f"expected groups of 2 GPUs or more, as many in each (it has {len(ranks)} GPUs)"
            raise self._fault(f"collective.jobs.{number}.groups", said.groups, allowed)
        each = len(ranks) // said.groups
        if said.root >= each:
            allowed = f"there are {each} ranks in a group, numbered from 0"
            raise self._fault(f"collective.jobs.{number}.root", said.root, allowed)
        op = said.op or self.keys.op
        keys = CollectiveKeys(
            op=op, sizes=(said.bytes,), algorithm=said.algorithm or next(iter(algorithms(op))), level="chunks",
            root=said.root, pieces=said.pieces,
        )  # fmt: skip
        groups = tuple(tuple(ranks[first : first + each]) for first in range(0, len(ranks), each))
        scenario = self.scenario.model_copy(update={"collective": keys})
        return ResolvedJob(scenario, self.where, self.memo, number, self, groups)

    @cached_property
    def _ranks_of_jobs(self) -> list[tuple[int, ...]]:
        """The GPUs of each job: those that it names, or what placement deals out of the others."""
        of: dict[int, int] = {}
        for number, job in enumerate(self.keys.jobs):
            for rank in job.ranks or ():
                self._check_rank(number, rank, of)
        left = [[gpu for gpu in unit if gpu not in of] for unit in self._units]
        wanted = self._wanted(sum(map(len, left)))
        dealt = _deal(left, wanted, in_turn=self.keys.placement in ("scattered", "rails"))
        return [job.ranks or tuple(dealt[number]) for number, job in enumerate(self.keys.jobs)]

    def _check_rank(self, number: int, rank: int, of: dict[int, int]) -> None:
        key, given, there = f"collective.jobs.{number}.ranks", self.keys.jobs[number].ranks, self.cluster.n_gpus
        if rank >= there:
            raise self._fault(key, given, f"{self.scenario.nodes} nodes have {there} GPUs, numbered from 0")
        if of.setdefault(rank, number) != number:
            raise self._fault(key, given, f"GPU {rank} is one of jobs.{of[rank]}, too: a GPU is in one job")

    def _wanted(self, left: int) -> dict[int, int]:
        """How many GPUs each job without ranks gets."""
        said = {number: job.gpus for number, job in enumerate(self.keys.jobs) if job.ranks is None}
        open_, rest = [number for number, gpus in said.items() if gpus is None], left
        for number, gpus in said.items():
            rest -= gpus or 0
            if rest < 0:
                raise self._fault(f"collective.jobs.{number}.gpus", gpus, f"{rest + (gpus or 0)} GPUs are left for it")
        if open_ and (rest % len(open_) or not rest):
            allowed = f"{rest} GPUs are left, which is no even share for {len(open_)} jobs without ranks and gpus"
            raise self._fault("collective.jobs", len(self.keys.jobs), allowed)
        return {number: rest // len(open_) if gpus is None else gpus for number, gpus in said.items()}

    @property
    def _units(self) -> list[list[int]]:
        """GPUs in the order in which they are dealt out, by what stays together."""
        nodes: list[int] = list(range(self.cluster.n_nodes))
        if self.keys.placement == "interleaved":
            nodes = self._nodes_across_leaves
        of_nodes = [list(self.cluster.gpus_of(node)) for node in nodes]
        return [[gpu] for gpu in chain(*of_nodes)] if self.keys.placement == "rails" else of_nodes

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """A row for each job."""
        return self.job_rows

    @cached_property
    def job_rows(self) -> tuple[JobRow, ...]:
        """A row for each job."""
        self._check_messages()
        return tuple(map(self._row_of, self.jobs))

    def _row_of(self, job: ResolvedJob) -> JobRow:
        own, every = job.number, frozenset(range(len(self.jobs)))
        beside_s = self._ends[every][own]
        sooner_s = {other.title: beside_s - self._ends[every - {other.number}][own]
                    for other in self.jobs if other is not job}  # fmt: skip
        slowed_by = {name: seconds for name, seconds in sooner_s.items() if seconds > _ROUNDING * beside_s}
        return job.row(beside_s, self._ends[frozenset({own})][own], slowed_by)

    @cached_property
    def _ends(self) -> dict[frozenset[int], dict[int, float]]:
        """Seconds of each job by the jobs that are there: all of them, all but one, one alone."""
        every = frozenset(range(len(self.jobs)))
        alone = [frozenset({number}) for number in every]
        there = {every, *alone, *(every - one for one in alone)} - {frozenset()}
        return {some: self._seconds([self.jobs[number] for number in sorted(some)]) for some in there}

    def _check_messages(self) -> None:
        rounds = (one.chunks.rounds() for job in self.jobs for one in job.exchanges(job.launch_s))
        if has_more_messages(chain.from_iterable(rounds), MOST_FLOWS):
            allowed = f"at most {MOST_FLOWS:,} messages share links, these have more: fewer ranks or pieces"
            raise self._fault("collective.jobs", len(self.jobs), allowed)

    def _seconds(self, jobs: Sequence[ResolvedJob]) -> dict[int, float]:
        """Seconds of each of these jobs from its start on, if there are no others."""
        begin_s = min(job.launch_s for job in jobs)
        owners, exchanges = zip(*((job, one) for job in jobs for one in job.exchanges(begin_s)), strict=True)
        program, costs = lower(self.cluster, self.hardware.capacity, exchanges)
        end_s = np.zeros(len(exchanges))
        np.maximum.at(end_s, program.tags[EXCHANGE], simulate(program, costs).end_s)
        found: dict[int, float] = {}
        for job, end in zip(owners, end_s.tolist(), strict=True):
            found[job.number] = max(found.get(job.number, 0.0), begin_s + end - job.table.start)
        return found

    @cached_property
    def best(self) -> Row:
        """The job that ends last."""
        return max(self.job_rows, key=lambda row: row.end_s)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The GPUs of all jobs."""
        return tuple(rank for job in self.jobs for ranks in job.members for rank in ranks)

    @cached_property
    def terms(self) -> list[tuple[Term, float]]:
        """None: every message is simulated."""
        return []

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Assumptions, for the report."""
        unusual = (f"{job.title}: {note}" for job in self.jobs if (note := job.algorithm.notes(job.net.group())))
        return (*self.scenario.notes, *self.cluster.notes, *unusual)


def _deal(units: list[list[int]], wanted: dict[int, int], *, in_turn: bool) -> dict[int, list[int]]:
    """GPUs for each number: one after the other takes what it wants, or units are dealt out in turn."""
    found: dict[int, list[int]] = {number: [] for number in wanted}
    turns = _turns(found, wanted, in_turn=in_turn)
    for unit in units:
        while unit and (number := next(turns, None)) is not None:
            room = wanted[number] - len(found[number])
            found[number] += unit[:room]
            unit = unit[room:]
    return found


def _turns(found: Mapping[int, list[Any]], wanted: Mapping[int, int], *, in_turn: bool) -> Iterator[int]:
    """Who gets the next unit: the first one that wants more, or each of those in turn."""
    while any(len(found[number]) < many for number, many in wanted.items()):
        for number, many in wanted.items():
            while len(found[number]) < many:
                yield number
                if in_turn:
                    break


def resolve(scenario: Any, where: str = "scenario", memo: Any = None) -> ResolvedCollective:
    """The resolved collective, or the jobs of one."""
    kind = ResolvedJobs if scenario.collective.jobs else ResolvedCollective
    return kind(scenario, where) if memo is None else kind(scenario, where, memo)
