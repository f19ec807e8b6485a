"""Parameter servers: workers push gradients and pull parameters."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..history import History
from ..outages import Outage
from ..sync.server import run_servers
from ..sync.server_plan import ServerPlan
from ..team import Team
from ..training.failures import Failure, detect_s_of, repair_s_of
from .mode import OF_ROUNDS, Mode, failures_of_nodes, updates
from .progress import check_progress

if TYPE_CHECKING:
    from ..resolve import ResolvedRun


def _simulate(resolved: "ResolvedRun", seed: int) -> History:
    said, message = resolved.scenario.sync.server, resolved.message
    team = resolved.team(seed)
    failures = failures_of_nodes(resolved, seed)
    _check_progress(resolved, team)
    plan = ServerPlan(
        team=team,
        steps=updates(resolved),
        server=said,
        server_bytes_per_s=said.bandwidth or resolved.node_bytes_per_s or float("inf"),
        push_bytes=message.wire_bytes,
        pull_bytes=None if resolved.scenario.compress is None else message.pull_bytes,
        encode_s=message.encode_s + message.decode_one_s,
        decode_s=message.decode_one_s,
        failures=_outages(resolved, team.workers, failures),
    )
    return run_servers(plan)


def _check_progress(resolved: "ResolvedRun", team: Team) -> None:
    """Refuse workers that fail faster than they come back, or than they make a step."""
    said, many = resolved.scenario.failures, min(team.workers, resolved.nodes)
    if said is not None:
        back_s = resolved.restart.seconds
        stops = [(cause, detect_s_of(said, cause) + repair_s_of(said, cause) + back_s) for cause in said.cause]
        check_progress(resolved, stops, "on the nodes of a worker", many, work_s=team.step_s, key="step.time")


def _outages(resolved: "ResolvedRun", workers: int, failures: Iterator[Failure]) -> Iterator[Outage]:
    """Failures as all workers of a node see them: the time until they are noticed, repaired and started again."""
    back_s = resolved.restart.seconds
    for one in failures:
        first, after = (node * workers // resolved.nodes for node in (one.nodes[0], one.nodes[0] + 1))
        for worker in range(first, max(after, first + 1)):
            yield Outage(one.at_s, worker, one.repair_s, one.detect_s, back_s)


PARAMETER_SERVER = Mode(
    "parameter_server", _simulate, steps="updates", own=("sync.server",), refuses=(*OF_ROUNDS, "target.batch"),
    updates_alone=lambda scenario: scenario.sync.server.update != "synchronous",
)  # fmt: skip
