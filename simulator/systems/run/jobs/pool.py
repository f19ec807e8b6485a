"""A pool of GPUs with a queue of jobs, as SimPy processes: jobs come, wait, run, are preempted, and lose work.

The scheduler says who goes next; here time passes. All that happens at one time comes before the scheduler looks.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
from simpy import Environment, Event, Interrupt, Process
from simpy.events import ProcessGenerator

from ....base.errors import UserError, fault
from ..history import History, Recorder
from ..outages import Away, Outage
from .chart import PoolChart
from .placement import Nodes, Pack, Places
from .scheduler import Job, Policy, Scheduler
from .shares import PoolLinks


@dataclass(frozen=True)
class PoolPlan:
    """Nodes, jobs, and who goes first.

    `preempt` is for policy priority, `weights` are shares of users for policy fair (1 if not named). All jobs share a
    fabric and a store of these capacities. A failure kills the jobs on its node; failures are in the order of time,
    and may be without end. `notes` are lines for the report.

    Raises:
        UserError: a job needs more GPUs than there are.
    """

    gpus_per_node: tuple[int, ...]
    jobs: tuple[Job, ...]
    policy: Policy = "fifo"
    pack: Pack = "nodes"
    preempt: bool = False
    weights: Mapping[str, float] = field(default_factory=dict)
    fabric_bytes_per_s: float = inf
    store_bytes_per_s: float = inf
    failures: Iterable[Outage] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.jobs
        gpus = sum(self.gpus_per_node)
        if large := [job for job in self.jobs if job.gpus > gpus]:
            allowed = f"the pool has {gpus} GPUs, so this job can never start"
            raise UserError(fault("jobs", f"{large[0].name}: gpus", large[0].gpus, allowed))


@dataclass(frozen=True)
class JobRecord:
    """A job that ended; `start_s` is its first start.

    `waited_s` in the queue and `ran_s` on GPUs, with restarts, are sums over all its attempts. `lost_s` of its work
    were undone when it was `preempted`, or a node of it `failed`, so often.
    """

    name: str
    user: str
    gpus: int
    submit_s: float
    start_s: float
    end_s: float
    waited_s: float
    ran_s: float
    lost_s: float
    preempted: int
    failed: int


def run_pool(plan: PoolPlan) -> tuple[History, tuple[JobRecord, ...]]:
    """Run all jobs to their ends; their records are in the order of the plan's jobs.

    A History's steps are jobs, its samples useful GPU-seconds, its breakdown the mean over the GPUs of the pool ("wait"
    is what shared links cost). Counts: preemptions, failures (of jobs), utilization (the share of GPU time in which a
    job runs), and mean and 95th percentile of the seconds that a job waits in the queue.
    """
    return _Pool(plan).run()


@dataclass(eq=False, slots=True)
class _Task:
    """A job on its way: its wait or attempt of now, the seconds of its work that are saved, and sums for its record."""

    number: int
    job: Job
    process: Process | None = None
    turn: Event | None = None  # happens when the scheduler starts it
    work: Event | None = None  # its end
    queued_s: float = 0.0
    began_s: float = 0.0
    restart_s: float = 0.0  # before it works
    saved_s: float = 0.0
    first_s: float = inf
    end_s: float = inf
    waited_s: float = 0.0
    ran_s: float = 0.0
    lost_s: float = 0.0
    preempted: int = 0
    failed: int = 0

    @property
    def demand(self) -> tuple[float, float]:
        """What it moves on the fabric and on the store, in bytes per second."""
        return self.job.network_bytes_per_s, self.job.storage_bytes_per_s

    def save(self, worked_s: float) -> float:
        """Save work up to the last checkpoint; the seconds that are lost."""
        done_s = self.saved_s + worked_s
        self.saved_s = max(self.saved_s, done_s - done_s % self.job.checkpoint_s)
        return done_s - self.saved_s

    def record(self) -> JobRecord:
        """What became of it."""
        return JobRecord(
            name=self.job.name,
            user=self.job.user,
            gpus=self.job.gpus,
            submit_s=self.job.at_s,
            start_s=self.first_s,
            end_s=self.end_s,
            waited_s=self.waited_s,
            ran_s=self.ran_s,
            lost_s=self.lost_s,
            preempted=self.preempted,
            failed=self.failed,
        )


class _Pool:
    def __init__(self, plan: PoolPlan):
        self._plan, self._env, self._recorder = plan, Environment(), Recorder()
        nodes = Nodes(plan.gpus_per_node, plan.pack)
        self._scheduler = Scheduler(plan.jobs, nodes, plan.policy, plan.preempt, plan.weights)
        self._links = PoolLinks(self._env, plan.fabric_bytes_per_s, plan.store_bytes_per_s)
        self._chart = PoolChart(self._recorder, plan.gpus_per_node, [job.name for job in plan.jobs])
        self._tasks = [_Task(number, job) for number, job in enumerate(plan.jobs)]
        self._away: dict[int, Away] = {}  # nodes that are away
        self._part: dict[int, tuple[str, float]] = {}  # the cause of each for now, and since when
        self._gpu_s: dict[str, float] = defaultdict(float)  # by cause
        self._left, self._changed, self._end = len(plan.jobs), False, self._env.event()

    def run(self) -> tuple[History, tuple[JobRecord, ...]]:
        """Run until the last job ends."""
        self._env.process(self._arrive())
        self._env.process(self._fail())
        self._env.run(until=self._end)
        records = tuple(task.record() for task in self._tasks)
        return self._history(records), records

    def _arrive(self) -> ProcessGenerator:
        """Jobs come."""
        for task in sorted(self._tasks, key=lambda task: task.job.at_s):
            if task.job.at_s > self._env.now:
                yield self._env.timeout(task.job.at_s - self._env.now)
            task.process = self._env.process(self._live(task))

    def _live(self, task: _Task) -> ProcessGenerator:
        """A job waits and runs until it has done all its work."""
        while task.end_s == inf:
            turn = self._join_queue(task)
            try:
                yield turn
                if task.restart_s:
                    yield self._env.timeout(task.restart_s)
                task.work = self._work(task)
                yield task.work
                task.end_s = self._env.now
                self._scheduler.release(task.number, task.end_s)
                self._look()
            except Interrupt:
                pass  # whoever interrupts a job has taken its GPUs
            self._account(task)
        self._left -= 1
        if not self._left:
            self._end.succeed()

    def _work(self, task: _Task) -> Event:
        """The end of what is left of a job's work."""
        left_s = task.job.time_s - task.saved_s
        return self._links.start(left_s, task.demand) if any(task.demand) else self._env.timeout(left_s)

    def _fail(self) -> ProcessGenerator:
        """Nodes fail; a failure of one that is away may prolong that."""
        for outage in self._plan.failures:
            yield self._env.timeout(max(outage.at_s - self._env.now, 0.0))
            node = outage.place
            if node in self._away:
                self._scheduler.open(node)
            else:
                self._kill(node)
                self._away[node] = Away()
                self._env.process(self._repair(node))
            self._away[node].add(outage)
            self._scheduler.close(node, self._env.now, self._away[node].end_s)
            self._look()

    def _repair(self, node: int) -> ProcessGenerator:
        """A node is noticed to be away, and comes back."""
        while part := self._away[node].part(self._env.now):
            cause, end_s = part
            self._part[node] = cause, self._env.now
            yield self._env.timeout(end_s - self._env.now)
            self._count_away(node)
        del self._away[node]
        self._scheduler.open(node)
        self._look()

    def _count_away(self, node: int) -> None:
        cause, since_s = self._part.pop(node)
        self._gpu_s[cause] += (self._env.now - since_s) * self._plan.gpus_per_node[node]
        self._chart.away(node, cause, since_s, self._env.now)

    def _look(self) -> None:
        """Something has changed: let the scheduler look, after the rest of what happens now."""
        if not self._changed:
            self._changed = True
            self._env.timeout(0).callbacks.append(self._start_jobs)

    def _start_jobs(self, _: Event) -> None:
        self._changed = False
        for start in self._scheduler.starts(self._env.now):
            for victim in start.victims:
                self._preempt(self._tasks[victim], self._tasks[start.job])
            self._begin(self._tasks[start.job], start.places)

    def _join_queue(self, task: _Task) -> Event:
        """An event that happens when the job starts."""
        task.turn, task.work, task.queued_s = self._env.event(), None, self._env.now
        self._scheduler.add(task.number)
        self._look()
        return task.turn

    def _begin(self, task: _Task, places: Places) -> None:
        task.began_s = self._env.now
        task.first_s = min(task.first_s, task.began_s)
        task.waited_s += task.began_s - task.queued_s
        self._chart.begin(task.number, places, task.queued_s, task.began_s)
        assert task.turn is not None
        task.turn.succeed()

    def _preempt(self, task: _Task, by: _Task) -> None:
        task.preempted += 1
        self._recorder.happen(self._env.now, "preemption", f"{task.job.name} for {by.job.name}")
        self._interrupt(task)

    def _kill(self, node: int) -> None:
        """Stop the jobs on a node."""
        killed = [self._tasks[number] for number in self._scheduler.jobs_on(node)]
        names = ", ".join(task.job.name for task in killed) or "no job"
        self._recorder.happen(self._env.now, "failure", f"node {node}: {names}")
        for task in killed:
            task.failed += 1
            self._scheduler.release(task.number, self._env.now)
            self._interrupt(task)

    def _interrupt(self, task: _Task) -> None:
        assert task.process is not None
        task.process.interrupt()

    def _account(self, task: _Task) -> None:
        """Count the GPU-seconds of the attempt that ends now."""
        ran_s = self._env.now - task.began_s
        restart_s = task.restart_s if task.work else ran_s
        worked_s = ran_s - restart_s
        if task.work and any(task.demand):
            worked_s = task.job.time_s - task.saved_s - self._links.stop(task.work)
        wait_s = max(ran_s - restart_s - worked_s, 0.0)
        lost_s = task.save(worked_s) if task.end_s == inf else 0.0
        parts = {"restart": restart_s, "wait": wait_s, "compute": worked_s - lost_s, "lost": lost_s}
        for cause, seconds in parts.items():
            self._gpu_s[cause] += seconds * task.job.gpus
        self._chart.end(task.number, self._env.now, restart_s, lost_s / worked_s if worked_s else 0.0)
        task.ran_s += ran_s
        task.lost_s += lost_s
        task.restart_s = task.job.restart_s

    def _history(self, records: Sequence[JobRecord]) -> History:
        wall_s, gpus = self._env.now, sum(self._plan.gpus_per_node)
        for node in list(self._part):
            self._count_away(node)
        self._gpu_s["idle"] = max(wall_s * gpus - sum(self._gpu_s.values()), 0.0)
        for cause, seconds in self._gpu_s.items():
            self._recorder.spend(cause, seconds / gpus)
        self._recorder.counts = _counts(records, wall_s * gpus)
        return self._recorder.history(wall_s, len(records), self._gpu_s["compute"], {})


def _counts(records: Sequence[JobRecord], gpu_s: float) -> dict[str, float]:
    waits = [record.waited_s for record in records]
    return {
        "preemptions": sum(record.preempted for record in records),
        "failures": sum(record.failed for record in records),
        "queue_mean_s": float(np.mean(waits)),
        "queue_p95_s": float(np.quantile(waits, 0.95)),
        "utilization": sum(record.ran_s * record.gpus for record in records) / gpu_s,
    }
