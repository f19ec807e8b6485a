"""Parameter servers: workers push gradients and pull parameters."""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from ..history import History
from ..outages import Outage
from ..sync.server import run_servers
from ..sync.server_plan import ServerPlan
from ..team import Team
from ..training.failures import Failure, detect_s_of, repair_s_of
from .mode import OF_ROUNDS, Mode, failures_of_nodes, updates
from .progress import Goal, Stop, check_progress

if TYPE_CHECKING:
    from ..resolve import ResolvedRun


_LEAST_ROUNDS, _LEAST_UPDATES = 20, 1000  # of a short run that says how stale gradients are


def _simulate(resolved: "ResolvedRun", seed: int) -> History:
    plan = _plan(resolved, seed, updates(resolved))
    _check_progress(resolved, plan.team)
    outages = _outages(resolved, plan.team.workers, failures_of_nodes(resolved, seed), resolved.restart.draw(seed))
    return run_servers(replace(plan, failures=outages))


def _undisturbed(resolved: "ResolvedRun", seed: int) -> History:
    """The same run without failures."""
    return run_servers(_plan(resolved, seed, updates(resolved)))


def _staleness(resolved: "ResolvedRun") -> float:
    """Where workers pull as soon as they have pushed, W - 1 (Dean et al., NIPS 2012); else the mean of a short run.

    That one has no failures, and its first half does not count. While a worker makes a step each of the others makes
    one, too, so that it is never behind by more than theirs of a step; of two with prefetch.
    """
    server, others = resolved.scenario.sync.server, resolved.sites - 1
    if server.update == "synchronous" or not others:
        return 0.0
    if server.update == "asynchronous" and not server.prefetch:
        return float(others)
    updates = max(_LEAST_ROUNDS, ceil(_LEAST_UPDATES / resolved.sites)) * resolved.sites
    behind = [run_servers(_plan(resolved, resolved.scenario.seed, many)).behind for many in (updates, 2 * updates)]
    return min((behind[1] - behind[0]) / updates, (1.0 + server.prefetch) * others)


def _plan(resolved: "ResolvedRun", seed: int, steps: int) -> ServerPlan:
    """So many updates without failures."""
    said, message = resolved.scenario.sync.server, resolved.message
    return ServerPlan(
        team=resolved.team(seed),
        steps=steps,
        server=said,
        server_bytes_per_s=said.bandwidth or resolved.node_bytes_per_s or float("inf"),
        push_bytes=message.wire_bytes,
        pull_bytes=None if resolved.scenario.compress is None else message.pull_bytes,
        encode_s=message.encode_s + message.decode_one_s,
        decode_s=message.decode_one_s,
    )


def _check_progress(resolved: "ResolvedRun", team: Team) -> None:
    """Refuse workers that fail faster than they come back, or than they make a step."""
    said, many = resolved.scenario.failures, min(team.workers, resolved.nodes)
    if said is not None:
        back_s = resolved.restart.seconds
        stops = [Stop(cause, detect_s_of(said, cause) + back_s, repair_s_of(said, cause)) for cause in said.cause]
        goal = Goal("step.time", team.step_s + team.inside_s)
        check_progress(resolved, stops, "on the nodes of a worker", many, goal)


def _outages(
    resolved: "ResolvedRun", workers: int, failures: Iterator[Failure], restarts_s: Iterator[float]
) -> Iterator[Outage]:
    """Failures as all workers of a node see them: the time until they are noticed, repaired and started again."""
    for one, back_s in zip(failures, restarts_s, strict=False):
        first, after = (node * workers // resolved.nodes for node in (one.nodes[0], one.nodes[0] + 1))
        for worker in range(first, max(after, first + 1)):
            yield Outage(one.at_s, worker, one.repair_s, one.detect_s, back_s)


PARAMETER_SERVER = Mode(
    "parameter_server", _simulate, steps="updates", own=("sync.server",), refuses=(*OF_ROUNDS, "target.batch"),
    updates_alone=lambda scenario: scenario.sync.server.update != "synchronous",
    staleness=_staleness, undisturbed=_undisturbed,
)  # fmt: skip
