"""Jobs in a queue: they stand instead of workers."""

from typing import TYPE_CHECKING

from ..history import History
from ..jobs.pool import run_pool
from ..jobs.tables import Jobs
from ..outages import Outage
from .mode import OF_ROUNDS, OF_STEP, OF_WORKERS, Mode, failures_of_nodes

if TYPE_CHECKING:
    from ..resolve import ResolvedRun

_NOT_OF_JOBS = (
    "model", "step.gradient", "step.parameters", "failures.place", "failures.init", "failures.init_per_node",
    "failures.read", "failures.warmup",
)  # fmt: skip


def _keys(resolved: "ResolvedRun") -> Jobs:
    keys = resolved.scenario.jobs
    assert keys is not None
    return keys


def _simulate(resolved: "ResolvedRun", seed: int) -> History:
    failures = (Outage(one.at_s, one.nodes[0], one.repair_s, one.detect_s) for one in failures_of_nodes(resolved, seed))
    plan = _keys(resolved).plan(resolved.cluster.gpus_per_node, seed, resolved.where, failures)
    return run_pool(plan)[0]


def _question(resolved: "ResolvedRun") -> str:
    nodes, policy = resolved.scenario.nodes, _keys(resolved).policy
    return f"a queue of jobs on {resolved.cluster.n_gpus:,} GPUs in {nodes:,} nodes, policy {policy}"


def _notes(resolved: "ResolvedRun") -> list[str]:
    return list(_keys(resolved).notes(max(resolved.cluster.gpus_per_node), resolved.where))


JOBS = Mode(
    "jobs", _simulate, _question, unit="GPU-seconds", steps="jobs", useful="jobs",
    refuses=(*OF_WORKERS, *OF_STEP, *OF_ROUNDS, *_NOT_OF_JOBS), notes=_notes,
)  # fmt: skip
