"""How a run is simulated: as training, servers, gossip, federated rounds, or a queue of jobs."""

from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile

from ...base.errors import UserError, fault
from .federated.rounds import FederatedPlan, run_federated
from .history import History
from .jobs.pool import run_pool
from .resolve import ResolvedRun
from .sync.gossip import run_gossip
from .sync.server import run_servers
from .sync.server_plan import Outage, ServerPlan
from .training.process import run_training

_MOST_UPDATES = 50_000_000


def simulate(resolved: ResolvedRun, seed: int) -> History:
    """What happens in a run with the random numbers of this seed."""
    return _MODES.get(resolved.mode, _train)(resolved, seed)


def _train(resolved: ResolvedRun, seed: int) -> History:
    return run_training(resolved.training(seed))


def _serve(resolved: ResolvedRun, seed: int) -> History:
    said, message = resolved.scenario.sync.server, resolved.message
    plan = ServerPlan(
        team=resolved.team(seed),
        steps=_updates(resolved),
        server=said,
        server_bytes_per_s=said.bandwidth or resolved.node_bytes_per_s or float("inf"),
        push_bytes=message.wire_bytes,
        pull_bytes=None if resolved.scenario.compress is None else message.pull_bytes,
        encode_s=message.encode_s + message.decode_one_s,
        decode_s=message.decode_one_s,
        failures=_outages(resolved, seed),
    )
    return run_servers(plan)


def _gossip(resolved: ResolvedRun, seed: int) -> History:
    keys, sent = resolved.scenario.sync.gossip, None
    if resolved.scenario.compress is not None:
        sent = resolved.message.wire_bytes
    try:
        return run_gossip(resolved.team(seed), keys, _updates(resolved), sent)
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
    calm = keys.plan(gpus, seed, resolved.where)
    if resolved.scenario.failures is None:
        return run_pool(calm)[0]
    work_s = sum(job.time_s * job.gpus for job in calm.jobs) / sum(gpus)
    until_s = 3 * (max(job.at_s for job in calm.jobs) + work_s + max(job.time_s for job in calm.jobs))
    early = takewhile(lambda failure: failure.at_s < until_s, resolved.failures(seed))
    failures = [(one.at_s, one.node, one.detect_s + one.repair_s) for one in early]
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


def _outages(resolved: ResolvedRun, seed: int) -> Iterator[Outage]:
    """Failures as workers see them: the time until they are noticed, repaired and started again."""
    back_s = resolved.restart.seconds
    for one in resolved.failures(seed):
        if one.effect == "stop":
            worker = one.node * resolved.workers // resolved.nodes
            yield Outage(one.at_s, worker, one.detect_s + one.repair_s + back_s)
