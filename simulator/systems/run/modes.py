"""How a run is simulated: as training, servers, gossip, federated rounds, or a queue of jobs."""

from collections.abc import Callable, Iterator, Mapping

from ...base.errors import UserError, fault
from .federated.rounds import FederatedPlan, run_federated
from .history import History
from .jobs.pool import run_pool
from .resolve import ResolvedRun
from .sync.gossip import run_gossip
from .sync.server import run_servers
from .sync.server_plan import Outage, ServerPlan
from .training.failures import Failure
from .training.process import run_training

_MOST_UPDATES = 50_000_000


def simulate(resolved: ResolvedRun, seed: int) -> History:
    """What happens in a run with the random numbers of this seed."""
    return _MODES.get(resolved.mode, _train)(resolved, seed)


def _train(resolved: ResolvedRun, seed: int) -> History:
    return run_training(resolved.training(seed))


def _serve(resolved: ResolvedRun, seed: int) -> History:
    said, message = resolved.scenario.sync.server, resolved.message
    team = resolved.team(seed)
    plan = ServerPlan(
        team=team,
        steps=_updates(resolved),
        server=said,
        server_bytes_per_s=said.bandwidth or resolved.node_bytes_per_s or float("inf"),
        push_bytes=message.wire_bytes,
        pull_bytes=None if resolved.scenario.compress is None else message.pull_bytes,
        encode_s=message.encode_s + message.decode_one_s,
        decode_s=message.decode_one_s,
        failures=_outages(resolved, team.workers, _of_nodes(resolved, seed)),
    )
    return run_servers(plan)


def _gossip(resolved: ResolvedRun, seed: int) -> History:
    keys, team, steps = resolved.scenario.sync.gossip, resolved.team(seed), _updates(resolved)
    message = None if resolved.scenario.compress is None else resolved.message
    try:
        return run_gossip(team, keys, steps, message)
    except ValueError as error:
        raise UserError(fault(resolved.where, "sync.gossip.topology", keys.topology, str(error))) from None


def _federate(resolved: ResolvedRun, seed: int) -> History:
    keys = resolved.scenario.federated
    assert keys is not None
    size_bytes = keys.bytes or resolved.parameter_bytes
    if not size_bytes:
        raise UserError(fault(resolved.where, "federated.bytes", None, "say how large the model is, or name a [model]"))
    return run_federated(FederatedPlan(keys, size_bytes, seed))


def _queue(resolved: ResolvedRun, seed: int) -> History:
    keys = resolved.scenario.jobs
    assert keys is not None
    gpus = resolved.cluster.gpus_per_node
    failures = ((one.at_s, one.node, one.detect_s + one.repair_s) for one in _of_nodes(resolved, seed))
    return run_pool(keys.plan(gpus, seed, resolved.where, failures))[0]


_MODES: Mapping[str, Callable[[ResolvedRun, int], History]] = {
    "parameter_server": _serve, "gossip": _gossip, "federated": _federate, "jobs": _queue,
}  # fmt: skip


def _updates(resolved: ResolvedRun) -> int:
    """Updates of the model that the scenario asks for, each simulated."""
    steps = resolved.steps
    if steps > _MOST_UPDATES:
        allowed = f"at most {_MOST_UPDATES:,} updates are simulated one by one: give fewer run.steps or run.samples"
        raise UserError(fault(resolved.where, "run.steps", round(steps), allowed))
    return int(steps)


def _outages(resolved: ResolvedRun, workers: int, failures: Iterator[Failure]) -> Iterator[Outage]:
    """Failures as all workers of a node see them: the time until they are noticed, repaired and started again."""
    back_s = resolved.restart.seconds
    for one in failures:
        first, after = (node * workers // resolved.nodes for node in (one.node, one.node + 1))
        for worker in range(first, max(after, first + 1)):
            yield Outage(one.at_s, worker, one.detect_s + one.repair_s + back_s)


def _of_nodes(resolved: ResolvedRun, seed: int) -> Iterator[Failure]:
    """Failures where each takes a node away, as nothing else is simulated."""
    resolved.check_places()
    said = resolved.scenario.failures
    for i, cause in enumerate(said.cause if said is not None else ()):
        for key, value, allowed in (
            ("part", cause.part, ("gpu", "nic", "node")),
            ("effect", cause.effect, ("stop",)),
            ("notice", cause.notice, (0.0,)),
        ):
            if value not in allowed:
                words = f"expected {' or '.join(map(str, allowed))}: nothing else is simulated here"
                raise UserError(fault(resolved.where, f"failures.cause.{i}.{key}", value, words))
    for i, one in enumerate(said.trace if said is not None else ()):
        if one.effect != "stop":
            words = "expected stop: nothing else is simulated here"
            raise UserError(fault(resolved.where, f"failures.trace.{i}.effect", one.effect, words))
    return resolved.failures(seed)
