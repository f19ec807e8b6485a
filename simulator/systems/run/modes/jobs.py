"""Jobs in a queue: they stand instead of workers."""

from collections.abc import Iterable
from math import ceil
from typing import TYPE_CHECKING

from ..history import History
from ..jobs.pool import run_pool
from ..jobs.scheduler import Job
from ..jobs.tables import Jobs
from ..outages import Outage
from ..training.failures import detect_s_of, repair_s_of
from .mode import OF_ROUNDS, OF_STEP, OF_WORKERS, Mode, failures_of_nodes
from .progress import Goal, Stop, check_progress

if TYPE_CHECKING:
    from ..resolve import ResolvedRun

_NOT_OF_JOBS = (
    "model", "step.gradient", "step.parameters", "failures.place", "failures.init", "failures.init_per_node",
    "failures.read", "failures.warmup", "failures.restart_spread",
)  # fmt: skip


def _keys(resolved: "ResolvedRun") -> Jobs:
    keys = resolved.scenario.jobs
    assert keys is not None
    return keys


def _simulate(resolved: "ResolvedRun", seed: int) -> History:
    failures = (Outage(one.at_s, one.nodes[0], one.repair_s, one.detect_s) for one in failures_of_nodes(resolved, seed))
    plan = _keys(resolved).plan(resolved.cluster.gpus_per_node, seed, resolved.where, failures)
    _check_progress(resolved, plan.jobs)
    return run_pool(plan)[0]


def _check_progress(resolved: "ResolvedRun", jobs: Iterable[Job]) -> None:
    """Refuse nodes that fail faster than they come back, and jobs that are never done, or saved, before a failure."""
    said, nodes = resolved.scenario.failures, resolved.nodes
    if said is None:
        return
    stops = [Stop(cause, detect_s_of(said, cause), repair_s_of(said, cause)) for cause in said.cause]
    check_progress(resolved, stops, "of a node", nodes, goal=None)
    of_node = max(resolved.cluster.gpus_per_node)
    for job in jobs:
        many, work_s = nodes / ceil(job.gpus / of_node), job.restart_s + min(job.time_s, job.checkpoint_s)
        check_progress(resolved, stops, f"on the nodes of job {job.name!r}", many, Goal("jobs", work_s))


def _question(resolved: "ResolvedRun") -> str:
    nodes, policy = resolved.scenario.nodes, _keys(resolved).policy
    return f"a queue of jobs on {resolved.cluster.n_gpus:,} GPUs in {nodes:,} nodes, policy {policy}"


def _notes(resolved: "ResolvedRun") -> list[str]:
    return list(_keys(resolved).notes(max(resolved.cluster.gpus_per_node), resolved.where))


JOBS = Mode(
    "jobs", _simulate, _question, unit="GPU-seconds", steps="jobs", useful="jobs",
    refuses=(*OF_WORKERS, *OF_STEP, *OF_ROUNDS, *_NOT_OF_JOBS), notes=_notes,
)  # fmt: skip
