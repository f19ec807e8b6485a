"""The keys of a pool of GPUs with a queue of jobs, and the plan that they make."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, PositiveFloat, model_validator

from ....base.arrays import Floats
from ....base.errors import UserError, unknown
from ....base.files import path_beside, read_text
from ...tables import Rate, Seconds, Table, Time, as_tuple
from ..outages import Outage
from ..spread import Spread
from .placement import Pack
from .pool import PoolPlan
from .sacct import JobTrace, read_sacct
from .scheduler import Job, Policy

MOST_JOBS = 200_000
"""Jobs of all tables together: some ten seconds. A trace may have more."""
_Count = Annotated[int, Field(gt=0, le=MOST_JOBS)]
_Gpus = Annotated[int, Field(gt=0, le=1_000_000)]


class _Kind(Table):
    """What jobs of one kind share."""

    priority: int = Field(0, description="policy 'priority': higher ones go first")
    restart: Seconds = Field(0.0, description="time that a job which was stopped needs before it works again")
    checkpoint: Time | None = Field(
        None, description="work between checkpoints, which a stopped job keeps (default: it keeps none)"
    )
    network: Rate | None = Field(None, description="rate that a job puts on the shared fabric when it runs alone")
    storage: Rate | None = Field(None, description="rate that a job puts on the shared store when it runs alone")

    def _jobs(self) -> dict[str, Any]:
        return {
            "priority": self.priority,
            "restart_s": self.restart,
            "checkpoint_s": self.checkpoint or inf,
            "network_bytes_per_s": self.network or 0.0,
            "storage_bytes_per_s": self.storage or 0.0,
        }


class Submission(_Kind):
    """A job, or several that differ in nothing but their times of arrival."""

    name: str = Field(description="name of the job")
    gpus: _Gpus = Field(description="GPUs, which it needs all at once")
    time: Time = Field(description="time that it takes when it runs alone")
    estimate: Time | None = Field(None, description="time that the user asks of the queue (default: time)")
    at: Seconds = Field(0.0, description="when it comes")
    count: _Count = Field(1, description="how many of them: a job array, a hyper-parameter search, an ensemble")
    every: Seconds = Field(0.0, description="time between two of them (default: all at once)")
    user: str = Field("", description="whose it is, for policy 'fair'")

    def jobs(self) -> Iterator[Job]:
        """Each of the jobs."""
        for number in range(self.count):
            yield Job(
                name=f"{self.name}_{number}" if self.count > 1 else self.name,
                gpus=self.gpus,
                time_s=self.time,
                at_s=self.at + number * self.every,
                estimate_s=self.estimate,
                user=self.user,
                **self._jobs(),
            )


class Arrivals(_Kind):
    """A random workload: jobs that come independently of each other (a Poisson process)."""

    rate: Annotated[float, Field(gt=0, le=1e6)] = Field(description="jobs per hour, on average")
    count: _Count = Field(description="number of jobs")
    gpus: Annotated[tuple[_Gpus, ...], BeforeValidator(as_tuple)] = Field((1,), description="numbers of GPUs of a job")
    weights: Annotated[tuple[PositiveFloat, ...], BeforeValidator(as_tuple)] | None = Field(
        None, description="how often each of these numbers occurs (default: all alike)"
    )
    time: Time = Field(description="time that a job takes when it runs alone, on average")
    distribution: Literal["exponential", "lognormal", "fixed"] = Field(
        "exponential", description="distribution of these times"
    )
    spread: Annotated[float, Field(gt=0, le=10)] | None = Field(
        None, description="lognormal: standard deviation as a share of the mean"
    )
    overestimate: Annotated[float, Field(gt=0, le=1000)] = Field(
        1.0, description="how many times its own time a job asks of the queue"
    )
    users: tuple[str, ...] = Field((), description="whose the jobs are, each as likely as the others")

    @model_validator(mode="after")
    def _goes_together(self) -> "Arrivals":
        if not self.gpus:
            raise ValueError("gpus is a list of at least one number")
        if self.weights is not None and len(self.weights) != len(self.gpus):
            raise ValueError("weights has a number for each of gpus")
        if (self.distribution == "lognormal") != (self.spread is not None):
            raise ValueError("distribution = 'lognormal' and spread must be given together")
        return self

    def jobs(self, seed: int) -> Iterator[Job]:
        """The jobs; equal seeds give equal ones. More of them do not change the first."""
        ats = np.cumsum(_rng(seed, 0).exponential(3600 / self.rate, self.count)).tolist()
        times = self._times(_rng(seed, 1)).tolist()
        gpus = _draw(_rng(seed, 2), self.gpus, self.weights, self.count)
        users = _draw(_rng(seed, 3), self.users or ("",), None, self.count)
        for number, (at_s, time_s, size, user) in enumerate(zip(ats, times, gpus, users, strict=True)):
            yield Job(
                name=f"arrival_{number}",
                gpus=size,
                time_s=time_s,
                at_s=at_s,
                estimate_s=time_s * self.overestimate,
                user=user,
                **self._jobs(),
            )

    def _times(self, rng: np.random.Generator) -> Floats:
        if self.distribution == "exponential":
            return rng.exponential(self.time, self.count)
        spread = Spread(kind="lognormal", spread=self.spread or 0.0)  # fixed: 0
        return self.time * spread.draw(rng, self.count)


class Jobs(Table):
    """A pool of GPUs with a queue: where jobs come from, who goes first, and what they share."""

    policy: Policy = Field(
        "fifo", description="who goes first; 'backfill': by arrival, and others that do not delay the first one"
    )
    pack: Pack = Field(
        "nodes", description="'nodes': a job that fits on a node stays on one, a larger one takes whole nodes"
    )
    preempt: bool = Field(False, description="policy 'priority': whether a job takes GPUs of jobs with lower ones")
    weight: dict[str, PositiveFloat] = Field(
        default_factory=dict, description="policy 'fair': shares of users (1 if not named)"
    )
    job: tuple[Submission, ...] = Field((), description="jobs that are known")
    arrivals: Arrivals | None = Field(None, description="jobs at random")
    trace: str | None = Field(None, description="jobs of a file: output of Slurm's sacct --parsable2, or CSV")
    fabric: Rate | None = Field(None, description="capacity of the shared fabric (default: no limit)")
    store: Rate | None = Field(None, description="capacity of the shared store (default: no limit)")

    @model_validator(mode="after")
    def _goes_together(self) -> "Jobs":
        if not (self.job or self.arrivals or self.trace):
            raise ValueError("give at least one of job, arrivals and trace")
        if self.preempt and self.policy != "priority":
            raise ValueError("preempt goes with policy = 'priority'")
        if self.weight and self.policy != "fair":
            raise ValueError("weight goes with policy = 'fair'")
        at_random = self.arrivals.count if self.arrivals else 0
        if sum(one.count for one in self.job) + at_random > MOST_JOBS:
            raise ValueError(f"expected at most {MOST_JOBS:,} jobs of job and arrivals together")
        return self

    def plan(self, gpus_per_node: tuple[int, ...], seed: int, where: str, failures: Iterable[Outage] = ()) -> PoolPlan:
        """What the pool does; `where` is the file of these keys, beside which a trace is looked for.

        Raises:
            UserError: a job needs more GPUs than there are, the trace cannot be read, or a weight is of no user.
        """
        trace = self._trace(max(gpus_per_node), where)
        random = self.arrivals.jobs(seed) if self.arrivals else ()
        jobs = (*(job for one in self.job for job in one.jobs()), *random, *trace.jobs)
        users = {job.user for job in jobs}
        if strangers := sorted(self.weight.keys() - users):
            raise unknown(where, "jobs.weight", strangers[0], users)
        with _prefix_faults(where):
            return PoolPlan(
                gpus_per_node=gpus_per_node,
                jobs=jobs,
                policy=self.policy,
                pack=self.pack,
                preempt=self.preempt,
                weights=self.weight,
                fabric_bytes_per_s=self.fabric or inf,
                store_bytes_per_s=self.store or inf,
                failures=failures,
                notes=trace.notes,
            )

    def notes(self, gpus_per_node: int, where: str) -> tuple[str, ...]:
        """What was left out of the trace."""
        return self._trace(gpus_per_node, where).notes

    def trace_text(self, where: str) -> str | None:
        """What the file of the trace says, for hashes; None without one, or if it cannot be read."""
        path = None if self.trace is None else path_beside(self.trace, where)
        with suppress(UserError):
            return read_text(path) if path is not None and path.is_file() else None
        return None

    def _trace(self, gpus_per_node: int, where: str) -> JobTrace:
        if self.trace is None:
            return JobTrace((), ())
        with _prefix_faults(f"{where}: jobs.trace"):
            return read_sacct(path_beside(self.trace, where), gpus_per_node)


@contextmanager
def _prefix_faults(where: str) -> Iterator[None]:
    """Put the file and key that a fault comes from before it."""
    try:
        yield
    except UserError as error:
        raise UserError(*(f"{where}: {line}" for line in error.faults)) from None


def _rng(seed: int, stream: int) -> np.random.Generator:
    return np.random.default_rng((seed, stream))


def _draw(rng: np.random.Generator, values: Sequence[Any], weights: Sequence[float] | None, count: int) -> list[Any]:
    """Values at random, by their weights."""
    shares = np.cumsum(weights if weights is not None else np.ones(len(values)))
    chosen = np.searchsorted(shares / shares[-1], rng.random(count), side="right")
    return [values[at] for at in chosen.tolist()]
